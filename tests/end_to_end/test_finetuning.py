"""Fine-tuning as a whole: it learns, repeats, resumes to the bit, stops when it diverges, and works offline."""

import dataclasses
import math

import pytest
import torch

from lightning_modules.data import DataMismatch
from lightning_modules.finetuning.run import FinetuningRun, finetune
from lightning_modules.tasks import TASKS, FineTuning, pins
from lightning_modules.training.callbacks import CHECKPOINT, Diverged, Interrupted, Progress
from tests.depth import some
from tests.toy import COUNTS, toy_task

SETTINGS = FineTuning().but(
    **{"epochs": 3, "batch_size": 7, "max_length": 16, "precision": "fp32", "optimizer.peak_lr": 1e-2}
)
STEPS = 3 * -(-COUNTS["train"] // 7)


@pytest.fixture
def tuning(tiny, monkeypatch):
    """A fine-tuning of random weights, with dropout, on a task that is learnt in a second."""
    monkeypatch.setitem(TASKS, "toy", toy_task("toy"))
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    return FinetuningRun(tiny, "toy", SETTINGS, 0, None)


@pytest.fixture(scope="module")
def straight():
    """What an undisturbed fine-tuning gave; filled by the first test that needs it."""
    return {}


def _stop_after(steps):
    asked = 0

    def stop():
        nonlocal asked
        asked += 1
        return asked == steps

    return stop


def test_what_it_leaves(tuning, tmp_path):
    seen = []
    fitted = finetune(tuning, tmp_path, on_progress=seen.append)
    data = tuning.data
    assert set(fitted.metrics) == {
        *(f"toy.{name}" for name in ("accuracy", "f1", "all_equal", "dev_loss", "train_loss")),
        *(f"toy.accuracy.{name}" for name in ("majority", "tfidf")),
    }
    assert fitted.metrics["toy.accuracy"] > 0.8
    assert fitted.curve["step"] == [STEPS / 3, 2 * STEPS / 3, STEPS]
    assert fitted.curve["tokens"] == [n * data.train.sizes[:, 0].sum() for n in (1, 2, 3)]
    assert {name: values[-1] for name, values in fitted.curve.items() if name in fitted.metrics} == {
        name: value
        for name, value in fitted.metrics.items()
        if not name.startswith("toy.accuracy.") and name != "toy.all_equal"  # an outcome, known at the end
    }
    assert fitted.cost["tokens"] == fitted.curve["tokens"][-1]
    assert fitted.cost["parameters"] == sum(p.numel() for p in tuning.build().parameters())
    rows = data.train_dataloader().shapes
    least = 3.0 * sum(tuning.system.model.flops_per_sequence(int(n)) for n in data.train.sizes[:, 0]) * 3
    assert least < fitted.cost["flops"] < 1.5 * least
    assert rows[:, 0].sum() == 3 * COUNTS["train"]
    assert (seen[-1].step, seen[-1].steps) == (STEPS, STEPS)
    assert len(seen) == STEPS


def test_a_run_repeats_and_a_seed_matters(tuning, tmp_path):
    other = FinetuningRun(tuning.system, "toy", SETTINGS, 1, None)
    one, again, third = (finetune(t, tmp_path / str(n)) for n, t in enumerate((tuning, tuning, other)))
    assert (one.metrics, one.curve) == (again.metrics, again.curve)
    assert one.metrics["toy.dev_loss"] != third.metrics["toy.dev_loss"]


@pytest.mark.parametrize("stop", some([STEPS // 3, 1, STEPS // 3 - 1, STEPS, STEPS // 3 + 4], 2))
def test_resuming_is_bitwise_equal(tuning, tmp_path, stop, straight):
    """Stopped after any step, at an epoch's end too, with a fresh process's generators, all comes out the same."""
    if not straight:
        straight[0] = finetune(tuning, tmp_path / "straight")
    with pytest.raises(Interrupted):
        finetune(tuning, tmp_path / "run", stop=_stop_after(stop))
    assert (tmp_path / "run" / CHECKPOINT).exists()
    torch.manual_seed(999)
    made: list[Progress] = []
    resumed = finetune(tuning, tmp_path / "run", on_progress=made.append)
    assert [one.step for one in made] == list(range(stop + 1, STEPS + 1)), "no step is made twice"
    assert resumed.metrics == straight[0].metrics
    assert resumed.curve == straight[0].curve


def test_divergence_is_noticed(tuning, tmp_path):
    wild = SETTINGS.but(**{"optimizer.peak_lr": 1e30, "clip_norm": 0.0, "schedule.warmup_fraction": 0.0})
    with pytest.raises(Diverged) as caught:
        finetune(FinetuningRun(tuning.system, "toy", wild, 0, None), tmp_path)
    assert 1 <= caught.value.step <= STEPS


@pytest.mark.parametrize("later", [("accuracy",), ("accuracy", "f1", "matthews")], ids=["lost", "got"])
def test_a_resumed_run_gives_no_metric_of_another_row(later, tuning, tmp_path, monkeypatch):
    monkeypatch.setitem(TASKS, "toy", dataclasses.replace(TASKS["toy"], metrics=("accuracy", "f1")))
    with pytest.raises(Interrupted):
        finetune(tuning, tmp_path, stop=_stop_after(STEPS - 2))
    monkeypatch.setitem(TASKS, "toy", dataclasses.replace(TASKS["toy"], metrics=later))
    fitted = finetune(FinetuningRun(tuning.system, "toy", SETTINGS, 0, None), tmp_path)
    assert len({len(values) for values in fitted.curve.values()}) == 1
    assert {"toy.f1", "toy.matthews"} & set(fitted.metrics) == {"toy.f1"} & {f"toy.{name}" for name in later}


def test_bf16_stays_close_to_fp32(tuning, tmp_path):
    half = FinetuningRun(tuning.system, "toy", SETTINGS.but(precision="bf16"), 0, None)
    losses = [finetune(t, tmp_path / t.settings.precision).curve["toy.train_loss"][0] for t in (tuning, half)]
    assert not math.isclose(*losses, rel_tol=1e-7)
    assert math.isclose(*losses, rel_tol=0.05)


def test_other_examples_than_the_pinned_ones_are_refused(tuning, tmp_path, monkeypatch):
    kept = pins.measured(TASKS["toy"])
    changed = {"toy": {**kept, "dev": kept["train"]}}
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: changed)
    with pytest.raises(DataMismatch, match=r"'toy' \(dev\)"):
        finetune(tuning, tmp_path)
