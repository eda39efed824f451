"""An LSTM that a grid calls as large as the transformer has as many parameters, at every scale."""

import pytest

from ablations.planning import grids
from ablations.planning.cells import Workshop, layout
from tests.every import every

TOLERANCE = 0.02
UNMATCHED = "2,048"  # the paper's own LSTM
GRIDS = ("gpt_pretraining", "transformer_or_lstm", "copy_distance")


def cases(names=GRIDS):
    return [(name, scale) for name in names for scale in grids.read(name).scales]


# grid -> axis, and the transformer that each LSTM is compared with
ARMS = {
    "directionality": (
        "reader",
        {f"LSTM, {asked}": asked for asked in ("next tokens", "previous tokens", "next and previous")},
    ),
    "transfer": ("start", dict.fromkeys(("LSTM fine-tuned", "LSTM from scratch"), "fine-tuned")),
    "feature_layers": (
        "features",
        {"LSTM each way": "weighted sum of all", "words by characters": "weighted sum of all"},
    ),
}


WITHOUT = {("transfer", "laptop"), ("transfer", "laptop-wide"), ("feature_layers", "encoder")}  # have no LSTM


def systems(name, scale, axis="model"):
    """Model -> system of its first cell."""
    grid, plan = grids.read(name), layout(grids.read(name), scale)
    shop, found = Workshop(grid, scale, plan.baseline), {}
    for values in plan.kept:
        found.setdefault(values[axis], shop.system(values))
    return found


def units(system, parameters):
    """The least number of units at which a system has at least so many parameters."""
    low, high = 1, 1 << 14
    while low < high:
        middle = (low + high) // 2
        enough = system.but(**{"model.hidden_size": middle}).parameters() >= parameters
        low, high = (low, middle) if enough else (middle + 1, high)
    return low


@every("name, scale", cases)
def test_parameters_and_tokens_are_matched(name, scale):
    models = systems(name, scale)
    reference = next(iter(models.values()))
    assert reference.model.kind == "transformer"
    for model, system in models.items():
        assert system.tokens() == reference.tokens()
        assert system.predictions_per_token() == reference.predictions_per_token()
        if system.model.kind == "lstm" and UNMATCHED not in model:
            share = system.parameters() / reference.parameters()
            assert abs(share - 1) <= TOLERANCE, f"{model}: set hidden_size to {units(system, reference.parameters())}"


@every("name, scale", lambda: cases(ARMS))
def test_arms_of_other_questions_have_as_many_parameters(name, scale):
    axis, pairs = ARMS[name]
    found = systems(name, scale, axis)
    for arm, transformer in pairs.items():
        if arm not in found and (name, scale) in WITHOUT:
            continue
        assert (found[arm].model.kind, found[transformer].model.kind) == ("lstm", "transformer")
        share = found[arm].parameters() / found[transformer].parameters()
        assert abs(share - 1) <= TOLERANCE, f"{arm}: {share:.3f}"


def test_there_are_lstms():
    kinds = {(name, scale): [s.model.kind for s in systems(name, scale).values()] for name, scale in cases()}
    assert all("lstm" in found for case, found in kinds.items() if case != ("gpt_pretraining", "laptop"))


def test_the_pretraining_is_the_one_of_the_layers_transferred():
    if "layers_transferred" not in grids.available():
        pytest.skip("no such grid")
    grid = grids.read("layers_transferred")
    plan = layout(grid, "laptop")
    theirs = Workshop(grid, "laptop", plan.baseline).system(plan.kept[0])
    ours = systems("gpt_pretraining", "laptop")
    assert {
        system.model_copy(update={"name": ""}) == theirs.model_copy(update={"name": ""}) for system in ours.values()
    } == {True}
