"""Means of weights, by NT-ASGD and of the last checkpoints: what is averaged, from when on, and after a kill."""

import copy

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from lightning_modules.config import ConfigError
from lightning_modules.pretraining import fit
from lightning_modules.training import callbacks
from lightning_modules.training.callbacks import Interrupted, average, is_nonmonotone
from lightning_modules.training.module import Pretrain
from lightning_modules.training.optimizers import Optimizer
from lightning_modules.training.weights import WEIGHTS
from tests.depth import some

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


@pytest.mark.parametrize("algorithm", ["adamw", "lamb", "sgd", "adagrad"])
@pytest.mark.parametrize("corrected", [True, False])
def test_every_optimiser_has_a_mean_and_goes_on_as_without(algorithm, corrected):
    def stepped(averaged, resumed=False):
        torch.manual_seed(0)
        layer, idle = nn.Linear(3, 2), nn.Linear(2, 2)
        both = nn.ModuleList([layer, idle])
        settings = Optimizer(algorithm=algorithm, peak_lr=0.1, bias_correction=corrected)
        optimizer, seen = settings.build(both), []
        for number in range(6):
            late = idle if number == 5 else None  # which then has its first gradient
            optimizer.zero_grad()
            out = layer(torch.randn(4, 3))
            (out if late is None else late(out)).square().sum().backward()
            optimizer.step()
            seen.append([p.detach().clone() for p in layer.parameters()])
            if number in averaged:
                average(optimizer)
            if resumed and number == 3:
                state, optimizer = copy.deepcopy(optimizer.state_dict()), settings.build(both)
                optimizer.load_state_dict(state)
        return optimizer, list(layer.parameters()), seen

    _, _, alone = stepped(())
    for resumed in (False, True):
        optimizer, weights, seen = stepped((1, 3, 5), resumed)
        pairs = [(a, b) for one, other in zip(alone, seen, strict=True) for a, b in zip(one, other, strict=True)]
        assert all(torch.equal(a, b) for a, b in pairs)
        for place, p in enumerate(weights):
            mean = torch.stack([seen[n][place] for n in (1, 3, 5)]).mean(0)
            assert torch.allclose(optimizer.state[p]["mean"], mean, atol=1e-7)


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
        ([3.0, 2.9, 3.1], 3, False),  # it begins no earlier than after n evaluations and one more
        ([3.0, 2.0, 2.5, 3.1], 5, False),
        ([1.0, 2.0, 2.0, 2.0, 2.0, 2.0], 5, False),
    ],
)
def test_when_a_loss_triggers(losses, interval, expected):
    assert is_nonmonotone(losses, interval) == expected


def watched(monkeypatch):
    """The steps after which averaging begins, and the weights after each step."""
    begun, seen = [], []
    step = Pretrain.optimizer_step

    def noted(losses, interval):
        begun.extend([len(seen)] * is_nonmonotone(losses, interval))
        return is_nonmonotone(losses, interval)

    def stepped(module, *given, **named):
        step(module, *given, **named)
        seen.append({name: p.detach().clone() for name, p in module.named_parameters()})

    monkeypatch.setattr(callbacks, "is_nonmonotone", noted)
    monkeypatch.setattr(Pretrain, "optimizer_step", stepped)
    return begun, seen


def mean_of(seen):
    return {name: torch.stack([after[name] for after in seen]).mean(0) for name in seen[0]}


def test_the_recorded_curve_says_when_and_the_mean_is_kept(awd, tmp_path, monkeypatch):
    begun, seen = watched(monkeypatch)
    trained = fit(awd, 0, tmp_path)
    curve, steps = trained.curve["heldout.next_loss"], trained.curve["step"]
    due = [steps[n] for n in range(len(curve)) if is_nonmonotone(curve[: n + 1], 2)]
    assert begun == due[:1]
    assert 2 < begun[0] < 38
    weights = load_file(tmp_path / WEIGHTS)
    assert len(seen) == 40
    for name, mean in mean_of(seen[begun[0] :]).items():
        assert torch.allclose(weights[name], mean, atol=1e-6)
        assert not torch.equal(weights[name], seen[-1][name])
    assert trained.metrics["heldout.next_loss"] == curve[-1]  # measured with the mean, as it is kept


@pytest.fixture
def last_ones(tiny):
    """A small BERT, the mean of whose last checkpoints of 40 steps is kept: after 24, 28, 32, 36 and 40."""
    steps = {"training.steps": 40, "training.batch_size": 4, "optimizer.peak_lr": 1e-2, "evaluation.points": 5}
    return tiny.but(**steps, **{"training.averaged_checkpoints": 5, "training.averaging_interval": 0.1})


def test_the_last_checkpoints_are_averaged(last_ones, tmp_path, monkeypatch):
    _, seen = watched(monkeypatch)
    trained, weights = fit(last_ones, 0, tmp_path), load_file(tmp_path / WEIGHTS)
    for name, mean in mean_of(seen[23::4]).items():
        assert torch.allclose(weights[name], mean, atol=1e-6), name
    assert any(not torch.equal(weights[name], after) for name, after in seen[-1].items())
    del seen[:]
    plain = fit(last_ones.but(**{"training.averaged_checkpoints": 1}), 0, tmp_path / "plain")
    assert all(torch.equal(load_file(tmp_path / "plain" / WEIGHTS)[name], after) for name, after in seen[-1].items())
    kept, last = (one.curve["heldout.loss"] for one in (trained, plain))
    assert kept[:3] == last[:3]  # after 8, 16 and 24 steps: the mean of one checkpoint is that one
    assert all(a != b for a, b in zip(kept[3:], last[3:], strict=True))
    assert trained.metrics["heldout.loss"] == kept[-1]
    assert trained.curve["train.mlm"] == plain.curve["train.mlm"]  # the training itself is not changed


@pytest.mark.parametrize("algorithm", ["lamb", "sgd"])
def test_what_is_averaged_does_not_depend_on_the_evaluations(last_ones, tmp_path, algorithm):
    system = last_ones.but(**{"optimizer.algorithm": algorithm})
    for points in (1, 20):
        fit(system.but(**{"evaluation.points": points}), 0, tmp_path / str(points))
    one, two = (load_file(tmp_path / str(points) / WEIGHTS) for points in (1, 20))
    assert all(torch.equal(two[name], tensor) for name, tensor in one.items())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training.averaged_checkpoints": 0}, "training.averaged_checkpoints"),
        ({"training.averaging_interval": 1.0}, "training.averaging_interval"),
        (
            {"schedule.warmup_fraction": 0.7},
            "averaged_checkpoints 5, every 4 of 40 steps, begin at step 24, and the learning rate rises until step 28: "
            "set it to at most 4, or lower training.averaging_interval",
        ),
        ({"schedule.shape": "slanted", "schedule.warmup_fraction": 0.6}, "rises until step 25"),
        ({"schedule.shape": "one_cycle", "schedule.warmup_fraction": 0.6}, "rises until step 25"),
        ({"training.averaging_interval": 0.3}, "every 12 of 40 steps, begin at step -8.*set it to at most 4"),
        ({"training.stop_after": 16}, "every 4 of 16 steps, begin at step 0"),
        (
            {"optimizer.algorithm": "sgd", "optimizer.nonmonotone_interval": 2},
            "averaged_checkpoints 5 and optimizer.nonmonotone_interval both average weights",
        ),
    ],
)
def test_what_cannot_be_averaged_is_refused_by_name(last_ones, changes, message):
    with pytest.raises(ConfigError, match=message):
        last_ones.but(**changes)


def test_averaging_is_part_of_a_run_only_where_there_is_one(last_ones, tiny):
    assert tiny.but(**{"training.averaging_interval": 0.1}).essence() == tiny.essence()
    assert last_ones.but(**{"training.averaging_interval": 0.05}).essence() != last_ones.essence()
    assert last_ones.but(**{"schedule.warmup_fraction": 0.6}).training.averaged_steps.start == 24  # just at the peak


@pytest.mark.parametrize("which", ["awd", "last_ones"])
@pytest.mark.parametrize("stop", some([1, 7, 23, 24, 37, 39, 40], 3))  # 40 is the last step
def test_a_killed_training_ends_in_the_same_bits(request, tmp_path, which, stop):
    system = request.getfixturevalue(which)
    straight = fit(system, 0, tmp_path / "straight")
    made = 0

    def stopped():
        nonlocal made
        made += 1
        return made == stop

    with pytest.raises(Interrupted):
        fit(system, 0, tmp_path / "killed", stop=stopped)
    torch.manual_seed(999)
    resumed = fit(system, 0, tmp_path / "killed")
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
        seen.append((module._length, [group["lr"] for group in optimizer.param_groups]))

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
