"""Grids with mistakes, each with what the user is told: file and line, the offending word, what is near or allowed."""

import pytest

from ablations.planning import grids
from lightning_modules.config import ConfigError
from tests.faults.mistakes import assert_complaints, complaints, is_one_complaint, says

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
  - {name: heldout.loss}
claims:
  - id: mask15.40_gt_15
    statement: 40 % is better than 15 %
    source: Table 1
    metric: heldout.loss
    a: {objectives.mlm.masking.rate: 0.4}
    b: {objectives.mlm.masking.rate: 0.15}
figure: {x: objectives.mlm.masking.rate, y: heldout.loss}
"""

KNOBS = "objectives.mlm.masking.rate"
SIDES = "    a: {objectives.mlm.masking.rate: 0.4}\n    b: {objectives.mlm.masking.rate: 0.15}\n"

CASES = {
    "missing key": (
        ("question: Does hiding more help?\n", ""),
        [says("g.yaml:1: question", "required")],
    ),
    "truth value where a number belongs": (
        ("model.num_layers: [2, 4]", "model.num_layers: [2, true]"),
        [says("g.yaml:6: axes.model.num_layers.1", "integer", "True")],
    ),
    "not a number": (
        ("[0.15, 0.4]", "[0.15, 0.4, .nan]"),
        [says(f"g.yaml:5: axes.{KNOBS}.2", ".nan", "number")],
    ),
    "value listed twice": (
        ("[0.15, 0.4]", "[0.15, 0.4, 4e-1]"),
        [says(f"g.yaml:5: axes.{KNOBS}.2", "0.4", "twice")],
    ),
    "baseline that is no axis": (
        ("baseline: {objectives.mlm.masking.rate: 0.15}", "baseline: {model.dropout: 0.1}"),
        [says("g.yaml:7: baseline.model.dropout", "model.num_layers", f"{KNOBS}")],
    ),
    "reader of tasks that read no text": (
        ("  model.num_layers: [2, 4]\n", "  finetuning.reader: [first, mean]\ntasks: [squad1, wnut17]\n"),
        [says("g.yaml:12: scales.smoke", "finetuning.reader", "squad1", "wnut17", "positions")],
    ),
    "exclusion that excludes nothing": (
        ("seeds: 3", "exclude: [{when: {model.num_layers: 8}, reason: too slow}]"),
        [says("g.yaml:8: exclude.0", "nothing")],
    ),
    "axes that cannot move together": (
        ("seeds: 3", "zip: [[objectives.mlm.masking.rate, model.dropout]]"),
        [says("g.yaml:8: zip.0.1", "model.dropout", "model.num_layers", f"{KNOBS}")],
    ),
    "claim about no cell": (
        ("    a: {objectives.mlm.masking.rate: 0.4}", "    a: {objectives.mlm.masking.rate: 0.5}"),
        [says("g.yaml:21: claims.0.a", "rate=0.5")],
    ),
    "ordering of two sides": (
        (SIDES, "    relation: ordering\n    sides: [{model.num_layers: 2}, {model.num_layers: 4}]\n"),
        [says("g.yaml:17: claims.0", "ordering", "3", "26", "sides", "2")],
    ),
    "ordering in the words of two sides": (
        (SIDES, SIDES + "    relation: ordering\n"),
        [says("g.yaml:17: claims.0", "ordering", "sides", "'a'", "'b'", "against")],
    ),
    "sides of a relation of two": (
        (SIDES, "    sides: [{model.num_layers: 2}, {model.num_layers: 4}]\n"),
        [says("g.yaml:17: claims.0", ">", "'a'", "'b'", "sides")],
    ),
    "interaction without a side": (
        (SIDES, "    relation: interaction\n    sides: [{model.num_layers: 2}, {model.num_layers: 4}, {}]\n"),
        [
            says("g.yaml:17: claims.0", "interaction", "4", "sides", "3"),
            says("g.yaml:22: claims.0.sides", "axis"),
        ],
    ),
    "interaction of a cell with itself": (
        (
            SIDES,
            "    relation: interaction\n    sides: [{model.num_layers: 2}, {model.num_layers: 2}, "
            "{model.num_layers: 2}, {model.num_layers: 4}]\n",
        ),
        [says("g.yaml:22: claims.0.sides", "itself")],
    ),
    "side of a trend that is no cell": (
        (
            SIDES,
            "    relation: trend\n    sides: [{model.num_layers: 2}, {model.num_layers: 4}, {model.num_layers: 8}]\n",
        ),
        [says("g.yaml:22: claims.0.sides.2", "num_layers=8")],
    ),
    "ratio without a ratio, with a margin": (
        (SIDES, SIDES + "    relation: ratio\n    margin: 0.1\n"),
        [
            says("g.yaml:17: claims.0", "ratio"),
            says("g.yaml:24: claims.0.margin", "~"),
        ],
    ),
    "spread against a simple method": (
        (SIDES, "    a: {model.num_layers: 2}\n    against: heldout.bigram_loss\n    relation: spread\n"),
        [says("g.yaml:17: claims.0", "against", ">", "~", "spread", "'b'")],
    ),
    "size of a claim of equality, which is one": (
        (SIDES, SIDES + '    relation: "~"\n    size: inside\n'),
        [says("g.yaml:24: claims.0.size", ">")],
    ),
    "official metric of a claim that is not measured": (
        ("    metric: heldout.loss\n", "    metric: heldout.loss\n    official: heldout.los\n"),
        [says("g.yaml:21: claims.0.official", "heldout.los", near="heldout.loss")],
    ),
    "official metric of a claim against a simple method": (
        (SIDES, "    a: {model.num_layers: 2}\n    against: heldout.bigram_loss\n    official: heldout.loss\n"),
        [says("g.yaml:23: claims.0.official", "baseline")],
    ),
    "figure over no axis": (
        ("figure: {x: objectives.mlm.masking.rate", "figure: {x: model.num_layer"),
        [says("g.yaml:23: figure.x", "model.num_layer", near="model.num_layers")],
    ),
    "steps that a budget sets": (
        ("  model.num_layers: [2, 4]", "  model.num_layers: [2, 4]\n  training.steps: [10, 20]"),
        [says("g.yaml:7: axes.training.steps", "budget")],
    ),
    "axis over a label": (
        ("  model.num_layers: [2, 4]", "  model.num_layers: [2, 4]\n  name: [a, b]"),
        [says("g.yaml:7: axes.name", "label")],
    ),
    "published values that are nowhere": (
        ("seeds: 3", "published: {file: absent.csv}"),
        None,
    ),
    "code in a name": (
        ("  model.num_layers: [2, 4]", '  "x=1\\nimport os": [2, 4]'),
        ["lower-case letters, digits, _ and dots"],
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
    elif expected is None:
        assert is_one_complaint(said)
    else:
        assert_complaints(said, expected)


EVERYTHING = """\
question: Does hiding more help?
base: roberta_bas
sedes: 3
set: {data.corpora: [wikipedia-mini], model.hiden_size: -64, model.dropout: 1.5}
axes:
  objectives.mlm.masking.rate: [0.15, 1.4]
  model.num_layer: [2, -4]
  model.activation: [gelu, gleu]
baseline: {objectives.mlm.masking.rat: 0.2}
seeds: three
budget: {equal: tokns}
tasks: [rte, rtee]
zip: [[model.num_layers, model.activaton]]
exclude: [{when: {model.num_layers: 2}}]
scales:
  smoke: {descripton: seconds, seeds: 0, set: {training.stepz: 20, training.batch_size: 0}}
metrics:
  - {name: heldout.loss, beter: lowr}
  - {name: heldout.los}
  - {label: loss}
  - {name: rte.acuracy}
claims:
  - {id: y, statement: Says nothing of a metric.}
  - {claim: nothing.like.it, metric: heldout.loss, a: {objectives.mlm.masking.rate: 0.5}}
  - {id: z, statement: A., mtric: heldout.loss, a: {objectives.mlm.masking.rat: 0.15}, relation: "~"}
figure: {x: objectives.mlm.masking.rat, y: [heldout.loss, rte.acuracy]}
search: {axes: {optimizer.peak_lrr: [1, -1]}, metric: heldout.los}
"""
PLANTED = [
    says("g.yaml:2: base", "roberta_bas", near="roberta_base"),
    says("g.yaml:3: sedes", near="seeds"),
    says("g.yaml:4: set.model.hiden_size", near="model.hidden_size"),
    says("g.yaml:4: set.model.hidden_size", "64"),
    says("g.yaml:4: set.model.dropout", "1.5"),
    says(f"g.yaml:6: axes.{KNOBS}.1", "1.4"),
    says("g.yaml:7: axes.model.num_layer", near="model.num_layers"),
    says("g.yaml:7: axes.model.num_layers.1", "4"),
    says("g.yaml:8: axes.model.activation.1", "gleu", near="gelu"),
    says("g.yaml:9: baseline.objectives.mlm.masking.rat", "25", "26", near=KNOBS),
    says(f"g.yaml:9: baseline.{KNOBS}", "0.2"),
    says("g.yaml:10: seeds", "three", "integer"),
    says("g.yaml:11: budget.equal", "tokns", near="tokens"),
    says("g.yaml:12: tasks.1", "rtee", near="rte"),
    says("g.yaml:13: zip.0.1", "model.activaton", near="model.activation"),
    says("g.yaml:14: exclude.0.reason", "required"),
    says("g.yaml:16: scales.smoke.descripton", near="description"),
    says("g.yaml:16: scales.smoke.seeds", "0"),
    says("g.yaml:16: scales.smoke.set.training.stepz", near="training.steps"),
    says("g.yaml:16: scales.smoke.set.training.batch_size", "0"),
    says("g.yaml:18: metrics.0.beter"),
    says("g.yaml:19: metrics.1.name", "heldout.los", "27", near="heldout.loss"),
    says("g.yaml:20: metrics.2.name", "required"),
    says("g.yaml:21: metrics.3.name", "rte.acuracy", "26", near="rte.accuracy"),
    says("g.yaml:23: claims.0.metric", "required"),
    says("g.yaml:24: claims.1.claim", "nothing.like.it"),
    says("g.yaml:24: claims.1", "'b'"),
    says("g.yaml:25: claims.2.mtric", near="metric"),
    says("g.yaml:25: claims.2", "'b'"),
    says("g.yaml:27: search.axes.optimizer.peak_lrr", near="optimizer.peak_lr"),
    says("g.yaml:27: search.axes.optimizer.peak_lr.1", "1"),
]


def test_mistakes_of_every_kind_are_said_at_once_each_at_its_own_line(tmp_path):
    """Misspelt keys and names hide neither wrong values nor the places of what follows them in a list."""
    (tmp_path / "g.yaml").write_text(EVERYTHING)
    with pytest.raises(ConfigError) as raised:
        grids.read(tmp_path / "g.yaml")
    said = str(raised.value).splitlines()
    missing = [one for one in PLANTED if not any(one.fits(line) for line in said)]
    assert not missing, said
    assert len(said) <= len(PLANTED) + 3, said
