"""Weights removed before a fine-tuning: which go, exactly how many, and that they stay 0."""

import pytest
import torch

from ablations.schema.run import Run
from lightning_modules.finetuning.run import finetune, finetuned
from lightning_modules.finetuning.weight_pruning import at_random, by_magnitude, hold, matrices, sparsity
from lightning_modules.pretraining import fit
from lightning_modules.tasks import TASKS
from lightning_modules.training.weights import WEIGHTS, load_weights
from tests.toy import toy_task
from tests.tuning import planned, tunings

SETTINGS, tuning = tunings(batch_size=16)


def pruned(**changes):
    return SETTINGS.but(**{f"weight_pruning.{name}": value for name, value in changes.items()})


@pytest.fixture
def parents(tiny, tmp_path):
    """A system, its pretrained weights, and those of its fine-tuning."""
    fit(tiny, 0, tmp_path / "pretrained")
    start = tmp_path / "pretrained" / WEIGHTS
    finetune(tuning(tiny, start), tmp_path / "tuned")
    return tiny, start, tmp_path / "tuned" / WEIGHTS


def encoder_weights(file):
    prefix = "backbone."
    return {name.removeprefix(prefix): w for name, w in load_weights(file).items() if name.startswith(prefix)}


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1 / 3, 0.7, 0.999, 1.0])
def test_the_smallest_of_all_go_and_exactly_as_many_as_asked(share):
    generator = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(7, size, generator=generator) for name, size in {"a": 3, "b": 11, "c": 1}.items()}
    weights["b"] *= 3
    masks = by_magnitude(weights, share)
    every = torch.cat([weights[name].abs().flatten() for name in weights])
    kept = torch.cat([masks[name].flatten() for name in weights])
    assert int((~kept).sum()) == round(share * 105)
    if 0 < share < 0.99:
        assert every[~kept].max() <= every[kept].min()
        assert sparsity({"b": masks["b"]}) < sparsity(masks)  # all matrices together


def test_of_equal_weights_the_first_go_so_that_masks_nest():
    zeros = {"a": torch.zeros(4, 5)}
    small, large = (by_magnitude(zeros, share)["a"] for share in (0.25, 0.5))
    assert int((~small).sum()) == 5
    assert (small | ~large).sum() >= large.sum()
    assert not (large & ~small).any()


def test_a_random_mask_removes_as_many_of_each_matrix_and_follows_from_the_seed():
    weights = {name: torch.randn(9, 8) * scale for name, scale in {"a": 1, "b": 4}.items()}
    masks = by_magnitude(weights, 0.6)
    drawn, again, other = at_random(masks, 3), at_random(masks, 3), at_random(masks, 4)
    for name, mask in masks.items():
        assert drawn[name].sum() == mask.sum()
        assert torch.equal(drawn[name], again[name])
    assert not torch.equal(drawn["b"], masks["b"])
    assert not torch.equal(drawn["b"], other["b"])


def test_only_matrices_of_attention_and_feed_forward_layers_are_masked(tiny):
    encoder = tuning(tiny.but(**{"model.num_layers": 3, "model.sharing": "ffn"}))
    names = set(matrices(encoder.build().backbone))
    assert {name.split(".")[2] for name in names} == {"attention", "ffn"}
    assert len(names) == 3 * 2 + 2  # what layers share comes once
    assert all(name.endswith(".weight") and "norm" not in name for name in names)


@pytest.mark.parametrize("algorithm", ["adamw", "sgd", "lamb", "adagrad"])
def test_removed_weights_stay_zero_under_momentum_and_decay(tiny, algorithm):
    module = tuning(tiny).build()
    masks = by_magnitude(dict(matrices(module.backbone)), 0.5)
    hold(module.backbone, masks)
    settings = SETTINGS.but(**{"optimizer.algorithm": algorithm, "optimizer.weight_decay": 0.1}).optimizer
    optimizer, before = settings.build(module), {n: p.detach().clone() for n, p in matrices(module.backbone).items()}
    for _ in range(5):
        optimizer.zero_grad()
        sum((p**2 + p).sum() for p in module.parameters()).backward()
        optimizer.step()
    for name, parameter in matrices(module.backbone).items():
        assert (parameter[~masks[name]] == 0).all(), name
        assert (parameter[masks[name]] != before[name][masks[name]]).all(), name


@pytest.mark.parametrize("weights", ["rewound", "kept", "redrawn"])
@pytest.mark.parametrize("choose", ["magnitude", "random"])
def test_a_fine_tuning_starts_where_it_says_and_keeps_its_mask(parents, tmp_path, weights, choose):
    system, start, tuned = parents
    settings = pruned(share=0.7, weights=weights, choose=choose)
    given = {"rewound": start, "kept": tuned, "redrawn": None}[weights]
    run = tuning(system, given, settings=settings, mask=tuned)
    module, masks = run.build(), run.masks
    assert sparsity(masks) == pytest.approx(0.7, abs=1e-3)
    fresh = tuning(system).build().backbone.state_dict()
    expected = fresh if given is None else encoder_weights(given)
    for name, tensor in module.backbone.state_dict().items():
        kept = masks.get(name, torch.ones_like(tensor, dtype=torch.bool))
        assert torch.equal(tensor, expected[name] * kept), name
    is_tuned = torch.equal(module.head.output.weight, load_weights(tuned)["head.output.weight"])
    assert is_tuned == (weights == "kept")
    fitted = finetune(run, tmp_path / "pruned")
    after = encoder_weights(tmp_path / "pruned" / WEIGHTS)
    assert all((after[name][~mask] == 0).all() for name, mask in masks.items())
    assert fitted.metrics["toy.sparsity"] == sparsity(masks)
    finetuned(run, tmp_path / "pruned" / WEIGHTS)


def test_rounds_remove_as_many_weights_each_and_what_is_removed_stays_removed(parents, tmp_path):
    system, start, tuned = parents
    mask, before = tuned, None
    for number in (1, 2, 3):
        run = tuning(system, start, settings=pruned(share=0.6, rounds=3, round=number), mask=mask)
        masks = run.masks
        assert sparsity(masks) == pytest.approx(0.2 * number, abs=1e-3)
        if before is not None:
            assert not any((masks[name] & ~before[name]).any() for name in masks)
        finetune(run, tmp_path / str(number))
        mask, before = tmp_path / str(number) / WEIGHTS, masks


def test_the_parents_of_a_round_follow_from_its_settings(tiny):
    def run(settings):
        return planned(tiny, settings, seed=3)

    whole, last = run(SETTINGS), run(pruned(share=0.6, rounds=3))
    pretrained = whole.start
    assert last.by_role["start"] == pretrained
    assert last.by_role["mask"].id == run(pruned(share=0.6, rounds=3, round=2)).id
    first = last.by_role["mask"].by_role["mask"]
    assert first.by_role["mask"] == whole
    assert last.id == run(pruned(share=0.6, rounds=3, round=3)).id
    assert last.roles == ("start", "mask")
    assert Run.read(last.to_dict()).id == last.id
    assert run(pruned(share=0.6, mask_from="pretraining")).by_role == {"start": pretrained, "mask": pretrained}
    assert run(pruned(share=0.6, weights="kept")).by_role == {"start": whole, "mask": whole}
    assert run(pruned(share=0.6, weights="redrawn")).by_role == {"mask": whole}
    assert run(pruned(share=0.0)).id == whole.id
    others = [{}, {"choose": "random"}, {"weights": "kept"}, {"weights": "redrawn"}, {"mask_from": "pretraining"}]
    others += [{"rounds": 2}, {"rate": 0.1}, {"rewind_to": 2}]
    assert len({run(pruned(share=0.6, **other)).id for other in others}) == len(others)


def test_a_mask_of_another_task_and_an_early_start_are_runs_of_their_own(tiny, monkeypatch):
    monkeypatch.setitem(TASKS, "other", toy_task("other"))

    def run(settings):
        return planned(tiny, settings, seed=3)

    pretrained = run(SETTINGS).start
    transferred = run(pruned(share=0.6, mask_from="other"))
    mask = transferred.by_role["mask"]
    assert (mask.task, mask.finetuning, mask.start) == ("other", SETTINGS, pretrained)
    assert transferred.by_role["start"] == pretrained
    assert Run.read(transferred.to_dict()).id == transferred.id
    assert "other" in transferred.fingerprints
    own = run(pruned(share=0.6))
    assert transferred.id != own.id
    assert run(pruned(share=0.6, mask_from="toy")).id == own.id
    early = run(pruned(share=0.6, rewind_to=2))
    assert early.by_role["start"].system == tiny.but(**{"training.stop_after": 2})
    assert early.by_role["mask"] == own.by_role["mask"]
    assert run(pruned(share=0.6, rewind_to=tiny.training.steps)).by_role["start"].id == pretrained.id


def test_the_rate_under_a_mask_is_a_part_of_the_usual_one(parents):
    system, start, tuned = parents

    def rate(settings):
        module = tuning(system, start, settings=settings, mask=tuned).build()
        return module.configure_optimizers()["optimizer"].param_groups[0]["initial_lr"]

    assert rate(pruned(share=0.5, rate=0.1)) == pytest.approx(0.1 * rate(pruned(share=0.5)))
    assert rate(pruned(share=0.0, rate=0.1)) == rate(SETTINGS)
