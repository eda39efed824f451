"""NT-ASGD: what is averaged, from when on, and that a training which is killed ends in the same bits."""

import copy

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from lightning_modules.pretraining import fit
from lightning_modules.training.optim import AveragedSGD, Optimizer, is_nonmonotone
from lightning_modules.training.pretrain import Pretrain
from lightning_modules.training.recorder import Interrupted
from lightning_modules.training.weights import WEIGHTS

AWD = {
    "model.kind": "lstm", "model.num_layers": 2, "model.hidden_size": 16, "model.embedding_size": 8,
    "model.output_size": 8, "model.embedding_norm": False, "model.embedding_dropout": 0.0, "model.dropout": 0.0,
    "model.word_type_dropout": 0.1, "model.input_dropout": 0.2, "model.weight_dropout": 0.3,
    "model.hidden_dropout": 0.2, "model.output_dropout": 0.2, "model.init": "uniform", "model.init_std": 0.05,
    "objectives.mlm": None, "objectives.lm.transform": "none", "objectives.activations.activation": 2.0,
    "format.kind": "stream", "format.frame": "document_ends", "format.lengths": "drawn",
    "optimizer.algorithm": "sgd", "optimizer.peak_lr": 10.0, "optimizer.weight_decay": 1.2e-6,
    "optimizer.nonmonotone_interval": 2, "schedule.warmup_fraction": 0.0, "schedule.decay": "constant",
    "schedule.by_length": True, "training.batch_size": 4, "training.steps": 40, "training.clip_norm": 0.25,
    "evaluation.sequences": 12, "evaluation.rows": 4, "evaluation.points": 20,
}  # fmt: skip


@pytest.fixture
def awd(tiny):
    """A small AWD-LSTM, whose averaging begins at one of 20 evaluations."""
    return tiny.but(**AWD)


def by_hand(start, gradients, rate, decay):
    """The weights after each step of SGD."""
    weights, seen = start.clone(), []
    for gradient in gradients:
        weights = weights - rate * (gradient + decay * weights)
        seen.append(weights)
    return torch.stack(seen)


def test_the_mean_has_the_weights_after_the_first_step_too():
    """The trap: ``torch.optim.ASGD`` leaves them out, with t0 = 0 and lambd = 0 as the released code has them."""
    gradients = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    start = torch.ones(3, dtype=torch.float64)
    seen = by_hand(start, gradients, 0.1, 0.01)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    optimizer = AveragedSGD([{"params": [ours], "weight_decay": 0.01}], 0.1)
    other = torch.optim.ASGD([theirs], lr=0.1, lambd=0.0, t0=0.0, weight_decay=0.01)
    for number, gradient in enumerate(gradients):
        if number == 2:
            optimizer.average()
        ours.grad = theirs.grad = gradient
        optimizer.step()
        if number >= 2:
            other.step()
        else:
            with torch.no_grad():
                theirs.copy_(seen[number])
        assert torch.allclose(ours, seen[number])
    assert torch.allclose(optimizer.state[ours]["mean"], seen[2:].mean(0))
    assert torch.allclose(other.state[theirs]["ax"], seen[3:].mean(0))


def test_weights_and_means_are_exchanged_and_kept():
    weight, idle = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.ones(2))
    optimizer = AveragedSGD([{"params": [weight, idle], "weight_decay": 0.0}], 1.0)
    optimizer.exchange()  # there is nothing to exchange
    weight.grad = torch.ones(2)
    optimizer.average()
    optimizer.step()
    optimizer.step()
    optimizer.exchange()
    assert (weight.tolist(), idle.tolist()) == ([-1.5, -1.5], [1.0, 1.0])
    optimizer.exchange()
    assert weight.tolist() == [-2.0, -2.0]
    again = AveragedSGD([{"params": [weight, idle], "weight_decay": 0.0}], 1.0)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert again.is_averaging
    again.step()
    for _ in range(2):
        again.keep_means()
        assert weight.tolist() == [-2.0, -2.0]  # the mean of -1, -2 and -3


@pytest.mark.parametrize(
    ("losses", "interval", "expected"),
    [
        ([3.0], 1, False),
        ([3.0, 4.0], 1, False),  # nothing lies more than one evaluation behind
        ([3.0, 4.0, 3.5], 1, True),
        ([3.0, 2.0, 2.5], 1, False),  # below the first, though above the last
        ([3.0, 2.0, 2.5, 2.1], 1, True),
        ([1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.5], 5, True),
        ([1.0, 2.0, 2.0, 2.0, 2.0, 1.5], 5, False),
        ([3.0, 4.0, 3.0], 1, False),  # above, not equal
    ],
)
def test_when_a_loss_triggers(losses, interval, expected):
    assert is_nonmonotone(losses, interval) == expected


def watched(monkeypatch):
    """The step at which averaging begins, and the weights after each step."""
    begun, seen = [], []
    average, step = AveragedSGD.average, AveragedSGD.step

    def begin(optimizer):
        begun.append(len(seen))
        average(optimizer)

    def stepped(optimizer, closure=None):
        loss = step(optimizer, closure)
        seen.append([p.detach().clone() for group in optimizer.param_groups for p in group["params"]])
        return loss

    monkeypatch.setattr(AveragedSGD, "average", begin)
    monkeypatch.setattr(AveragedSGD, "step", stepped)
    return begun, seen


def test_the_recorded_curve_says_when_and_the_mean_is_kept(awd, tmp_path, monkeypatch):
    begun, seen = watched(monkeypatch)
    trained = fit(awd, 0, tmp_path)
    curve, steps = trained.curve["heldout.next_loss"], trained.curve["step"]
    due = [steps[n] for n in range(len(curve)) if is_nonmonotone(curve[: n + 1], 2)]
    assert begun == due[:1]
    assert 2 < begun[0] < 38
    weights = load_file(tmp_path / WEIGHTS)
    module = awd.build(0)
    order = [p for group in module.optimizer_settings.build(module).param_groups for p in group["params"]]
    names = {id(p): name for name, p in module.named_parameters()}
    assert len(seen) == 40
    for place, p in enumerate(order):
        mean = torch.stack([after[place] for after in seen[begun[0] :]]).mean(0)
        assert torch.allclose(weights[names[id(p)]], mean, atol=1e-6)
        assert not torch.equal(weights[names[id(p)]], seen[-1][place])
    assert trained.metrics["heldout.next_loss"] == curve[-1]  # measured with the mean, as it is kept


@pytest.mark.parametrize("stop", [1, 7, 23, 37, 39, 40])  # 40 is the last step
def test_a_killed_training_ends_in_the_same_bits(awd, tmp_path, stop):
    straight = fit(awd, 0, tmp_path / "straight")
    made = 0

    def stopped():
        nonlocal made
        made += 1
        return made == stop

    with pytest.raises(Interrupted):
        fit(awd, 0, tmp_path / "killed", stop=stopped)
    torch.manual_seed(999)
    resumed = fit(awd, 0, tmp_path / "killed")
    expected, found = (load_file(tmp_path / name / WEIGHTS) for name in ("straight", "killed"))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert (resumed.curve, resumed.metrics) == (straight.curve, straight.metrics)
    assert resumed.cost["real_tokens"] == straight.cost["real_tokens"]


def test_evaluations_leave_the_training_as_it_is(awd, tmp_path):
    """They carry states of their own, draw no mask, and put the weights back."""
    plain = awd.but(**{"optimizer.nonmonotone_interval": 0})
    often, seldom = (plain.but(**{"evaluation.points": points}) for points in (20, 1))
    curves = [fit(system, 0, tmp_path / str(n)) for n, system in enumerate((often, seldom))]
    one, two = (load_file(tmp_path / str(n) / WEIGHTS) for n in range(2))
    assert all(torch.equal(two[name], tensor) for name, tensor in one.items())
    assert curves[0].metrics["heldout.next_loss"] == curves[1].metrics["heldout.next_loss"]


def test_the_rate_is_by_the_length_of_the_step(awd, tmp_path, monkeypatch):
    seen, logged = [], Pretrain.on_before_optimizer_step

    def noted(module, optimizer):
        logged(module, optimizer)
        seen.append((module._positions, [group["lr"] for group in optimizer.param_groups]))

    monkeypatch.setattr(Pretrain, "on_before_optimizer_step", noted)
    fit(awd.but(**{"schedule.decay": "linear"}), 0, tmp_path)
    assert len({positions for positions, _ in seen}) > 5
    for step, (positions, rates) in enumerate(seen):
        assert rates == pytest.approx([10.0 * (1 - step / 40) * positions / 16] * 2)


def test_sgd_has_no_moments_and_leaves_adams_knobs_out():
    plain = Optimizer(algorithm="sgd")
    assert plain.but(beta1=0.5, eps=1e-3, bias_correction=False).essence() == plain.essence()
    module = nn.Linear(1, 1)
    optimizer = plain.but(peak_lr=0.5, weight_decay=0.1, decay_all=True).build(module)
    nn.init.constant_(module.weight, 2.0)
    module.weight.grad, module.bias.grad = torch.full((1, 1), 3.0), None
    optimizer.step()
    assert float(module.weight.detach()) == pytest.approx(2.0 - 0.5 * (3.0 + 0.1 * 2.0))
