"""Lines end at a line feed, before which carriage returns may be; no other character ends one, whatever the reader."""

import json

from ablations.inspection.questions import read as questions
from lightning_modules.data.corpora import own_text
from lightning_modules.data.corpora.json_lines import documents
from lightning_modules.data.corpora.parallel import in_files, tables
from lightning_modules.files import read_text
from lightning_modules.tasks import TASKS

ENDS = ("\n", "\r\n", "\r\r\n")
OTHERS = ("\r", "\v", "\f", "\x1c", "\x85", "\u2028")  # at which Python's readers or `str.splitlines` end a line


def test_every_reader_of_text_cuts_lines_at_line_feeds_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATIONS_DATA", str(tmp_path))
    (tmp_path / "wnut17").mkdir()
    wrong = []
    for end in ENDS:
        for mark in OTHERS:

            def put(name, *lines, end=end):
                (tmp_path / name).write_bytes("".join(f"{line}{end}" for line in lines).encode())
                return str(tmp_path / name)

            odd, space = f"one{mark}two", mark * (mark == "\r")  # of these only \r may be between the parts of JSON
            put("t.en", odd, "three")
            put("t.de", "eins", f"zwei{mark}drei")
            corpora = {
                "text": own_text.text_documents(put("t.txt", odd, "three", "", "four")),
                "lines": in_files(str(tmp_path / "t"), ("en", "de")),
                "tsv": tables(put("t.tsv", "de\ten", f"eins\t{odd}", f"zwei{mark}drei\tthree"), ("en", "de")),
                "jsonl": documents("a:" + put("t.jsonl", f'{{"a":{space}{json.dumps(odd)}}}', '{"a": "three\\nfour"}')),
            }
            pairs = [["one two", "eins"], ["three", "zwei drei"]]
            expected = {
                "text": [["one two", "three"], ["four"]],
                "lines": pairs,
                "tsv": pairs,
                "jsonl": [["one two"], ["three", "four"]],
            }
            put("wnut17/wnut17train.conll", f"{odd}\tO", "three\tO", "", "four\tO")
            put("q.jsonl", f'{{"prompt":{space}{json.dumps(odd)}, "options": ["a", "b"]}}')
            found = {name: list(read) for name, read in corpora.items()} | {
                "columns": [sentence.words for sentence in TASKS["wnut17"].rows("train")],
                "questions": [question.prompt for question in questions(tmp_path / "q.jsonl")],
                "text of a file": read_text(tmp_path / "t.en").split("\n")[0].rstrip("\r"),
            }
            expected |= {"columns": [(odd, "three"), ("four",)], "questions": [odd], "text of a file": odd}
            wrong += [(name, end, mark, got) for name, got in found.items() if got != expected[name]]
    assert not wrong
