"""Labelled data sets that are asked: a row may change while a process lives."""

import json

from lightning_modules.tasks import TASKS
from lightning_modules.tasks.shapes.texts import Texts
from lightning_modules.zero_shot.labelled import Verbalised
from tests.own_rows import own


def test_the_examples_are_those_of_the_row_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATIONS_DATA", str(tmp_path))
    lines = [json.dumps({"text": f"text {n}", "label": n % 2}) + "\n" for n in range(60)]
    (tmp_path / "mine.jsonl").write_text("".join(lines))
    asked = Verbalised(name="mine", title="Mine?", source="", task="mine", words=("no", "yes"))
    sizes, prints = [], []
    for share in (0.2, 0.6, 0.2):
        monkeypatch.setitem(
            TASKS, "mine", own("mine", "Mine?", Texts(("no", "yes")), train="mine.jsonl", held_out=share)
        )
        sizes.append((len(asked.questions(None)), asked.counted()[0]))
        prints.append(asked.fingerprint())
    assert all(questions == counted for questions, counted in sizes)
    assert sizes[0] == sizes[2] != sizes[1]
    assert prints[0] == prints[2] != prints[1]
