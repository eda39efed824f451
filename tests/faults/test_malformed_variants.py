"""Grids of variants, tasks and stand-ins with mistakes, each with what the user is told."""

import pytest

from ablations.planning import grids
from lightning_modules.config import ConfigError
from tests.faults.mistakes import assert_complaints, complaints, is_one_complaint, says

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
  - {name: heldout.sop_accuracy}
  - {name: rte.accuracy}
published:
  - {file: albert, table: T3 embedding-size, match: {embedding_size: model.embedding_size}, where: {sharing: all}}
claims:
  - id: learned
    statement: It learns.
    source: Table 1
    metric: heldout.sop_accuracy
    a: {objective: pairs}
    against: heldout.sop_majority
figure: {x: objective, y: [heldout.sop_accuracy, rte.accuracy]}
"""

# what is written instead, and all that is said of it
CASES = {
    "unknown variant": (
        ("[single, pairs]", "[single, pair]"),
        [says("g.yaml:5: axes.objective.1", "pair", near="pairs")],
    ),
    "variant that is no name": (
        ("[single, pairs]", "[single, {a: 1}]"),
        [says("g.yaml:5: axes.objective.1", "{'a': 1}", "pairs", "single"), says("g.yaml:29: claims.0.a", "pairs")],
    ),
    "baseline that is no variant": (
        ("baseline: {objective: single", "baseline: {objective: singel"),
        [says("g.yaml:11: baseline.objective", "'singel'", near="single")],
    ),
    "variants of a misspelt axis": (
        ("variants:\n  objective:", "variants:\n  objectve:"),
        [says("g.yaml:8: variants.objectve", near="objective")],
    ),
    "variants of a knob": (
        ("variants:\n", "variants:\n  model.embedding_size: {a: {}}\n"),
        [says("g.yaml:8: variants.model.embedding_size", "system", "dot")],
    ),
    "misspelt knob of a variant": (
        ("sentence.weight: 0.5", "sentence.wight: 0.5"),
        [
            says("g.yaml:10: variants.objective.pairs.objectives.sentence.wight", near="objectives.sentence.weight")
        ],
    ),
    "bad value of a variant": (
        ("sentence.weight: 0.5", "sentence.weight: -1"),
        [says("g.yaml:10: variants.objective.pairs.objectives.sentence.weight", "0", "1")],
    ),
    "unknown task": (("tasks: [cola]", "tasks: [colla]"),
                     [says("g.yaml:12: tasks.0", "colla", near="cola")]),
    "unknown task of a scale": (("tasks: [rte]", "tasks: [rte, mprc]"),
                                [says("g.yaml:15: scales.smoke.tasks.1", "mprc", near="mrpc")]),
    "misspelt knob of fine-tuning": (
        ("finetuning.batch_size", "finetuning.batch_sise"),
        [
            says("g.yaml:18: scales.smoke.set.finetuning.batch_sise", near="finetuning.batch_size")
        ],
    ),
    "bad value of fine-tuning": (
        ("finetuning.epochs: 2", "finetuning.epochs: 0"),
        [says("g.yaml:3: set.finetuning.epochs", "1", "0")],
    ),
    "bad value of an axis of fine-tuning": (
        ("  model.embedding_size: [64,", "  finetuning.dropout: [0.1, 1.5]\n  model.embedding_size: [64,"),
        [says("g.yaml:6: axes.finetuning.dropout.1", "1", "1.5")],
    ),
    "fewer stand-ins than values": (
        ("stands_for: {model.embedding_size: [64, 128, 768]}", "stands_for: {model.embedding_size: [64, 768]}"),
        [
            says("g.yaml:17: scales.smoke.stands_for.model.embedding_size", "2", "3", "smoke", "published")
        ],
    ),
    "stand-ins of a misspelt axis": (
        ("stands_for: {model.embedding_size", "stands_for: {model.embeding_size"),
        [
            says("g.yaml:17: scales.smoke.stands_for.model.embeding_size", near="model.embedding_size")
        ],
    ),
    "stand-ins without the baseline": (
        ("[64, 128, 768]}\n    set", "[64, 128, 256]}\n    set"),
        [
            says("g.yaml:11: baseline.model.embedding_size", "768", "smoke", "2", "4", "8"),
            says("g.yaml:29: claims.0.a", "pairs"),
        ],
    ),
    "claim against something else": (
        ("against: heldout.sop_majority", "against: heldout.nsp_majority"),
        [
            says("g.yaml:30: claims.0.against", "heldout.sop_accuracy", near="heldout.sop_majority")
        ],
    ),
    "claim with two second sides": (
        ("    against:", "    b: {objective: single}\n    against:"),
        [says("g.yaml:25: claims.0", "'b'", "'against'")],
    ),
    "claim without a second side": (
        ("    against: heldout.sop_majority\n", ""),
        [says("g.yaml:25: claims.0", "'b'", "'against'")],
    ),
    "published column to match that is none": (
        ("match: {embedding_size", "match: {embeding_size"),
        [says("g.yaml:23: published.0.match.embeding_size", "albert", near="embedding_size")],
    ),
    "published column to choose by that is none": (
        ("where: {sharing", "where: {sharin"),
        [says("g.yaml:23: published.0.where.sharin", "albert", near="sharing")],
    ),
    "published values as before": (
        ("  - {file: albert,", "  {file: albert,"),
        None,
    ),
    "figure of a metric that is not compared": (
        ("rte.accuracy]}", "rte.acuracy]}"),
        [says("g.yaml:31: figure.y.1", "rte.acuracy", near="rte.accuracy")],
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
    if expected is None:
        assert is_one_complaint(said)
    else:
        assert_complaints(said, expected)


def test_an_axis_of_variants_without_any_is_refused(tmp_path):
    start, end = RICH.split("variants:")[0], RICH.split("baseline:")[1]
    (tmp_path / "g.yaml").write_text(f"{start}variants: {{objective: {{}}}}\nbaseline:{end}")
    with pytest.raises(ConfigError, match=r"g\.yaml:5: axes\.objective\.0: .*'single'"):
        grids.read(tmp_path / "g.yaml")
