"""Corpora in a column of JSON lines, and the reviews of IMDb without labels."""

import json

import pytest

from lightning_modules.config import ConfigError
from lightning_modules.data.corpora.registry import corpus
from lightning_modules.data.corpora.reviews import HELD_OUT
from lightning_modules.data.pins import fingerprint
from lightning_modules.tasks import TASKS


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def read(name, split):
    return list(corpus(name).documents(split))


def test_the_named_column_is_read_and_every_twentieth_text_held_out(tmp_path):
    write(tmp_path / "b.jsonl", [{"body": f"Text {n}. More\nof {n}.", "label": n} for n in range(30)])
    write(tmp_path / "a.jsonl", [{"body": f"First {n}."} for n in range(10)])
    name = f"jsonl:body:{tmp_path}/*.jsonl"
    train, heldout = read(name, "train"), read(name, "heldout")
    assert (len(train), len(heldout)) == (38, 2)
    assert heldout == [["Text 9.", "More", "of 9."], ["Text 29.", "More", "of 29."]]
    assert train[0] == ["First 0."]


def test_another_column_or_text_is_another_fingerprint(tmp_path):
    rows = [{"text": f"One {n}.", "title": f"Two {n}.", "label": 0} for n in range(4)]
    file = write(tmp_path / "a.jsonl", rows)
    name = f"jsonl:text:{file}"
    first = fingerprint(name)
    assert fingerprint(f"jsonl:title:{file}") != first
    write(file, [row | {"label": 1, "more": "x"} for row in rows])
    assert fingerprint(name) == first, "labels and other columns are no part of the text"
    write(file, [*rows, {"text": "Another."}])
    assert fingerprint(name) != first


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"txt": "a"}, r"line 3 has no column 'text'\. It has txt\. Did you mean 'txt'\?"),
        ({"text": 5}, r"line 3 holds 5 in the column 'text'"),
        ({"text": None}, r"line 3 holds None"),
        ("[1]", r"line 3 is no JSON object\."),
        ("{", r"line 3 is no JSON: .* Each line must be one object with 'text'"),
    ],
)
def test_a_bad_line_is_refused_by_file_and_number(tmp_path, row, message):
    file = write(tmp_path / "a.jsonl", [{"text": "Good."}, "", row])
    with pytest.raises(ConfigError, match=message) as raised:
        read(f"jsonl:text:{file}", "train")
    assert str(file) in str(raised.value)


# --- reviews


@pytest.fixture
def reviews(tmp_path, monkeypatch):
    """Reviews of which one without a label is a training one, and one a test one."""
    monkeypatch.setenv("ABLATIONS_DATA", str(tmp_path))
    texts = {part: [f"The {part} film {n}.<br /><br />It ends." for n in range(120)] for part in ("train", "test")}
    unlabelled = [texts["train"][3], texts["test"][5], *(f"A film {n}." for n in range(200)), texts["test"][5]]
    for part, rows in texts.items():
        write(tmp_path / f"imdb/{part}.jsonl", [{"text": text, "label": n % 2} for n, text in enumerate(rows)])
    write(tmp_path / "imdb/unsup.jsonl", [{"id": n, "text": text} for n, text in enumerate(unlabelled)])
    return texts


def joined(documents):
    """The texts without spaces, which sentences add between marks of line breaks."""
    return {"".join("".join(document).split()) for document in documents}


def test_no_language_model_reads_what_the_task_holds_out(reviews):
    train, heldout = (joined(read("imdb-train", split)) for split in ("train", "heldout"))
    rows = {split: joined([row.first] for row in TASKS["imdb"].rows(split)) for split in ("train", "dev")}
    assert (train, heldout) == (rows["train"], rows["dev"])
    assert 0 < len(heldout) < 3 * HELD_OUT * len(train)


def test_unlabelled_reviews_are_none_of_train_or_test(reviews):
    both = [*read("imdb-unlabelled", "train"), *read("imdb-unlabelled", "heldout")]
    assert joined(both) == {f"Afilm{n}." for n in range(200)}
    assert 0 < len(read("imdb-unlabelled", "heldout")) < 30
