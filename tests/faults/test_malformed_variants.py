"""Grids of variants, tasks and stand-ins with mistakes, each with exactly what the user reads."""

import pytest

from ablations.planning import grids
from ablations.planning.plan import plan
from lightning_modules.config import ConfigError
from tests.faults.mistakes import complaints, is_one_complaint

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
CASES = {
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


@pytest.mark.parametrize("case", CASES)
def test_malformed(tmp_path, case):
    change, expected = CASES[case]
    said = complaints(tmp_path, RICH, change)
    assert is_one_complaint(said) if expected is None else said == expected


def test_the_grid_without_mistakes_is_read(tmp_path):
    (tmp_path / "g.yaml").write_text(RICH)
    assert grids.read(tmp_path / "g.yaml").name == "g"


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
