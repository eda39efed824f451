"""A checkpoint that is damaged, or of other data, is set aside: the training ends in the numbers of a straight one."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch

from lightning_modules.finetuning.run import FinetuningRun, finetune
from lightning_modules.pretraining import fit
from lightning_modules.tasks import TASKS, FineTuning, pins
from lightning_modules.training.callbacks import CHECKPOINT, Interrupted
from lightning_modules.training.checkpoint import AtomicCheckpoints, resumable
from lightning_modules.training.execution import Execution
from lightning_modules.training.weights import WEIGHTS
from tests.toy import toy_task


def flipped(path):
    """One bit of the largest tensor, which `torch.load` does not notice."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 64
    path.write_bytes(content)


def of_another_network(path):
    held = torch.load(path, weights_only=True)
    held["state_dict"] = {name: tensor[..., :1] for name, tensor in held["state_dict"].items()}
    torch.save(held, path)


def of_several_devices(path):
    held = torch.load(path, weights_only=True)
    AtomicCheckpoints(Execution(devices=2, strategy="fsdp")).save_checkpoint(held, path)


def a_folder(path):
    path.unlink()
    path.mkdir()


DAMAGES = {
    "garbage": lambda path: path.write_bytes(bytes([255]) * path.stat().st_size),
    "empty": lambda path: path.write_bytes(b""),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "one bit": flipped,
    "another network": of_another_network,
    "several devices": of_several_devices,
    "something else of torch": lambda path: torch.save({"number": torch.ones(3)}, path),
    "a folder": a_folder,
}


def stopped_at(step):
    asked = iter(range(1, 1000))
    return lambda: next(asked) == step


@pytest.fixture(scope="module")
def straight():
    """What undisturbed trainings measured; filled by the first test that needs it."""
    return {}


def measured(fitted):
    return fitted.metrics, fitted.curve


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_pretraining_starts_anew_and_ends_the_same(tiny, tmp_path, straight, capfd, damage):
    if not straight:
        straight[""] = measured(fit(tiny, 0, tmp_path / "straight"))
    folder = tmp_path / "resumed"
    with pytest.raises(Interrupted):
        fit(tiny, 0, folder, stop=stopped_at(7))
    DAMAGES[damage](folder / CHECKPOINT)
    assert measured(fit(tiny, 0, folder)) == straight[""]
    assert (folder / "unusable.ckpt").exists()
    assert "last.ckpt cannot be used" in capfd.readouterr().err


@pytest.mark.parametrize(("made", "usable"), [("ddp", True), ("fsdp", False)])
def test_one_is_of_the_strategy_that_made_it(tiny, tmp_path, capfd, made, usable):
    """FSDP numbers the moments by the order of weights, DDP by that of the optimiser."""
    with pytest.raises(Interrupted):
        fit(tiny, 0, tmp_path, stop=stopped_at(7))
    path = tmp_path / CHECKPOINT
    held = torch.load(path, weights_only=True)
    AtomicCheckpoints(Execution(devices=2, strategy=made)).save_checkpoint(held, path)
    assert resumable(path, tiny.build(0), Execution(devices=2)) == (path if usable else None)
    assert usable or "it is of 2 devices (fsdp), and this training has 2 devices (ddp)" in capfd.readouterr().err


def test_a_fine_tuning_starts_anew_and_ends_the_same(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(TASKS, "toy", toy_task("toy"))
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    tuning = FinetuningRun(
        tiny, "toy", FineTuning().but(epochs=1, batch_size=7, max_length=16, precision="fp32"), 0, None
    )
    straight = measured(finetune(tuning, tmp_path / "straight"))
    with pytest.raises(Interrupted):
        finetune(tuning, tmp_path / "resumed", stop=stopped_at(3))
    flipped(tmp_path / "resumed" / CHECKPOINT)
    assert measured(finetune(tuning, tmp_path / "resumed")) == straight
    assert (tmp_path / "resumed" / "unusable.ckpt").exists()


def test_a_pretraining_on_changed_text_starts_at_step_0(tiny, text_file, tmp_path, capfd):
    text = shutil.copy(text_file, tmp_path / "text.txt")
    system = tiny.but(**{"data.corpora": [f"text:{text}"]})
    with pytest.raises(Interrupted):
        fit(system, 0, tmp_path / "run", stop=stopped_at(7))
    text.write_text(re.sub(r"w(\d\d)", lambda word: f"w{58 - int(word[1]):02d}", text.read_text()))
    assert measured(fit(system, 0, tmp_path / "run")) == measured(fit(system, 0, tmp_path / "straight"))
    assert "last.ckpt cannot be used" in capfd.readouterr().err


@pytest.fixture
def parents(tiny, tmp_path):
    """Weights of two seeds of a training of three steps."""
    short = tiny.but(**{"training.steps": 3})
    for seed in (0, 1):
        fit(short, seed, tmp_path / str(seed))
    return [tmp_path / str(seed) / WEIGHTS for seed in (0, 1)]


def test_a_pretraining_from_other_weights_starts_at_step_0(tiny, tmp_path, parents):
    system = tiny.but(**{"training.start": {"training.steps": 3}})
    with pytest.raises(Interrupted):
        fit(system, 0, tmp_path / "run", start=parents[0], stop=stopped_at(7))
    straight = fit(system, 0, tmp_path / "straight", start=parents[1])
    assert measured(fit(system, 0, tmp_path / "run", start=parents[1])) == measured(straight)


@pytest.mark.parametrize("changed", ["weights", "examples"])
def test_a_fine_tuning_from_other_parts_starts_at_step_0(tiny, tmp_path, monkeypatch, parents, changed):
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    toy = toy_task("toy")
    tasks = [toy, replace(toy, rows=lambda split: reversed([*toy.rows(split)]))]
    settings = FineTuning().but(epochs=1, batch_size=7, max_length=16, precision="fp32")

    def tuned(number, folder, **given):
        monkeypatch.setitem(TASKS, "toy", tasks[number if changed == "examples" else 0])
        start = parents[number if changed == "weights" else 0]
        return finetune(FinetuningRun(tiny, "toy", settings, 0, start), tmp_path / folder, **given)

    with pytest.raises(Interrupted):
        tuned(0, "run", stop=stopped_at(3))
    assert measured(tuned(1, "run")) == measured(tuned(1, "straight"))


def test_nobody_is_advised_to_load_objects(tmp_path, capfd):
    """A file of torch may hold any object, and so run any program when it is loaded; its own message says how."""
    path = tmp_path / CHECKPOINT
    for held in (Path("/"), {"state_dict": {}, "callbacks": Path("/")}):
        torch.save(held, path)
        assert resumable(path, pl.LightningModule()) is None
        said = capfd.readouterr().err
        assert "no checkpoint of this project" in said
        assert not re.search("weights_only|load|trust|Weights only", said.replace("torch.load", "load"))
        assert len(said.splitlines()) == 1
