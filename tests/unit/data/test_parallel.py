"""Parallel corpora: aligned files, tables and hub rows, their directions, and what is refused."""

import pytest

from lightning_modules.config import ConfigError
from lightning_modules.data.corpora import own_text
from lightning_modules.data.corpora.registry import Split, corpus
from lightning_modules.data.pins import fingerprint, pinned
from lightning_modules.data.settings import Data


def put(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def files(tmp_path):
    for stem, first in (("b", 0), ("a", 30)):
        put(tmp_path / f"{stem}.en", [f"the  cat {n}." for n in range(first, first + 30)])
        put(tmp_path / f"{stem}.de", [f"die Katze {n}." for n in range(first, first + 30)])
    return tmp_path


def read(name, split: Split = "train"):
    return list(corpus(name).documents(split))


def test_a_document_is_a_sentence_and_its_translation(files):
    name = f"lines:en-de:{files}/*"
    train, heldout = read(name), read(name, "heldout")
    assert (len(train), len(heldout)) == (57, 3)
    assert train[0] == ["the cat 30.", "die Katze 30."], "files are read in the order of their names"
    assert corpus(name).languages == ("en", "de")
    assert read(f"lines:de-en:{files}/*")[0] == train[0][::-1]


def test_the_other_direction_is_another_text(files):
    assert fingerprint(f"lines:en-de:{files}/*") != fingerprint(f"lines:de-en:{files}/*")
    assert Data(corpora=("multi30k:en-de",)).essence() != Data(corpora=("multi30k:de-en",)).essence()
    assert pinned()["multi30k:en-de"] != pinned()["multi30k:de-en"]


def test_a_table_has_a_column_for_each_language(tmp_path):
    file = put(tmp_path / "t.tsv", ["n\tde\ten", *(f"{n}\tdie Katze {n}.\tthe cat {n}." for n in range(4))])
    assert read(f"tsv:en-de:{file}")[:2] == [["the cat 0.", "die Katze 0."], ["the cat 1.", "die Katze 1."]]
    assert read(f"tsv:de-en:{file}", "heldout") == [["die Katze 3.", "the cat 3."]]


@pytest.mark.parametrize("nested", [False, True])
def test_rows_of_the_hub_have_a_column_for_each_language_or_one_for_both(monkeypatch, nested):
    both = {"en": "the cat.", "de": "die Katze."}
    rows = [{"translation": both} if nested else both] * 3
    parts = {"train": rows, "validation": rows[:1]}
    monkeypatch.setattr(own_text, "loaded", lambda *place, **options: parts)
    assert read("pairs:de-en:some/set") == [["die Katze.", "the cat."]] * 3
    assert len(read("pairs:de-en:some/set", "heldout")) == 1
    with pytest.raises(ConfigError, match=r"row 1 has no text in 'fr'"):
        read("pairs:en-fr:some/set")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("multi30k:en-xx", "multi30k has no language 'xx'.* cs, de, en, fr"),
        ("multi30k:en-en", "translates en into itself"),
        ("multi30k:en-de-fr", "names no two languages"),
        ("multi30k:", "names no two languages"),
        ("multi3k:en-de", r"there is no corpus 'multi3k:en-de'"),
        ("tatoeba:de-fr", "pairs each language with en"),
        ("lines:en-de", "names no files"),
        ("lines:*-de:x", "names no two languages"),
        ("tsv:*:x", "names no two languages"),
        ("pairs:en-de:", "names no files"),
    ],
)
def test_a_bad_name_is_refused_when_it_is_named(name, message):
    with pytest.raises(ConfigError, match=message) as error:
        Data().but(corpora=[name])
    assert len(error.value.problems) == 1
    assert "\n" not in error.value.problems[0].message


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"a.de": ["x."] * 29}, r"a\.de ends before line 30, and .*a\.en has more"),
        ({"a.de": ["x."] * 31}, r"a\.en ends before line 31"),
        ({"a.de": ["x."] * 10 + [" "] + ["x."] * 19}, r"a\.de, line 11 is empty"),
        ({"a.en": ["", *["x."] * 29]}, r"a\.en, line 1 is empty"),
        ({"c.en": ["x."]}, r"c\.de is missing"),
        ({"c.de": ["x."]}, r"c\.en is missing"),
    ],
)
def test_uneven_files_and_empty_lines_are_refused_by_number(files, changed, message):
    for name, lines in changed.items():
        put(files / name, lines)
    with pytest.raises(ConfigError, match=message) as error:
        read(f"lines:en-de:{files}/*")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["en\tfr", "a\tb"], r"has no column 'de'.* en, fr"),
        (["en\tde", "a\tb", "a"], r"line 3 has 1 columns\. The first line has 2"),
        (["en\tde", "a\tb", "a\t"], r"line 3 has no text in 'de'"),
        (["en\tde", "\tb"], r"line 2 has no text in 'en'"),
    ],
)
def test_bad_lines_of_a_table_are_refused_by_number(tmp_path, lines, message):
    with pytest.raises(ConfigError, match=message) as error:
        read(f"tsv:en-de:{put(tmp_path / 't.tsv', lines)}")
    assert "\n" not in str(error.value)


def test_verses_that_a_language_lacks_are_left_out_and_whole_chapters_held_out(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATIONS_DATA", str(tmp_path))
    rows = [f"Book\t{c}\t{v}\ten {c} {v}\tes {c} {v}\tde {c}" for c in range(1, 41) for v in (1, 2)]
    rows[0] = "Book\t1\t1\ten 1 1\t\tde 1"
    rows[61] = "Book\t31\t2\ten 5 1\tes 31 2\tde 31"  # repeats a verse that is trained on
    put(tmp_path / "bible" / "bible_aligned.tsv", ["book\tchapter\tverse\ten\tes\tde", *rows])
    heldout = [source for source, _ in read("bible:en-es", "heldout")]
    assert heldout == ["en 11 1", "en 11 2", "en 31 1"]
    assert [source for source, _ in read("bible:es-en", "heldout")] == ["es 11 1", "es 11 2", "es 31 1"]
    assert len(read("bible:en-es")) == 75, "of 80 verses four are held out and one has no translation"
    assert len(read("bible:en-de")) == 76
