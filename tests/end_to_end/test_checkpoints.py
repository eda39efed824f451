"""The commands ``export`` and ``evaluate``: out of a run, into transformers, and back in as anybody's checkpoint."""

import json
import math

import pytest
import torch
from pytorch_lightning import Trainer
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core.store import Records
from ablations.running import worker
from ablations.schema.run import Run
from lightning_modules import interop
from lightning_modules.data import fingerprints
from lightning_modules.finetuning.run import FinetuningRun
from lightning_modules.pretraining import fit
from lightning_modules.tasks import TASKS, FineTuning, pins
from lightning_modules.training.callbacks import Diverged, Interrupted
from lightning_modules.training.weights import keep_weights
from tests.toy import toy_task


@pytest.fixture
def command():
    """Runs a command in this process and returns its result."""
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def kept(tiny, tmp_path):
    """Makes the record of a pretraining of ``tiny`` with some knobs changed, and what it left in the cache."""
    records = Records(tmp_path / "results")

    def keep(trained=True, outcome="done", **changes):
        run = Run.pretraining(tiny.but(**changes), 0, fingerprints(tiny.data))
        if trained:
            fit(run.system, 0, records.work_folder(run.id))
        worker.keep(run, records, {"outcome": outcome}, "2026-01-01T00:00:00+00:00", 1)
        return run, records

    return keep


@pytest.fixture
def exported(kept, command, tmp_path):
    """A folder that was exported, and the run it came from."""
    run, records = kept(**{"training.steps": 3, "model.max_positions": 24})
    done = command("export", run.id[:9], tmp_path / "out", "--results-dir", records.folder)
    assert done.exit_code == 0, done.output
    return tmp_path / "out", run, done.output


def said(result):
    return " ".join((result.output + result.stderr).split())


def test_transformers_loads_what_was_exported(exported):
    folder, run, output = exported
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"
    }  # fmt: skip
    assert "note: the masked-LM head's LayerNorm adds 1e-12 here and 1e-05 there" in " ".join(output.split())
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        logits = model(**tokenizer("w01 w10 [MASK] w20", return_tensors="pt")).logits
    assert logits.isfinite().all()
    assert logits.shape[-1] == run.system.data.tokenizer.vocab_size


def test_a_run_that_went_out_and_came_back_is_the_same_model(kept, command, tmp_path):
    """The logits of transformers are those of the run, and so is the held-out loss of what is read back."""
    run, records = kept(**{"training.steps": 12, "model.max_positions": 24, "objectives.mlm.norm_eps": 1e-5})
    assert command("export", run.id, tmp_path / "out", "--results-dir", records.folder).exit_code == 0
    ours = run.system.build(0)
    ours.load_state_dict(load_file(records.work_folder(run.id) / "weights.safetensors"))
    back = interop.read(tmp_path / "out").build()
    theirs = AutoModelForMaskedLM.from_pretrained(tmp_path / "out").eval()

    data = run.system.data_module(0)
    losses = []
    for module in (ours, back):
        trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False)
        trainer.validate(module, data.val_dataloader(), verbose=False)
        losses.append(trainer.callback_metrics["heldout.loss"].item())
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    assert losses[0] < math.log(run.system.data.tokenizer.vocab_size), "it has learnt something"

    example = next(iter(data.val_dataloader()))
    with torch.no_grad():
        encoded = ours.eval()(example)
        real = example.inputs.real
        logits = ours.heads["mlm"]["vocabulary"](encoded.last[real], encoded)
        expected = theirs(example.inputs.ids, attention_mask=real.long()).logits
    assert (logits - expected[real]).abs().max() <= 1e-5


def fine_tuned(pretrained, records, module=None, task="rte", **settings):
    """The record of a fine-tuning of a pretraining, and the weights that it left, if any."""
    run = Run.finetuning_of(pretrained, task, "0" * 64, FineTuning().but(**settings))
    if module is not None:
        records.work_folder(run.id).mkdir(parents=True)
        keep_weights(module, records.work_folder(run.id))
    worker.keep(run, records, {"outcome": "done"}, "2026-01-01T00:00:00+00:00", 1)
    return run


ASKED = {
    "rte": ["w01 w02", "w03 w04 w05"],
    "stsb": ["w01 w02", "w03 w04 w05"],
    "conll2003": ["w01 w02 w03"],
    "squad1": ["w01 w02", "--passage", "w03 w04 w05 w06"],
    "copa": ["w01", "w02 w03", "w04"],
}


@torch.no_grad()
def test_a_fine_tuning_answers_alike_here_as_a_folder_and_in_transformers(kept, command, tmp_path):
    pretrained, records = kept(trained=False, **{"model.max_positions": 24})
    found = {}
    torch.manual_seed(0)
    for task, words in ASKED.items():
        run = fine_tuned(pretrained, records, task=task)
        made = FinetuningRun(run.system, task, run.finetuning, 0, None)
        networks = nn.ModuleDict(dict(zip(("backbone", "head"), made.networks(), strict=True)))
        for parameter in networks.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        records.work_folder(run.id).mkdir(parents=True)
        keep_weights(networks, records.work_folder(run.id))
        out, store = tmp_path / task, ("--results-dir", records.folder)
        done = command("export", run.id, out, *store)
        assert done.exit_code == 0, said(done)
        answers = [command("ask", source, *words, *store, "--format", "json") for source in (run.id, out)]
        assert [answer.exit_code for answer in answers] == [0, 0], [said(answer) for answer in answers]
        found[task], theirs = (json.loads(answer.stdout) for answer in answers)
        assert all(
            mine[name] == pytest.approx(row[name])
            for mine, row in zip(found[task], theirs, strict=True)
            for name in row
        )
    pair = AutoTokenizer.from_pretrained(tmp_path / "rte")(*ASKED["rte"], return_tensors="pt")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "rte").eval()
    chances = model(**pair).logits.softmax(1)[0]
    assert found["rte"][0]["probability"] == pytest.approx(chances.max().item(), abs=1e-5)
    assert found["rte"][0]["answer"] == model.config.id2label[chances.argmax().item()]
    assert [row["word"] for row in found["conll2003"]] == ["w01", "w02", "w03"]
    assert found["squad1"][0]["answer"] in ASKED["squad1"][2], "SQuAD 1.1 always has an answer"
    assert found["copa"][0]["answer"] in ASKED["copa"][1:]
    wrong = command("ask", tmp_path / "rte", "w01", "w02", "w03", "--results-dir", records.folder)
    assert (wrong.exit_code, "texts at a time" in said(wrong)) == (2, True)


def test_an_exported_run_is_evaluated_as_anybodys_checkpoint(exported, command, monkeypatch, tmp_path):
    """It has learnt the toy task as our own fine-tunings do; the result lies where the user wants it."""
    folder, run, _ = exported
    timed = json.loads(command("benchmark", "inference", folder, "--batches", "2", "--format", "json").stdout)
    assert [row["batch"] for row in timed] == [2]
    monkeypatch.setitem(TASKS, "toy", toy_task("toy"))
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    options = ["finetune", "--from", folder, "--task", "toy", "--seed", 3, "--output", tmp_path / "found"]
    knobs = {"max_length": 16, "batch_size": 7, "epochs": 3, "optimizer.peak_lr": 1e-2, "precision": "fp32"}
    options += [word for knob, value in knobs.items() for word in ("--set", f"finetuning.{knob}={value}")]
    done = command(*options)
    assert done.exit_code == 0, done.output
    assert "toy.accuracy" in done.output
    assert "majority" in done.output
    (file,) = (tmp_path / "found").iterdir()
    result = json.loads(file.read_text())
    assert result["name"] == file.stem
    assert file.stem.startswith("out-toy-3-")
    assert result["metrics"]["toy.accuracy"] > 0.8
    assert result["finetuning"]["epochs"] == 3
    assert result["seed"] == 3
    assert [path.stem for path in Records(tmp_path / "results").files()] == [run.id], "it is no record"
    again = json.loads(command(*options, "--format", "json").stdout)
    assert {**again["metrics"]} == result["metrics"]


@pytest.mark.parametrize(
    ("task", "knob", "words"),
    [
        ("squad1", "finetuning.layout=extract", "squad1 is answered from single positions"),
        ("rte", "finetuning.auxiliary_lm=0.5", "was pretrained by mlm, not to predict next tokens"),
        ("rte", "finetuning.layers_transferred=3", "3 is more than the 1 layers of the model. Give 0 to 1"),
    ],
)
def test_what_does_not_fit_task_or_model(exported, command, tmp_path, task, knob, words):
    asked = ("--task", task, "--set", "finetuning.max_length=24", "--set", knob)
    done = command("finetune", "--from", exported[0], *asked, "--output", tmp_path / "found")
    assert done.exit_code == 2
    assert words in said(done)
    assert not (tmp_path / "found").exists()


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [(Interrupted(), 130, "interrupted"), (Diverged(7), 2, "not finite at step 7. A smaller")],
)
def test_a_training_that_does_not_end_well(exported, command, monkeypatch, tmp_path, error, code, message):
    def broken(*_, **__):
        raise error

    monkeypatch.setitem(TASKS, "toy", toy_task("toy"))
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    monkeypatch.setattr("lightning_modules.finetuning.run.finetune", broken)
    options = ["--task", "toy", "--set", "finetuning.max_length=16", "--output", tmp_path / "found"]
    done = command("finetune", "--from", exported[0], *options)
    assert (done.exit_code, list((tmp_path / "found").glob("*.json"))) == (code, [])
    assert message in said(done)


class TestExportsThatCannotBe:
    def test_no_weights_any_more(self, kept, command, tmp_path):
        run, records = kept(trained=False)
        done = command("export", run.id, tmp_path / "out", "--results-dir", records.folder)
        assert done.exit_code == 2
        assert "--results-dir OTHER" in said(done)
        assert not (tmp_path / "out").exists()

    def test_a_run_that_diverged(self, kept, command, tmp_path):
        run, records = kept(trained=False, outcome="diverged")
        done = command("export", run.id, tmp_path / "out", "--results-dir", records.folder)
        assert "ended as diverged and left no weights" in said(done)

    def test_a_fine_tuning_with_weights_that_transformers_has_not(self, kept, command, tmp_path):
        pretrained, records = kept(trained=False)
        run = fine_tuned(pretrained, records, **{"features.layers": "last"})
        done = command("export", run.id, tmp_path / "out", "--results-dir", records.folder)
        assert done.exit_code == 2
        assert "finetuning.features gives it weights that transformers has not" in said(done)
        assert pretrained.id in said(done)
