"""``ablations data``: what is listed with data at hand and without, and what reading them finds wrong."""

import dataclasses
import json

import pytest
from typer.testing import CliRunner

from ablations.commands import data_sets
from ablations.commands.cli import app
from lightning_modules.data import CORPORA
from lightning_modules.data.corpora.sources import Origin
from lightning_modules.tasks import TASKS, Task, pins
from lightning_modules.tasks.shapes.tagging import Sentence, Tagging
from lightning_modules.tasks.shapes.texts import Texts
from lightning_modules.zero_shot.sources import SOURCES

HEAD = "index\tsentence1\tsentence2\tlabel\n"


def call(*words):
    ended = CliRunner().invoke(app, ["data", *words], env={"COLUMNS": "200"})
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended.exit_code, ended.output


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATIONS_DATA", str(tmp_path))
    return tmp_path


def rte():
    (found,) = data_sets.items(["rte"])
    return found


def write_rte(home, train=3, dev=2, first="dev", labels=("entailment", "not_entailment")):
    """Examples of RTE with labels in turn; those of dev start with ``first``."""
    for split, count, word in (("train", train, "train"), ("dev", dev, first)):
        path = home / f"glue/RTE/{split}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD + "".join(f"{n}\t{word} {n}.\tB.\t{labels[n % len(labels)]}\n" for n in range(count)))


class TestListing:
    def test_every_corpus_and_task_is_there_without_any_data(self):
        code, text = call("--format", "names")
        assert code == 0
        assert set(text.split()) == {*CORPORA, *TASKS, *SOURCES}
        found = {item["name"]: item for item in json.loads(call("--format", "json")[1])}
        assert found["rte"]["found"] == found["mnli"]["found"] == "nowhere"
        assert (found["rte"]["train"], found["rte"]["pinned"]) == (2490, True)
        assert (found["mnli"]["train"], found["mnli"]["fingerprint"]) == (392702, "")
        assert (found["lambada"]["test"], found["lambada"]["pinned"]) == (5153, True)
        assert "glue/RTE/train.tsv" in found["rte"]["how"]
        assert all(item["licence"] for item in found.values())

    def test_what_has_no_pin_is_measured_from_the_folder(self, home, monkeypatch):
        write_rte(home)
        monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
        found = rte()
        assert (found.found, found.sizes, found.pinned, found.how) == ("folder", (3, 2), False, "")
        assert found.row()["fingerprint"] == f"{pins.fingerprint('rte')[:8]} measured"

    def test_the_hub_is_asked_only_when_told_to(self, monkeypatch):
        asked = []
        monkeypatch.setattr(Origin, "sizes_on_hub", lambda origin: asked.append(str(origin.hub)) or {})
        assert not [item for item in data_sets.items() if item.found == "hub"]
        assert asked == []
        assert {item.name for item in data_sets.items(hub=True) if item.found == "hub"} >= {"cola", "mnli", "snli"}
        assert "nyu-mll/glue (cola)" in asked


class TestVerify:
    def test_absent_data_are_wrong_only_if_they_were_named(self, monkeypatch):
        monkeypatch.setattr(data_sets, "CORPORA", {})
        monkeypatch.setattr(data_sets, "SOURCES", {})
        monkeypatch.setattr(data_sets, "TASKS", {name: TASKS[name] for name in ("rte", "cola")})
        code, text = call("verify")
        assert (code, text.count("absent ")) == (0, 2)
        assert "0 of 2 data sets are available. Wrong: 0" in text
        code, text = call("verify", "rte")
        assert code == 1
        assert "cannot be read" in text

    def test_fewer_examples_than_published_and_other_text_than_pinned(self, home):
        write_rte(home)
        code, text = call("verify", "rte")
        assert code == 1
        assert "train is partial: it has 3 examples instead of 2,490" in text
        assert "dev is partial: it has 2 examples instead of 277" in text
        assert f"instead of {pins.TASK_PINS.pinned()['rte']['dev'].sha256[:12]} and 277" in text

    def test_a_text_that_models_are_asked_is_compared_with_its_pin(self, home):
        file = home / "lambada/lambada_test.jsonl"
        file.parent.mkdir()
        file.write_text('{"text": "He called the dog"}\n')
        code, text = call("verify", "lambada")
        assert code == 1
        assert "the texts of 'lambada' are not the pinned ones" in text

    def test_what_is_as_pinned_and_published_is_fine(self, home, monkeypatch):
        write_rte(home, 2490, 277)
        wanted = pins.measured(TASKS["rte"])
        monkeypatch.setattr(pins.Pins, "pinned", lambda _: {"rte": wanted})
        assert call("verify", "rte") == (
            0,
            "ok      rte: 2,490 + 277 examples\n1 of 1 data sets are available. Wrong: 0\n",
        )

    @pytest.mark.parametrize(
        ("train", "dev", "labels", "wrong"),
        [
            (40, 20, ("entailment", "not_entailment"), []),
            (40, 20, ("entailment",), ["train has one label alone", "dev has one label alone"]),
            (2, 2, ("entailment", "not_entailment"), ["train has too few examples", "dev has too few examples"]),
            (40, 2, ("entailment", "not_entailment"), ["dev has too few examples"]),
        ],
    )
    def test_examples_that_can_teach_or_measure_nothing(self, home, monkeypatch, train, dev, labels, wrong):
        """A set of the user's own: no published size and no pin."""
        write_rte(home, train, dev, labels=labels)
        monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
        monkeypatch.setitem(TASKS, "rte", dataclasses.replace(TASKS["rte"], official=None))
        code, text = call("verify", "rte", "--format", "json")
        (found,) = json.loads(text)["data"]
        assert (code, found["state"]) == ((1, "wrong") if wrong else (0, "ok"))
        assert len(found["wrong"]) == len(wrong)
        assert all(told.startswith(expected) for told, expected in zip(found["wrong"], wrong, strict=True))

    def test_a_label_that_no_training_example_has_is_noted_by_name(self, home, monkeypatch):
        write_rte(home, 40, 20)
        monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})

        def notes(*labels):
            shape = Texts(("entailment", "not_entailment", *labels), pair=True)
            monkeypatch.setitem(TASKS, "rte", dataclasses.replace(TASKS["rte"], official=None, shape=shape))
            code, text = call("verify", "rte", "--format", "json")
            (found,) = json.loads(text)["data"]
            assert (code, found["state"]) == (0, "ok")
            return [note for note in found["notes"] if "label" in note]

        assert notes() == []
        (note,) = notes("undecided")
        assert "undecided" in note

    def test_a_tag_that_no_training_sentence_has_is_noted_by_name(self, monkeypatch):
        rows = [Sentence((f"w{n}", "sleeps"), ("B-PER", "O"), n) for n in range(40)]
        tagging = Tagging(types=("PER", "ORG"))
        task = Task("names", "Names?", "here", tagging, ("entity_f1",), lambda split: iter(rows[split == "dev" :: 2]))
        monkeypatch.setitem(TASKS, "names", task)
        monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
        code, text = call("verify", "names")
        assert code == 0
        assert [tag for tag in ("O", "B-PER", "I-PER", "B-ORG", "I-ORG") if f"'{tag}'" in text] == [
            "I-PER",
            "B-ORG",
            "I-ORG",
        ]

    def test_dev_examples_among_the_training_examples(self, home, monkeypatch):
        write_rte(home, 2490, 277, first="train")
        monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
        code, text = call("verify", "rte")
        assert code == 1
        assert "every dev example is also a training example" in text
        with open(home / "glue/RTE/dev.tsv", "r+") as file:
            lines = file.read().replace("train 0.", "dev 0.", 1)
            file.seek(0)
            file.write(lines)
            file.truncate()
        code, text = call("verify", "rte")
        assert code == 0
        assert "276 of 277 dev examples are also training examples" in text
        assert f"has no pin to compare with. Its fingerprint is {pins.fingerprint('rte')[:12]}" in text

    def test_a_part_alone_is_partial(self, home):
        write_rte(home)
        (home / "glue/RTE/train.tsv").unlink()
        assert "partial, dev only" in call("verify", "rte")[1]

    def test_a_corpus_is_read_and_compared(self, home):
        folder = home / "pretrain/english_novels_100"
        folder.mkdir(parents=True)
        for n in range(21):
            (folder / f"{n:02}.txt").write_text("A night of wind and rain. The wind fell.")
        code, text = call("verify", "novels")
        assert code == 1
        assert "wrong   novels: 20 + 1 documents, 189 words" in text
        assert "heldout differs from its pin" in text
