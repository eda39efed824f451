"""Grids with mistakes, each with exactly what the user reads."""

import time

import pytest

from ablations import grids
from ablations.plan import plan
from lightning_modules.config import ConfigError

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
    "claim of equality without a margin": (
        ("    better: lower", '    better: lower\n    relation: "~"'),
        ["g.yaml:17: claims.0: a claim of equality ('~') needs a margin"],
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

RICH = """\
question: Do pairs help?
base: bert_base
set: {data.corpora: [wikipedia-mini], finetuning.epochs: 2}
axes:
  objective: [single, pairs]
  model.embedding_size: [64, 128, 768]
variants:
  objective:
    single: {format.kind: full_sentences, objectives.sentence: null}
    pairs: {format.kind: segment_pairs, objectives.sentence.weight: 0.5}
baseline: {objective: single, model.embedding_size: 768}
tasks: [cola]
scales:
  smoke:
    tasks: [rte]
    axes: {model.embedding_size: [2, 4, 8]}
    stands_for: {model.embedding_size: [64, 128, 768]}
    set: {model.hidden_size: 8, finetuning.batch_size: 8}
metrics:
  - {name: heldout.sop_accuracy, better: higher}
  - {name: rte.accuracy, better: higher}
published:
  - {file: albert, table: T3 embedding-size, match: {embedding_size: model.embedding_size}, where: {sharing: all}}
claims:
  - id: learned
    statement: It learns.
    source: Table 1
    metric: heldout.sop_accuracy
    better: higher
    a: {objective: pairs}
    against: heldout.sop_majority
figure: {x: objective, y: [heldout.sop_accuracy, rte.accuracy]}
"""

# what is written instead, and all that is said of it
RICH_CASES = {
    "unknown variant": (
        ("[single, pairs]", "[single, pair]"),
        ["g.yaml:5: axes.objective.1: there is no objective 'pair'. Did you mean 'pairs'?"],
    ),
    "variant that is no name": (
        ("[single, pairs]", "[single, {a: 1}]"),
        ["g.yaml:5: axes.objective.1: there is no objective {'a': 1}. Allowed: pairs, single."],
    ),
    "variants of a misspelt axis": (
        ("variants:\n  objective:", "variants:\n  objectve:"),
        [
            "g.yaml:5: axes.objective: there is no such knob. Did you mean 'objectives'?",
            "g.yaml:8: variants.objectve: is not an axis of this grid. Did you mean 'objective'?",
        ],
    ),
    "variants of a knob": (
        ("variants:\n", "variants:\n  model.embedding_size: {a: {}}\n"),
        [
            *(f"g.yaml:6: axes.model.embedding_size.{n}: there is no model.embedding_size {value}. Allowed: a."
              for n, value in enumerate((64, 128, 768))),
            "g.yaml:8: variants.model.embedding_size: the name of an axis that is no knob has no dot, and is not "
            "'system'",
            *(f"g.yaml:17: scales.smoke.axes.model.embedding_size.{n}: there is no model.embedding_size {value}. "
              "Allowed: a." for n, value in enumerate((2, 4, 8))),
        ],
    ),
    "misspelt knob of a variant": (
        ("sentence.weight: 0.5", "sentence.wight: 0.5"),
        [
            "g.yaml:10: variants.objective.pairs.objectives.sentence.wight: there is no such knob. "
            "Did you mean 'objectives.sentence.weight'?"
        ],
    ),
    "bad value of a variant": (
        ("sentence.weight: 0.5", "sentence.weight: -1"),
        ["g.yaml:10: variants.objective.pairs.objectives.sentence.weight: Input should be greater than 0, not -1"],
    ),
    "unknown task": (("tasks: [cola]", "tasks: [colla]"),
                     ["g.yaml:12: tasks.0: there is no task 'colla'. Did you mean 'cola'?"]),
    "unknown task of a scale": (("tasks: [rte]", "tasks: [rte, mprc]"),
                                ["g.yaml:15: scales.smoke.tasks.1: there is no task 'mprc'. Did you mean 'mrpc'?"]),
    "misspelt knob of fine-tuning": (
        ("finetuning.batch_size", "finetuning.batch_sise"),
        [
            "g.yaml:18: scales.smoke.set.finetuning.batch_sise: there is no such knob. "
            "Did you mean 'finetuning.batch_size'?"
        ],
    ),
    "bad value of fine-tuning": (
        ("finetuning.epochs: 2", "finetuning.epochs: 0"),
        ["g.yaml:3: set.finetuning.epochs: Input should be greater than or equal to 1, not 0"],
    ),
    "bad value of an axis of fine-tuning": (
        ("  model.embedding_size: [64,", "  finetuning.dropout: [0.1, 1.5]\n  model.embedding_size: [64,"),
        ["g.yaml:6: axes.finetuning.dropout.1: Input should be less than 1, not 1.5"],
    ),
    "fewer stand-ins than values": (
        ("stands_for: {model.embedding_size: [64, 128, 768]}", "stands_for: {model.embedding_size: [64, 768]}"),
        [
            "g.yaml:17: scales.smoke.stands_for.model.embedding_size: 2 published values for the 3 values of the axis "
            "at scale 'smoke'"
        ],
    ),
    "stand-ins of a misspelt axis": (
        ("stands_for: {model.embedding_size", "stands_for: {model.embeding_size"),
        [
            "g.yaml:17: scales.smoke.stands_for.model.embeding_size: is not an axis of this grid. "
            "Did you mean 'model.embedding_size'?"
        ],
    ),
    "stand-ins without the baseline": (
        ("[64, 128, 768]}\n    set", "[64, 128, 256]}\n    set"),
        [
            "g.yaml:11: baseline.model.embedding_size: 768 is not among its values at scale 'smoke': 2, 4, 8",
            "g.yaml:30: claims.0.a: no cell of any scale has pairs",
        ],
    ),
    "claim against something else": (
        ("against: heldout.sop_majority", "against: heldout.nsp_majority"),
        [
            "g.yaml:31: claims.0.against: is not what heldout.sop_accuracy is read against. "
            "Did you mean 'heldout.sop_majority'?"
        ],
    ),
    "claim with two second sides": (
        ("    against:", "    b: {objective: single}\n    against:"),
        ["g.yaml:25: claims.0: a claim has a second side: either 'b' or 'against'"],
    ),
    "claim without a second side": (
        ("    against: heldout.sop_majority\n", ""),
        ["g.yaml:25: claims.0: a claim has a second side: either 'b' or 'against'"],
    ),
    "published column to match that is none": (
        ("match: {embedding_size", "match: {embeding_size"),
        ["g.yaml:23: published.0.match.embeding_size: is no column of albert. Did you mean 'embedding_size'?"],
    ),
    "published column to choose by that is none": (
        ("where: {sharing", "where: {sharin"),
        ["g.yaml:23: published.0.where.sharin: is no column of albert. Did you mean 'sharing'?"],
    ),
    "published values as before": (
        ("  - {file: albert,", "  {file: albert,"),
        None,
    ),
    "figure of a metric that is not compared": (
        ("rte.accuracy]}", "rte.acuracy]}"),
        ["g.yaml:32: figure.y: 'rte.acuracy' is not among the metrics. Did you mean 'rte.accuracy'?"],
    ),
    "chain that does not grow": (
        ("model.hidden_size: 8,", "model.hidden_size: 8, training.warm_start: [12],"),
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", [*CASES, *RICH_CASES])
def test_malformed(tmp_path, case):
    (old, new), expected = {**CASES, **RICH_CASES}[case]
    good = GOOD if case in CASES else RICH
    assert good.count(old) >= 1
    file = tmp_path / "g.yaml"
    file.write_text(good.replace(old, new, 1))
    began = time.process_time()
    with pytest.raises(ConfigError) as raised:
        grids.read(file)
    assert time.process_time() - began < 1
    said = str(raised.value).splitlines()
    if expected is None:
        assert len(said) == 1
        assert said[0].startswith("g.yaml:")
    elif case == "code in a name":
        assert expected[0] in said[-1]
    else:
        assert said == expected


@pytest.mark.parametrize("good", [GOOD, RICH], ids=["plain", "rich"])
def test_the_grid_without_mistakes_is_read(tmp_path, good):
    (tmp_path / "g.yaml").write_text(good)
    assert grids.read(tmp_path / "g.yaml").name == "g"


def test_twenty_mistakes_are_said_at_once(tmp_path):
    (tmp_path / "g.yaml").write_text(GOOD + "".join(f"unknown_{n}: 1\n" for n in range(20)))
    with pytest.raises(ConfigError) as raised:
        grids.read(tmp_path / "g.yaml")
    assert [str(p).split(":")[1] for p in raised.value.problems] == [str(n) for n in range(25, 45)]


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"objective": ["pair"]}, "objective: there is no objective 'pair'. Did you mean 'pairs'?"),
        ({"objective": [["pairs"]]}, "objective: there is no objective ['pairs']. Did you mean 'pairs'?"),
        ({"objectve": ["pairs"]}, "objectve: is not an axis of 'g'. Did you mean 'objective'?"),
    ],
)
def test_names_asked_for_beside_the_grid_are_checked(tmp_path, axes, message):
    (tmp_path / "g.yaml").write_text(RICH)
    with pytest.raises(ConfigError) as raised:
        plan(grids.read(tmp_path / "g.yaml"), "smoke", axes=axes)
    assert str(raised.value) == message


def test_an_axis_of_variants_without_any_is_refused(tmp_path):
    start, end = RICH.split("variants:")[0], RICH.split("baseline:")[1]
    (tmp_path / "g.yaml").write_text(f"{start}variants: {{objective: {{}}}}\nbaseline:{end}")
    with pytest.raises(ConfigError, match=r"g\.yaml:5: axes\.objective\.0: there is no objective 'single'\.\n"):
        grids.read(tmp_path / "g.yaml")
