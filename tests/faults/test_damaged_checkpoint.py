"""A checkpoint that is damaged is set aside: the training starts anew and ends in the same numbers."""

import pytest
import torch

from lightning_modules.finetuning.run import FinetuningRun, finetune
from lightning_modules.pretraining import fit
from lightning_modules.tasks import TASKS, FineTuning, pins
from lightning_modules.training.checkpoint import AtomicCheckpoints, resumable
from lightning_modules.training.execution import Execution
from lightning_modules.training.recorder import CHECKPOINT, Interrupted
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


def test_a_sound_one_is_gone_on_from(tiny, tmp_path):
    with pytest.raises(Interrupted):
        fit(tiny, 0, tmp_path, stop=stopped_at(7))
    seen = []
    fit(tiny, 0, tmp_path, on_progress=lambda progress: seen.append(progress.step))
    assert min(seen) > 7
    assert not (tmp_path / "unusable.ckpt").exists()


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
    monkeypatch.setattr(pins, "pinned", dict)
    tuning = FinetuningRun(
        tiny, "toy", FineTuning().but(epochs=1, batch_size=7, max_length=16, precision="fp32"), 0, None
    )
    straight = measured(finetune(tuning, tmp_path / "straight"))
    with pytest.raises(Interrupted):
        finetune(tuning, tmp_path / "resumed", stop=stopped_at(3))
    flipped(tmp_path / "resumed" / CHECKPOINT)
    assert measured(finetune(tuning, tmp_path / "resumed")) == straight
    assert (tmp_path / "resumed" / "unusable.ckpt").exists()
