"""``finetune --from`` on a checkpoint that transformers saved: every knob trains or is refused, and nothing is left."""

import json

import pytest
from transformers import AutoModel, AutoTokenizer, BertConfig, BertForMaskedLM
from typer.testing import CliRunner

from ablations.commands.cli import app
from lightning_modules.tasks import TASKS, pins
from lightning_modules.training.callbacks import Diverged
from tests.depth import some
from tests.toy import toy_task

KNOBS = {"max_length": 16, "batch_size": 8, "epochs": 2, "optimizer.peak_lr": 1e-2, "precision": "fp32"}
WORKING = [  # knobs, and the parents that must be made for them
    ({}, []),
    ({"from_scratch": True}, []),
    ({"layers_transferred": 1}, []),
    ({"features.layers": "last", "features.bilstm_size": 8}, []),
    ({"bilstm_layers": 1}, []),
    ({"layout": "extract"}, []),
    ({"freezing": "gradual"}, []),
    ({"reader": "mean", "pooler": False}, []),
    ({"first": "other"}, ["start"]),
    ({"head_pruning.share": 0.5}, ["start"]),
    ({"quantization": "int8"}, ["start"]),
    ({"weight_pruning.share": 0.5}, ["mask"]),
    ({"weight_pruning.share": 0.5, "weight_pruning.mask_from": "pretraining"}, []),
    ({"weight_pruning.share": 0.5, "weight_pruning.mask_from": "other"}, ["mask"]),
    ({"weight_pruning.share": 0.5, "weight_pruning.weights": "kept"}, ["start", "mask"]),
    ({"weight_pruning.share": 0.5, "weight_pruning.weights": "redrawn"}, ["mask"]),
    ({"weight_pruning.share": 0.5, "weight_pruning.rounds": 2}, ["mask"]),
    ({"weight_pruning.share": 0.5, "quantization": "int8"}, ["start"]),
    ({"distillation.weight": 0.5}, ["teacher"]),
    ({"distillation.teacher": "{seed: 5, task: other, finetuning.epochs: 1}"}, ["teacher"]),
    ({"distillation.weight": 0.5, "first": "other", "from_scratch": False}, ["start", "teacher"]),
    ({"distillation.unlabelled": "other"}, ["teacher"]),
]  # fmt: skip
REFUSED = [
    ({"weight_pruning.share": 0.5, "weight_pruning.rewind_to": 2}, "finetuning.weight_pruning.rewind_to: "),
    ({"weight_pruning.share": 0.5, "weight_pruning.mask_from": "rtee"}, "Did you mean 'rte'?"),
    ({"distillation.teacher": "{model.num_layers: 2}"}, "finetuning.distillation.teacher.model.num_layers: "),
    ({"distillation.teacher": "{training.stop_after: 2}"}, "finetuning.distillation.teacher.training.stop_after: "),
    ({"distillation.teacher": "{finetuning.epoch: 2}"}, "finetuning.distillation.teacher.finetuning.epoch: "),
    ({"distillation.teacher": "{task: rtee}"}, "finetuning.distillation.teacher.task: "),
    ({"distillation.unlabelled": "nowhere"}, "nowhere"),
    ({"first": "ohter"}, "Did you mean 'other'?"),
    ({"first": "rte"}, "rte"),  # whose data are not here
    ({"features.layers": "concat_last_four"}, "finetuning.features.layers concat_last_four takes 4 layers"),
    ({"from_scratch": True, "word_vectors.dimensions": 8}, "finetuning"),
    ({"features.vectors.dimensions": 8}, "finetuning"),
    ({"window": 8}, "finetuning.window: "),
    ({"auxiliary_lm": 0.5}, "finetuning.auxiliary_lm: "),
    ({"head_pruning.share": 0.01}, "finetuning.head_pruning.share: "),
    ({"max_length": 64}, "model.max_positions 24"),
]  # fmt: skip
UNSAVED = [
    {"features.layers": "last"}, {"bilstm_layers": 1}, {"layout": "extract"}, {"quantization": "int8"},
]  # fmt: skip


@pytest.fixture
def finetune(monkeypatch, tmp_path):
    """Fine-tunes a tiny BERT in a folder of its own, which is all that a command may write to."""
    for name in ("toy", "other"):
        monkeypatch.setitem(TASKS, name, toy_task(name))
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number:02d}" for number in range(59))]
    config = BertConfig(vocab_size=len(words), hidden_size=16, num_hidden_layers=2, num_attention_heads=4)
    config.update({"intermediate_size": 32, "max_position_embeddings": 24})
    BertForMaskedLM(config).save_pretrained(tmp_path / "bert")
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(words))
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")

    def run(knobs, *words, source=tmp_path / "bert", task="toy"):
        given = [word for knob, value in {**KNOBS, **knobs}.items() for word in ("--set", f"finetuning.{knob}={value}")]
        asked = ["finetune", "--from", source, "--task", task, *given, *words, "--format", "json"]
        return CliRunner().invoke(app, [str(word) for word in asked])

    return run


@pytest.fixture
def home(tmp_path):
    return lambda: sorted(str(path.relative_to(tmp_path / "home")) for path in (tmp_path / "home").rglob("*"))


def test_every_knob_trains_after_its_parents(finetune, home):
    wrong = {}
    for knobs, parents in (tried := some(WORKING, 4)):
        done = finetune(knobs)
        if done.exit_code:
            wrong[str(knobs)] = done.output + done.stderr + repr(done.exception)
            continue
        result = json.loads(done.stdout)
        if list(result.get("parents", ())) != parents or not 0 <= result["metrics"]["toy.accuracy"] <= 1:
            wrong[str(knobs)] = result
    assert not wrong
    assert all(path.endswith(".json") for path in home()[1:]), "nothing but results is left"
    assert len(home()) == 1 + len(tried)


def test_what_a_checkpoint_has_not_is_refused_by_name_before_anything_trains(finetune, home, monkeypatch):
    monkeypatch.setattr("lightning_modules.finetuning.run.finetune", None)
    wrong = {}
    for knobs, hint in REFUSED:
        done = finetune(knobs)
        if done.exit_code != 2 or hint not in " ".join(done.stderr.split()) or home():
            wrong[str(knobs)] = done.output + done.stderr + repr(done.exception), home()
    assert not wrong


def test_a_failure_leaves_nothing(finetune, home, monkeypatch, tmp_path):
    from lightning_modules.finetuning import run

    usual, calls = run.finetune, []

    def broken(*given, **named):
        calls.append(given)
        if len(calls) == 2:
            raise Diverged(3)
        return usual(*given, **named)

    monkeypatch.setattr(run, "finetune", broken)
    done = finetune({"first": "other"}, "--save", tmp_path / "home" / "a" / "saved")
    assert done.exit_code == 2
    assert "not finite at step 3" in done.stderr
    assert not home()


def test_an_interrupted_command_goes_on_where_it_was(finetune, home, monkeypatch):
    from lightning_modules.finetuning import run

    usual, tasks = run.finetune, []

    def broken(made, *given, **named):
        tasks.append(made.task)
        if len(tasks) == 2:
            raise KeyboardInterrupt
        return usual(made, *given, **named)

    monkeypatch.setattr(run, "finetune", broken)
    assert finetune({"first": "other"}).exit_code == 130
    done = finetune({"first": "other"})
    assert done.exit_code == 0, done.stderr
    assert tasks == ["other", "toy", "toy"]
    assert len(home()) == 2


class TestSave:
    def test_what_is_saved_is_a_first_task(self, finetune, tmp_path):
        """Its encoder, pooler and tokenizer: a fine-tuning that goes on from it is the one with ``first``."""
        done = finetune({}, "--save", tmp_path / "saved", task="other")
        assert done.exit_code == 0, done.stderr
        after = finetune({}, source=tmp_path / "saved")
        assert after.exit_code == 0, after.stderr
        at_once, then = (json.loads(done.stdout)["metrics"] for done in (finetune({"first": "other"}), after))
        assert then == at_once
        assert AutoModel.from_pretrained(tmp_path / "saved").pooler is not None
        tokenizers = [AutoTokenizer.from_pretrained(tmp_path / name) for name in ("bert", "saved")]
        assert tokenizers[0]("w01 w30").input_ids == tokenizers[1]("w01 w30").input_ids

    def test_removed_heads(self, finetune, tmp_path):
        done = finetune({"head_pruning.share": 0.5}, "--save", tmp_path / "saved")
        assert done.exit_code == 0, done.stderr
        assert finetune({}, source=tmp_path / "saved").exit_code == 0

    def test_what_is_refused(self, finetune, home, tmp_path):
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "mine.txt").write_text("mine")
        wrong = {}
        asked = [(knobs, "new") for knobs in UNSAVED] + [({}, tmp_path / "full"), ({}, "evaluations"), ({}, ".")]
        for knobs, folder in asked:
            done = finetune(knobs, "--save", folder)
            if done.exit_code != 2 or "--save: " not in done.stderr or home():
                wrong[str(knobs), str(folder)] = done.output + done.stderr + repr(done.exception), home()
        assert not wrong
        assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]
