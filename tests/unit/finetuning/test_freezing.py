"""Fine-tuning layer by layer: which learn at which step, and at which rate, of any backbone."""

import itertools
import math

import pytest
import torch

from lightning_modules.finetuning.finetune import Finetune
from lightning_modules.finetuning.run import finetune
from lightning_modules.pretraining import fit
from lightning_modules.training.callbacks import Interrupted
from lightning_modules.training.optimizers import layer_groups, trained
from lightning_modules.training.weights import WEIGHTS, load_weights
from tests.end_to_end.test_training import stop_after
from tests.tuning import tunings

SETTINGS, tuning = tunings(epochs=4)
RECURRENT = {
    "model.kind": "lstm", "model.num_layers": 2, "model.hidden_size": 16, "model.direction": "left_to_right",
    "objectives.mlm": None, "objectives.lm.direction": "left_to_right",
}  # fmt: skip
BACKBONES = {
    "transformer": {"model.num_layers": 2},
    "norm above the layers": {"model.num_layers": 2, "model.norm": "pre"},
    "two stacks": {"model.num_layers": 4, "model.direction": "two_way"},
    "shared layers": {"model.num_layers": 2, "model.sharing": "all"},
    "lstm": RECURRENT,
}


@pytest.fixture
def pretrained(tiny, tmp_path):
    def made(**changes):
        system = tiny.but(**changes, **{"training.steps": 2})
        fit(system, 0, tmp_path / "pretrained")
        return system, tmp_path / "pretrained" / WEIGHTS

    return made


@pytest.mark.parametrize("changes", BACKBONES.values(), ids=BACKBONES)
def test_each_parameter_is_in_one_group_and_the_head_in_the_first(tiny, changes):
    module = tuning(tiny.but(**changes)).build()
    groups = layer_groups(module)
    assert len(groups) == (3 if changes.get("model.sharing") else 4)
    assert sorted(id(p) for group in groups for p in group) == sorted(map(id, module.parameters()))
    assert {id(p) for p in module.head.parameters()} <= {id(p) for p in groups[0]}
    assert {id(p) for p in module.backbone.embeddings.parameters()} == {id(p) for p in groups[-1]}


@pytest.mark.parametrize("changes", BACKBONES.values(), ids=BACKBONES)
@pytest.mark.parametrize("algorithm", ["adamw", "sgd", "lamb"])
def test_each_group_learns_at_the_rate_above_it_divided(tiny, changes, algorithm):
    module = tuning(tiny.but(**changes)).build()
    settings = SETTINGS.but(**{"optimizer.rate_divisor": 2.6, "optimizer.algorithm": algorithm}).optimizer
    rates = {id(p): group["lr"] for group in settings.build(module).param_groups for p in group["params"]}
    assert len(rates) == len(list(module.parameters()))
    for place, group in enumerate(layer_groups(module)):
        assert [rates[id(p)] for p in group] == pytest.approx([1e-2 / 2.6**place] * len(group))
    first, *_ = settings.build(module).param_groups
    assert first["lr"] == 1e-2  # which is logged


def test_weight_decay_spares_the_same_parameters_with_any_rates(tiny):
    module = tuning(tiny.but(**{"model.num_layers": 2})).build()
    found = []
    for divisor in (1.0, 2.6):
        groups = SETTINGS.but(**{"optimizer.rate_divisor": divisor}).optimizer.build(module).param_groups
        found.append({id(p): group["weight_decay"] for group in groups for p in group["params"]})
    assert found[0] == found[1]
    assert set(found[0].values()) == {0.0, 0.01}


def test_plans_are_functions_of_the_step():
    def plan(freezing, groups, steps, each_epoch):
        return [list(trained(freezing, groups, step, steps, each_epoch)) for step in range(steps)]

    assert plan("none", 3, 2, 1) == [[0, 1, 2]] * 2
    assert plan("last", 3, 2, 1) == [[0]] * 2
    assert plan("gradual", 3, 8, 2) == [[0]] * 2 + [[0, 1]] * 2 + [[0, 1, 2]] * 4
    assert plan("gradual", 4, 4, 2) == [[0]] * 2 + [[0, 1]] * 2  # too few epochs for the rest
    assert plan("chain_thaw", 3, 8, 2) == [[0]] * 2 + [[2]] * 2 + [[1]] * 2 + [[0, 1, 2]] * 2
    assert plan("chain_thaw", 3, 4, 9) == [[0], [2], [1], [0, 1, 2]]


@pytest.mark.parametrize("changes", [BACKBONES["transformer"], RECURRENT], ids=["transformer", "lstm"])
@pytest.mark.parametrize("freezing", ["last", "gradual", "chain_thaw"])
def test_what_is_frozen_does_not_move(pretrained, tmp_path, monkeypatch, changes, freezing):
    """Not even by weight decay or moments: in each step, only what learns there changes."""
    system, weights = pretrained(**changes)
    run, seen = tuning(system, weights, freezing=freezing), []
    module, batches = run.build(), run.data.train_dataloader()
    names = {id(p): name for name, p in module.named_parameters()}
    groups = [[names[id(p)] for p in group] for group in layer_groups(module)]
    begin = Finetune.on_train_batch_start

    def noted(module, batch, batch_idx):
        seen.append({name: p.detach().clone() for name, p in module.named_parameters()})
        begin(module, batch, batch_idx)

    monkeypatch.setattr(Finetune, "on_train_batch_start", noted)
    finetune(run, tmp_path)
    seen.append(load_weights(tmp_path / WEIGHTS))
    assert len(seen) == len(batches) + 1
    for step, (before, after) in enumerate(itertools.pairwise(seen)):
        learn = trained(freezing, len(groups), step, len(batches), batches.each_epoch)
        for number, group in enumerate(groups):
            moved = any(not torch.equal(before[name], after[name]) for name in group)
            assert moved == (number in learn), (step, number)


@pytest.mark.parametrize("freezing", ["gradual", "chain_thaw"])
@pytest.mark.parametrize("changes", [BACKBONES["transformer"], RECURRENT], ids=["transformer", "lstm"])
def test_a_freezing_that_is_interrupted_resumes_to_the_bit(pretrained, tmp_path, freezing, changes):
    system, weights = pretrained(**changes)
    divisor = 1.0 if freezing == "chain_thaw" else 2.6
    more = {"freezing": freezing, "optimizer.rate_divisor": divisor, "schedule.shape": "slanted"}
    run = tuning(system, weights, **more)
    straight = finetune(run, tmp_path / "straight")
    steps = len(run.data.train_dataloader())
    for stop in (1, steps // 2, steps - 1):
        with pytest.raises(Interrupted):
            finetune(run, tmp_path / str(stop), stop=stop_after(stop))
        torch.manual_seed(999)
        resumed = finetune(run, tmp_path / str(stop))
        assert (resumed.metrics, resumed.curve) == (straight.metrics, straight.curve)


def test_chain_thaw_has_a_tenth_of_the_rate_below_the_head(tiny):
    module = tuning(tiny, freezing="chain_thaw").build()
    groups = module.configure_optimizers()["optimizer"].param_groups
    rates = {id(p): group["initial_lr"] for group in groups for p in group["params"]}
    head, *others = layer_groups(module)
    assert {rates[id(p)] for p in head} == {1e-2}
    assert all(rates[id(p)] == pytest.approx(1e-3) for group in others for p in group)


def test_frozen_layers_have_no_backward_pass_in_the_flops(tiny):
    system = tiny.but(**{"model.num_layers": 2})
    whole, last, gradual = (
        SETTINGS.but(freezing=freezing).flops_per_sequence(system, 16, 4.0) for freezing in ("none", "last", "gradual")
    )
    assert math.isclose(last, whole / 3)
    assert SETTINGS.but(freezing="gradual").trained_share(2, 4.0) == pytest.approx((0 + 0.5 + 1 + 1) / 4)
    assert last < gradual < whole


def test_heads_of_a_language_model_learn_at_the_highest_rate(tiny):
    """Settings of pretraining have discriminative rates too, for the second stage of ULMFiT."""
    module = tiny.but(**{"model.num_layers": 2, "optimizer.rate_divisor": 2.6}).build(0)
    groups = module.configure_optimizers()["optimizer"].param_groups
    rates = {id(p): group["initial_lr"] for group in groups for p in group["params"]}
    assert {rates[id(p)] for p in module.heads.parameters()} == {module.optimizer_settings.peak_lr}
    lowest = module.optimizer_settings.peak_lr / 2.6**3
    assert rates[id(module.backbone.table)] == pytest.approx(lowest)
