"""Slanted and one-cycle rates against the formulas of fastai's code, and what the paper's own formula does."""

import math

import pytest
import torch

from lightning_modules.config import ConfigError
from lightning_modules.tasks import FineTuning
from lightning_modules.training.optim import Optimizer, Schedule, scheduled

STEPS = (5, 25, 1000)


def circular(steps, div, cut_div):
    """The rates of ``CircularLR`` for a peak of 1, which divides by 0 in fewer steps than ``cut_div``."""
    cut = steps // cut_div
    shares = [1 - (n - cut) / (steps - cut) if n > cut else n / cut for n in range(steps)]
    return [(1 + share * (div - 1)) / div for share in shares]


def one_cycle(steps, div, final, start, at_start=None, at_peak=None):
    """Rates of ``OneCycleScheduler`` for a peak of 1, or the moments that move between two values."""
    rise = int(steps * start)
    low, high, end = (1 / div, 1.0, 1 / final) if at_start is None else (at_start, at_peak, at_start)

    def cosine(a, b, share):
        return b + (a - b) / 2 * (math.cos(math.pi * share) + 1)

    up = [cosine(low, high, n / rise) for n in range(rise)]
    return up + [cosine(high, end, n / (steps - rise)) for n in range(steps - rise)]


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize(("div", "cut_div"), [(32, 10), (8, 3), (8, 8), (4, 8)])
def test_slanted_rates_are_fastais(steps, div, cut_div):
    schedule = Schedule(shape="slanted", ratio=div, warmup_fraction=1 / cut_div)
    found = [schedule.factor(step, steps) for step in range(steps)]
    if steps >= cut_div:
        assert found == pytest.approx(circular(steps, div, cut_div), abs=1e-12)
    else:
        with pytest.raises(ZeroDivisionError):
            circular(steps, div, cut_div)
        assert found[0] == 1.0  # a rise of no step
    assert max(found) == 1.0
    assert min(found) > 0


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_slanted_rates_are_for_any_number_of_steps(steps):
    found = [Schedule(shape="slanted", warmup_fraction=0.1).factor(step, steps) for step in range(steps)]
    assert found[0] == max(found) == 1.0
    assert sorted(found, reverse=True) == found
    assert found[-1] > 1 / 32


@pytest.mark.parametrize("steps", STEPS)
def test_one_cycle_is_fastais(steps):
    schedule = Schedule(shape="one_cycle", ratio=25.0, warmup_fraction=0.3, low_beta1=0.85)
    found = [schedule.factor(step, steps) for step in range(steps)]
    assert found == pytest.approx(one_cycle(steps, 25.0, 25e4, 0.3), abs=1e-12)
    moments = [schedule.beta1(0.95, step, steps) for step in range(steps)]
    assert moments == pytest.approx(one_cycle(steps, 1, 1, 0.3, 0.95, 0.85), abs=1e-12)


@pytest.mark.parametrize("algorithm", ["adamw", "lamb", "sgd"])
def test_a_cycle_sets_rate_and_moments_and_resumes(algorithm):
    optimizer, steps = Optimizer(algorithm=algorithm, peak_lr=0.2, beta1=0.95), 10
    schedule = Schedule(shape="one_cycle", warmup_fraction=0.3, low_beta1=0.85)

    def run(made, start, stop):
        seen = []
        for _ in range(start, stop):
            group = made["optimizer"].param_groups[0]
            seen.append((group["lr"], group.get("betas", (None,))[0]))
            made["optimizer"].step()
            made["lr_scheduler"]["scheduler"].step()
        return seen

    def make():
        torch.manual_seed(0)
        module = torch.nn.Linear(2, 2)
        for p in module.parameters():
            p.grad = torch.ones_like(p)
        return scheduled(module, optimizer, schedule, steps)

    whole = make()
    seen = run(whole, 0, steps)
    assert [rate for rate, _ in seen] == pytest.approx([0.2 * schedule.factor(n, steps) for n in range(steps)])
    if algorithm != "sgd":
        assert [beta for _, beta in seen] == pytest.approx([schedule.beta1(0.95, n, steps) for n in range(steps)])
    first, second = make(), make()
    assert run(first, 0, 4) == seen[:4]
    second["optimizer"].load_state_dict(first["optimizer"].state_dict())
    second["lr_scheduler"]["scheduler"].load_state_dict(first["lr_scheduler"]["scheduler"].state_dict())
    assert run(second, 4, steps) == seen[4:]


def test_what_another_shape_ignores_is_no_other_schedule():
    plain = Schedule().essence()
    assert Schedule(ratio=4.0, final_ratio=9.0).essence() == plain
    assert "shape" not in plain
    for shape in ("slanted", "one_cycle"):
        assert Schedule(shape=shape, decay="cosine", decay_origin="zero").essence() == Schedule(shape=shape).essence()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Schedule.read({"low_beta1": 0.8}), "low_beta1 0.8 is of shape one_cycle, and shape is warmup"),
        (lambda: Optimizer.read({"nonmonotone_interval": 5}), "averages the weights of sgd, and algorithm is adamw"),
        (lambda: FineTuning().but(**{"schedule.by_length": True}), "schedule.by_length is of a pretraining"),
        (
            lambda: FineTuning().but(**{"optimizer.algorithm": "sgd", "optimizer.nonmonotone_interval": 5}),
            "optimizer.nonmonotone_interval reads the held-out losses of a pretraining",
        ),
    ],
)
def test_what_cannot_act_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
