"""Optimisers against arithmetic done by hand, and schedules against the formulas of their code."""

import copy
import math

import pytest
import torch
from torch import nn

from lightning_modules.config import ConfigError
from lightning_modules.tasks import FineTuning
from lightning_modules.training.optimizers import Lamb, Optimizer, Schedule, parameter_groups, scheduled
from tests.every import every

ALGORITHMS = [{"algorithm": a, "bias_correction": c} for a in ("adamw", "lamb") for c in (True, False)]
GRADIENTS = (0.5, -2.0)


class Net(nn.Module):
    """Weights, biases, a LayerNorm, and a bias that belongs to no Linear, as the vocabulary head has one."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.dense, self.norm = nn.Embedding(5, 4), nn.Linear(4, 3), nn.LayerNorm(3)
        self.bias = nn.Parameter(torch.zeros(5))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.norm(self.dense(self.table(ids))).square().sum() + (self.bias[ids] * ids).sum()


def _net(seed: int = 0) -> Net:
    torch.manual_seed(seed)
    net = Net()
    for p in net.parameters():
        nn.init.normal_(p)
    return net


def _by_hand(p: float, settings: Optimizer, *, decayed: bool = True, adapted: bool = False) -> list[float]:
    """A parameter of one number after each of two steps, by the formulas of the papers."""
    m = v = 0.0
    values = []
    for t, g in enumerate(GRADIENTS, start=1):
        m = settings.beta1 * m + (1 - settings.beta1) * g
        v = settings.beta2 * v + (1 - settings.beta2) * g * g
        m_hat, v_hat = m, v
        if settings.bias_correction:
            m_hat, v_hat = m / (1 - settings.beta1**t), v / (1 - settings.beta2**t)
        update = m_hat / (math.sqrt(v_hat) + settings.eps) + (settings.weight_decay * p if decayed else 0.0)
        ratio = abs(p) / abs(update) if adapted and p and update else 1.0
        p -= settings.peak_lr * ratio * update
        values.append(p)
    return values


@every("knobs", ALGORITHMS)
def test_two_steps_are_those_done_by_hand(knobs):
    """A weight is decayed and, under LAMB, scaled; a bias is neither."""
    settings = Optimizer(**knobs, peak_lr=0.1, weight_decay=0.3, eps=1e-3)
    module = nn.Linear(1, 1, dtype=torch.float64)
    nn.init.constant_(module.weight, 2.0)
    nn.init.constant_(module.bias, -3.0)
    optimizer, seen = settings.build(module), []
    for g in GRADIENTS:
        for p in module.parameters():
            p.grad = torch.full_like(p, g)
        optimizer.step()
        seen.append((module.weight.item(), module.bias.item()))
    weight = _by_hand(2.0, settings, adapted=settings.algorithm == "lamb")
    bias = _by_hand(-3.0, settings, decayed=False)
    assert seen == [pytest.approx(pair, rel=1e-12) for pair in zip(weight, bias, strict=True)]


@every("knobs", ALGORITHMS)
def test_a_step_with_a_closure_computes_the_gradients_and_returns_the_loss(knobs):
    net, ids = _net(), torch.arange(5)
    other = copy.deepcopy(net)
    optimizers = [Optimizer(**knobs).build(one) for one in (net, other)]

    def closure():
        loss = net(ids)
        loss.backward()
        return loss

    loss = optimizers[0].step(closure)
    other(ids).backward()
    optimizers[1].step()
    assert torch.equal(loss, _net()(ids))
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), other.parameters(), strict=True))


def test_the_trust_ratio_is_of_whole_tensors():
    weight = torch.tensor([[3.0, 4.0]], dtype=torch.float64)  # norm 5
    module = nn.Linear(2, 1, bias=False, dtype=torch.float64)
    module.weight.data.copy_(weight)
    module.weight.grad = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    Lamb(module.parameters(), lr=0.1, eps=0.0, weight_decay=0.0, bias_correction=True).step()
    update = torch.tensor([[1.0, -1.0]], dtype=torch.float64)  # Adam's first step is the sign; its norm is sqrt(2)
    assert torch.allclose(module.weight.data, weight - 0.1 * 5 / math.sqrt(2) * update)


@every(("weight", "gradient"), [(0.0, 1.0), (2.0, 0.0)])
def test_the_trust_ratio_is_one_where_a_norm_is_zero(weight, gradient):
    module = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    nn.init.constant_(module.weight, weight)
    module.weight.grad = torch.full_like(module.weight, gradient)
    Lamb(module.parameters(), lr=0.1, eps=1e-12, weight_decay=0.0).step()
    assert module.weight.item() == pytest.approx(weight - 0.1 * gradient)


@every("decay_all", [False, True])
def test_biases_and_norms_are_told_by_their_module(decay_all):
    net = _net()
    weights, spared = parameter_groups(net, 0.5, decay_all)
    assert [id(p) for p in weights["params"]] == [id(net.table.weight), id(net.dense.weight)]
    assert {id(p) for p in spared["params"]} == set(map(id, (net.bias, net.dense.bias, *net.norm.parameters())))
    assert weights["weight_decay"] == 0.5
    assert spared["weight_decay"] == (0.5 if decay_all else 0.0)
    groups = Optimizer(algorithm="lamb", decay_all=decay_all).build(net).param_groups
    assert [group["adapt"] for group in groups] == [True, False], "LAMB scales weights only, whatever is decayed"


def test_corrected_adamw_is_torchs_own():
    assert type(Optimizer().build(_net())) is torch.optim.AdamW


WARM, STEPS = 10, 100


@every(("decay", "origin"), [(d, o) for d in ("linear", "cosine", "constant") for o in ("zero", "warmup_end")])
def test_schedules_where_they_turn(decay, origin):
    """BERT warms up by step/warmup; ours is one step ahead there, so that the first step is not wasted."""
    schedule = Schedule(warmup_fraction=WARM / STEPS, decay=decay, decay_origin=origin)
    at = [schedule.factor(step, STEPS) for step in range(STEPS + 1)]
    assert at[:WARM] == pytest.approx([(step + 1) / WARM for step in range(WARM)])
    done = WARM / STEPS if origin == "zero" else 0.0  # of the decay, when the warm-up ends
    turn = {"linear": 1 - done, "cosine": 0.5 * (1 + math.cos(math.pi * done)), "constant": 1.0}[decay]
    assert at[WARM] == pytest.approx(turn)
    assert at[STEPS] == pytest.approx(1.0 if decay == "constant" else 0.0)
    middle = (STEPS + WARM) // 2 if origin == "warmup_end" else STEPS // 2
    assert at[middle] == pytest.approx(1.0 if decay == "constant" else 0.5)


LENGTHS = (5, 25, 1000)


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


@every(("steps", "div", "cut_div"), [(n, *own) for n in LENGTHS for own in ((32, 10), (8, 3), (8, 8), (4, 8))])
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


@every("steps", [1, 2, 3, 7])
def test_slanted_rates_are_for_any_number_of_steps(steps):
    found = [Schedule(shape="slanted", warmup_fraction=0.1).factor(step, steps) for step in range(steps)]
    assert found[0] == max(found) == 1.0
    assert sorted(found, reverse=True) == found
    assert found[-1] > 1 / 32


@every("steps", LENGTHS)
def test_one_cycle_is_fastais(steps):
    schedule = Schedule(shape="one_cycle", ratio=25.0, warmup_fraction=0.3, low_beta1=0.85)
    found = [schedule.factor(step, steps) for step in range(steps)]
    assert found == pytest.approx(one_cycle(steps, 25.0, 25e4, 0.3), abs=1e-12)
    moments = [schedule.beta1(0.95, step, steps) for step in range(steps)]
    assert moments == pytest.approx(one_cycle(steps, 1, 1, 0.3, 0.95, 0.85), abs=1e-12)


@every("algorithm", ["adamw", "lamb", "sgd"])
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


@every(
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
