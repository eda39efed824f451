"""Data files with faults: refused with file and line, all faults of a file at once, or read as meant.

Nothing is dropped in silence.
"""

import json
import re

import pytest

from lightning_modules.config import ConfigError
from lightning_modules.tasks import TASKS, pins
from lightning_modules.tasks.reading.lines import LONGEST

RTE = b"index\tsentence1\tsentence2\tlabel\n"
GOOD = b"0\tIt rains.\tIt is wet.\tentailment\n"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATIONS_DATA", str(tmp_path))
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    return tmp_path


def read(home, content, task="rte"):
    """The training examples of a task whose file has this content."""
    path = home / TASKS[task].origin.files["train"][0]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return TASKS[task].examples("train")


def line(text: str | bytes) -> bytes:
    """RTE with one good line before and after a third."""
    return RTE + GOOD + (text.encode() if isinstance(text, str) else text) + b"\n" + GOOD.replace(b"0", b"9", 1)


REFUSED = {
    "too few fields": (line("1\tA.\tneutral"), r"RTE/train\.tsv, line 3: 3 .*4"),
    "no tabs": (line("1 A. B. entailment"), r"line 3: 1 .*4 .*tabs.* space-separated"),
    "commas in the place of tabs": (line('1,"A, a.",B.,entailment'), r"line 3: 1 .*4 .*tabs.* comma-separated"),
    "commas that are text": (line("1, 2, 3.\tA, B\tneutral"), r"line 3: 3 .*4 .*tabs\.$"),
    "semicolons throughout": (
        (RTE + GOOD).replace(b"\t", b";"),
        r"train\.tsv has no column sentence1, .*tabs.* semicolon-separated",
    ),
    "JSON lines in a table": (line('{"sentence1": "A."}'), r"line 3: 1 .*4 .*tabs.* JSON"),
    "a long line of quotes": (line('"' * 200_000 + ","), r"line 3: 1 .*4 .*tabs\.$"),
    "another label": (line("1\tA.\tB.\tmaybe"), r"line 3: .*'maybe'.*entailment, not_"),
    "an empty text": (line("1\t\tB.\tentailment"), r"line 3: .*empty"),
    "a second text of spaces": (line("1\tA.\t \u00a0 \tentailment"), r"line 3: .*empty"),
    "an empty line between others": (line(""), r"line 3: .*empty"),
    "broken UTF-8": (line(b"1\tCaf\xe9.\tB.\tentailment"), r"line 3: .*UTF-8.*6"),
    "UTF-16": ("index\tsentence1".encode("utf-16"), r"line 1: .*(UTF-8|NUL)"),
    "a NUL": (line("1\tA\0b.\tB.\tentailment"), r"line 3: .*NUL.*4"),
    "a line of ten megabytes": (line("1\t" + "a " * 5_000_000 + "\tB.\tentailment"), r"line 3: .*10,000,\d+ bytes"),
    "a number that is there twice": (line("0\tA.\tB.\tentailment"), r"line 3: .*0.*line 2"),
    "no headings": (GOOD * 2, r"column.* sentence1, sentence2, index, label.* 0, It rains\."),
    "a heading that is spelt otherwise": (RTE.replace(b"label", b"Label") + GOOD, r"column.* label.*Label"),
    "a column that is there twice": (
        RTE[:-1] + b"\tlabel\n" + GOOD[:-1] + b"\tx\n",
        r"column.* label",
    ),
    "an empty file": (b"", r"train\.tsv .*empty"),
    "a last field that nobody asked for is missing": (
        RTE[:-1] + b"\tmore\n" + GOOD,
        r"line 2: 4 .*5",
    ),
    "headings alone": (RTE, r"no examples"),
    "a page of the web": (b"<!DOCTYPE html>\n<html>404</html>\n", r"column.*<!DOCTYPE html>"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_table_is_refused_by_line(home, name):
    content, message = REFUSED[name]
    with pytest.raises(ConfigError, match=message):
        read(home, content)


READ = {
    "a byte order mark": b"\xef\xbb\xbf" + RTE + GOOD,
    "carriage returns": (RTE + GOOD).replace(b"\n", b"\r\n"),
    "no end of the last line": (RTE + GOOD)[:-1],
    "empty lines at the end": RTE + GOOD + b"\n\r\n\n",
    "columns in another order": b"label\tsentence2\tindex\tsentence1\nentailment\tIt is wet.\t0\tIt rains.\n",
    "columns that nobody asked for": b"more\t" + RTE + b"x\t" + GOOD,
    "much white space": RTE + b"0\t  It\xc2\xa0 rains. \tIt\x0b is \x0c wet.\tentailment\n",
    "the number of the class": RTE + GOOD.replace(b"entailment", b"0"),
}


@pytest.mark.parametrize("name", READ)
def test_an_odd_table_is_read_as_meant(home, name):
    assert read(home, READ[name]).items_for_pin() == [["It rains.", "It is wet.", 0]]


@pytest.mark.parametrize("text", ['"', 'A"', '"A "b" c', "\\", "\u2028x", "x\ry", "\ufeffx"])
def test_quotes_and_other_signs_are_text(home, text):
    content = RTE + f"0\t{text}\tB.\tentailment\n".encode() + GOOD.replace(b"0", b"1")
    examples = read(home, content)
    assert examples.first[0] == " ".join(text.split())
    assert len(examples) == 2


@pytest.mark.parametrize("label", ["nan", "-inf", "5,0", ""])
def test_a_score_is_a_finite_number(home, label):
    content = "g\tf\t2012\t1\t3.5\tA.\tB.\n" + f"g\tf\t2012\t2\t{label}\tA.\tB.\n"
    with pytest.raises(ConfigError, match=rf"sts-train\.csv, line 2: .*'{label}'"):
        read(home, content.encode(), "stsb")


def test_the_first_dozen_faults_of_all_kinds_are_named_and_the_rest_counted(home):
    bad = ["{n}\tA.\tB.", "{n}\tA.\tB.\tmaybe", "{n}\t\tB.\tentailment", "0\tA.\tB.\tentailment"]
    lines = "".join(bad[n % 4].format(n=n + 1) + "\n" for n in range(40))
    with pytest.raises(ConfigError) as caught:
        read(home, RTE + GOOD + lines.encode() + b"\xff\n")
    found = list(map(str, caught.value.problems))
    assert len(found) == 13
    assert [text.partition("line ")[2].split(":")[0] for text in found[:12]] == [str(n) for n in range(3, 15)]
    assert {text.partition(": ")[2][:9] for text in found[:12]} == {"3 fields ", "has the l", "has an em", "repeats t"}
    assert found[12] == "29 more examples are wrong."


def test_the_longest_line_that_is_read(home):
    text = "a" * (LONGEST - len("0\t\tB.\tentailment"))
    assert read(home, RTE + f"0\t{text}\tB.\tentailment\n".encode()).first == [text]


def test_a_folder_in_the_place_of_a_file(home):
    (home / "glue/RTE/train.tsv").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"RTE/train\.tsv .*folder"):
        TASKS["rte"].examples("train")


def test_a_file_that_may_not_be_read(home, monkeypatch):
    read(home, RTE + GOOD)

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(ConfigError, match=r"RTE/train\.tsv .*Permission denied"):
        TASKS["rte"].examples("train")


FAULTY_JSON = {
    "broken": ('{"text": "A.", "label": 1', r"line 2: .*JSON"),
    "a table": ("A.\t1", r"line 2: .*JSON.*object with text, label"),
    "a list": ('["A.", 1]', r"line 2: .*JSON.*object.*\[\"A"),
    "brackets without end": ("[" * 200_000, r"line 2: .*JSON"),
    "no label": ('{"text": "A.", "rating": 3}', r"line 2: .*label.*text, rating"),
    "a key twice": ('{"text": "A.", "label": 1, "text": "B."}', r"line 2: .*JSON.*'text'.*twice"),
    "a label that is true": ('{"text": "A.", "label": true}', r"line 2: label .*true"),
    "a label of no class": ('{"text": "A.", "label": -1}', r"line 2: .*label.*'-1'"),
    "a text that is a number": ('{"text": 5, "label": 1}', r"line 2: text .*5"),
    "a text that is empty": ('{"text": " \\n", "label": 1}', r"line 2: .*empty"),
    "a NUL": ('{"text": "A\\u0000", "label": 1}', r"line 2: .*NUL"),
    "half a sign": ('{"text": "A\\ud800", "label": 1}', r"line 2: .*surrogate"),
    "an empty line": ("", r"line 2: .*empty"),
}


@pytest.mark.parametrize("name", FAULTY_JSON)
def test_a_bad_object_is_refused_by_line(home, name):
    text, message = FAULTY_JSON[name]
    good = [json.dumps({"text": f"Text {n}.", "label": n % 2}) for n in range(2)]
    path = home / "imdb/train.jsonl"
    path.parent.mkdir()
    path.write_text("\n".join([good[0], text, good[1], ""]), encoding="utf-8")
    said = []
    for split in ("train", "dev"):  # of a split of our own; what cannot be read belongs to both sides
        try:
            TASKS["imdb"].examples(split)
        except ConfigError as error:
            said.append(str(error))
    assert said
    for error in said:
        assert re.search(rf"imdb/train\.jsonl, {message}", error)
