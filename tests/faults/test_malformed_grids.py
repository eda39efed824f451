"""Grids with mistakes, each with exactly what the user reads."""

import pytest

from ablations.planning import grids
from lightning_modules.config import ConfigError
from tests.faults.mistakes import complaints, is_one_complaint

GOOD = """\
question: Does hiding more help?
base: roberta_base
set: {data.corpora: [wikipedia-mini]}
axes:
  objectives.mlm.masking.rate: [0.15, 0.4]
  model.num_layers: [2, 4]
baseline: {objectives.mlm.masking.rate: 0.15}
seeds: 3
budget: {equal: tokens}
scales:
  smoke:
    description: seconds
    set: {model.hidden_size: 64, training.steps: 20}
metrics:
  - {name: heldout.loss, better: lower}
claims:
  - id: mask15.40_gt_15
    statement: 40 % is better than 15 %
    source: Table 1
    metric: heldout.loss
    better: lower
    a: {objectives.mlm.masking.rate: 0.4}
    b: {objectives.mlm.masking.rate: 0.15}
figure: {x: objectives.mlm.masking.rate, y: heldout.loss}
"""

KNOBS = "objectives.mlm.masking.rate"
SIDES = "    a: {objectives.mlm.masking.rate: 0.4}\n    b: {objectives.mlm.masking.rate: 0.15}\n"

CASES = {
    "misspelt key": (
        ("seeds: 3", "sedes: 3"),
        ["g.yaml:8: sedes: there is no such key. Did you mean 'seeds'?"],
    ),
    "misspelt key of a scale": (
        ("    description: seconds", "    descripton: seconds"),
        ["g.yaml:12: scales.smoke.descripton: there is no such key. Did you mean 'description'?"],
    ),
    "missing key": (
        ("question: Does hiding more help?\n", ""),
        ["g.yaml:1: question: is required and missing"],
    ),
    "misspelt knob of an axis": (
        ("  model.num_layers: [2, 4]", "  model.num_layer: [2, 4]"),
        ["g.yaml:6: axes.model.num_layer: there is no such knob. Did you mean 'model.num_layers'?"],
    ),
    "misspelt knob of a scale": (
        ("model.hidden_size: 64", "model.hiden_size: 64"),
        ["g.yaml:13: scales.smoke.set.model.hiden_size: there is no such knob. Did you mean 'model.hidden_size'?"],
    ),
    "unknown system": (
        ("base: roberta_base", "base: roberta_bas"),
        ["g.yaml:2: base: there is no system 'roberta_bas'. Did you mean 'roberta_base'?"],
    ),
    "value out of range": (
        ("[0.15, 0.4]", "[0.15, 1.4]"),
        [
            f"g.yaml:5: axes.{KNOBS}.1: Input should be less than or equal to 1, not 1.4",
            "g.yaml:22: claims.0.a: no cell of any scale has rate=0.4",
        ],
    ),
    "truth value where a number belongs": (
        ("model.num_layers: [2, 4]", "model.num_layers: [2, true]"),
        ["g.yaml:6: axes.model.num_layers.1: Input should be a valid integer, not True"],
    ),
    "not a number": (
        ("[0.15, 0.4]", "[0.15, 0.4, .nan]"),
        [f"g.yaml:5: axes.{KNOBS}.2: Input should be a valid number, not '.nan'"],
    ),
    "wrong word": (
        ("budget: {equal: tokens}", "budget: {equal: token}"),
        ["g.yaml:9: budget.equal: 'token' is not allowed. Did you mean 'tokens'?"],
    ),
    "value listed twice": (
        ("[0.15, 0.4]", "[0.15, 0.4, 4e-1]"),
        [f"g.yaml:5: axes.{KNOBS}.2: 0.4 is listed twice"],
    ),
    "baseline that is no value": (
        ("baseline: {objectives.mlm.masking.rate: 0.15}", "baseline: {objectives.mlm.masking.rate: 0.2}"),
        [f"g.yaml:7: baseline.{KNOBS}: 0.2 is not among its values at scale 'smoke': 0.15, 0.4"],
    ),
    "baseline that is no axis": (
        ("baseline: {objectives.mlm.masking.rate: 0.15}", "baseline: {model.dropout: 0.1}"),
        [f"g.yaml:7: baseline.model.dropout: is not an axis of this grid. Allowed: model.num_layers, {KNOBS}."],
    ),
    "exclusion that excludes nothing": (
        ("seeds: 3", "exclude: [{when: {model.num_layers: 8}, reason: too slow}]"),
        ["g.yaml:8: exclude.0: excludes nothing: no combination has these values at any scale"],
    ),
    "exclusion without a reason": (
        ("seeds: 3", "exclude: [{when: {model.num_layers: 4}}]"),
        ["g.yaml:8: exclude.0.reason: is required and missing"],
    ),
    "axes that cannot move together": (
        ("seeds: 3", "zip: [[objectives.mlm.masking.rate, model.dropout]]"),
        [f"g.yaml:8: zip.0.1: 'model.dropout' is not an axis of this grid. Allowed: model.num_layers, {KNOBS}."],
    ),
    "claim about no cell": (
        ("    a: {objectives.mlm.masking.rate: 0.4}", "    a: {objectives.mlm.masking.rate: 0.5}"),
        ["g.yaml:22: claims.0.a: no cell of any scale has rate=0.5"],
    ),
    "ordering of two sides": (
        (SIDES, "    relation: ordering\n    sides: [{model.num_layers: 2}, {model.num_layers: 4}]\n"),
        ["g.yaml:17: claims.0: 'ordering' needs 3 to 26 'sides', not 2"],
    ),
    "ordering in the words of two sides": (
        (SIDES, SIDES + "    relation: ordering\n"),
        ["g.yaml:17: claims.0: 'ordering' lists its sides under 'sides', not as 'a', 'b' or 'against'"],
    ),
    "sides of a relation of two": (
        (SIDES, "    sides: [{model.num_layers: 2}, {model.num_layers: 4}]\n"),
        ["g.yaml:17: claims.0: '>' compares two sides, 'a' and 'b': it has no 'sides'"],
    ),
    "interaction without a side": (
        (SIDES, "    relation: interaction\n    sides: [{model.num_layers: 2}, {model.num_layers: 4}, {}]\n"),
        [
            "g.yaml:17: claims.0: 'interaction' needs 4 'sides', not 3",
            "g.yaml:23: claims.0.sides: a side names at least one axis and its value",
        ],
    ),
    "interaction of a cell with itself": (
        (
            SIDES,
            "    relation: interaction\n    sides: [{model.num_layers: 2}, {model.num_layers: 2}, "
            "{model.num_layers: 2}, {model.num_layers: 4}]\n",
        ),
        ["g.yaml:23: claims.0.sides: a difference of a cell to itself is nothing"],
    ),
    "claim that turns its metric round": (
        ("    better: lower\n", "    better: higher\n"),
        ["g.yaml:21: claims.0.better: among the grid's metrics lower is better"],
    ),
    "side of a trend that is no cell": (
        (
            SIDES,
            "    relation: trend\n    sides: [{model.num_layers: 2}, {model.num_layers: 4}, {model.num_layers: 8}]\n",
        ),
        ["g.yaml:23: claims.0.sides.2: no cell of any scale has num_layers=8"],
    ),
    "ratio without a ratio, with a margin": (
        (SIDES, SIDES + "    relation: ratio\n    margin: 0.1\n"),
        [
            "g.yaml:17: claims.0: 'ratio' needs a ratio: how many times as good a is at least",
            "g.yaml:25: claims.0.margin: goes with the relation '~' alone",
        ],
    ),
    "spread against a simple method": (
        (SIDES, "    a: {model.num_layers: 2}\n    against: heldout.bigram_loss\n    relation: spread\n"),
        ["g.yaml:17: claims.0: 'against' goes with '>' and '~'; 'spread' has a side 'b'"],
    ),
    "relation misspelt": (
        (SIDES, SIDES + "    relation: orderin\n"),
        ["g.yaml:24: claims.0.relation: 'orderin' is not allowed. Did you mean 'ordering'?"],
    ),
    "claim without sides": ((SIDES, ""), ["g.yaml:17: claims.0: a claim has a first side: 'a'"]),
    "claim of equality without a margin": (
        ("    better: lower", '    better: lower\n    relation: "~"'),
        ["g.yaml:17: claims.0: a claim of equality ('~') needs a margin"],
    ),
    "official metric of a claim that is not measured": (
        ("    metric: heldout.loss\n", "    metric: heldout.loss\n    official: heldout.los\n"),
        ["g.yaml:21: claims.0.official: 'heldout.los' is not among the metrics. Did you mean 'heldout.loss'?"],
    ),
    "official metric of a claim against a simple method": (
        (SIDES, "    a: {model.num_layers: 2}\n    against: heldout.bigram_loss\n    official: heldout.loss\n"),
        ["g.yaml:24: claims.0.official: a claim against a baseline has one metric"],
    ),
    "metric that nothing measures": (
        ("{name: heldout.loss, better: lower}", "{name: heldout.los, better: lower}"),
        [
            "g.yaml:15: metrics.0.name: there is no metric 'heldout.los'. Did you mean 'heldout.loss'?",
            "g.yaml:20: claims.0.metric: 'heldout.loss' is not among the metrics. Did you mean 'heldout.los'?",
            "g.yaml:24: figure.y: 'heldout.loss' is not among the metrics. Did you mean 'heldout.los'?",
        ],
    ),
    "figure over no axis": (
        ("figure: {x: objectives.mlm.masking.rate", "figure: {x: model.num_layer"),
        ["g.yaml:24: figure.x: 'model.num_layer' is not an axis of this grid. Did you mean 'model.num_layers'?"],
    ),
    "steps that a budget sets": (
        ("  model.num_layers: [2, 4]", "  model.num_layers: [2, 4]\n  training.steps: [10, 20]"),
        ["g.yaml:7: axes.training.steps: the budget (equal: tokens) sets the steps; they cannot vary as well"],
    ),
    "axis over a label": (
        ("  model.num_layers: [2, 4]", "  model.num_layers: [2, 4]\n  name: [a, b]"),
        ["g.yaml:7: axes.name: is a label, which changes no number: nothing would vary"],
    ),
    "published values that are nowhere": (
        ("seeds: 3", "published: {file: absent.csv}"),
        None,
    ),
    "several at once": (
        ("seeds: 3\nbudget: {equal: tokens}", "seeds: three\nseeds: 3\nbudgt: {equal: token}"),
        [
            "g.yaml:8: seeds: Input should be a valid integer, not 'three'",
            "g.yaml:9: seeds: is written twice (first on line 8)",
            "g.yaml:10: budgt: there is no such key. Did you mean 'budget'?",
        ],
    ),
    "code in a name": (
        ("  model.num_layers: [2, 4]", '  "x=1\\nimport os": [2, 4]'),
        ["a knob is lower-case letters, digits, _ and dots, and starts with a letter"],
    ),
    "settings that contradict each other": (
        ("model.hidden_size: 64", "model.hidden_size: 64, model.num_heads: 3"),
        None,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_malformed(tmp_path, case):
    change, expected = CASES[case]
    said = complaints(tmp_path, GOOD, change)
    if case == "code in a name":
        assert expected[0] in said[-1]
    else:
        assert is_one_complaint(said) if expected is None else said == expected


def test_the_grid_without_mistakes_is_read(tmp_path):
    (tmp_path / "g.yaml").write_text(GOOD)
    assert grids.read(tmp_path / "g.yaml").name == "g"


def test_twenty_mistakes_are_said_at_once(tmp_path):
    (tmp_path / "g.yaml").write_text(GOOD + "".join(f"unknown_{n}: 1\n" for n in range(20)))
    with pytest.raises(ConfigError) as raised:
        grids.read(tmp_path / "g.yaml")
    assert [str(p).split(":")[1] for p in raised.value.problems] == [str(n) for n in range(25, 45)]
