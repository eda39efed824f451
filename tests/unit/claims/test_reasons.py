"""Regimes of verdicts: floors, controls, the rate, threats. Why a claim stays open; and the noise of examples."""

import numpy as np
import pytest

from ablations.claims import judging
from ablations.claims.outcomes import AS_CLAIMED, OPEN, WITHIN, Direction, Reason, Regime, Size
from ablations.core.store import Records, RecordWarning
from ablations.measurements.measurements import SILENT, Measurements
from ablations.schema.cell import Trial
from ablations.schema.run import Run
from lightning_modules.tasks.scores.kept import pack
from tests.unit.synthetic import RATE, losses, make_cell, make_claim, make_grid, make_record

TASK = {"metric": "rte.accuracy", "published": {}}
GRID = {
    "axes": {RATE: [0.15, 0.4]},
    "metrics": [{"name": "rte.accuracy"}, {"name": "heldout.loss"}],
}
SPREAD = np.array([-0.006, -0.002, 0.002, 0.006, 0.0])


def tuned(a, b, majority=0.527, **changes):
    """Fine-tunings of two cells whose accuracies are about ``a`` and ``b``; ``changes`` of one seed: run -> metrics."""
    cells, records = [make_cell({RATE: rate}, task="rte") for rate in (0.4, 0.15)], {}
    for cell, mean, order in zip(cells, (a, b), (SPREAD, np.roll(SPREAD, 2)), strict=True):
        for run, x in zip(cell.finetunings, order, strict=True):
            metrics = {"rte.accuracy": mean + x, "rte.accuracy.majority": majority, "rte.all_equal": False}
            records[run.id] = make_record(run, 0.0, kind="finetune", metrics=metrics | changes, curve={})
    return cells, records


def judged(cells, records, **claim):
    grid = make_grid(claims=[make_claim(**TASK | claim)], **GRID)
    return judging.verdicts(Measurements(grid, cells, records))[0]


def test_two_models_at_the_majority_are_equal_below_counting():
    below = judged(*tuned(0.527, 0.5272), relation="~", margin=0.05)
    assert "2 of 2 sides not shown to be better than the majority class" in below.remarks
    above = judged(*tuned(0.627, 0.6272), relation="~", margin=0.05)
    assert (above.outcome, above.size) == (below.outcome, below.size) == (AS_CLAIMED, Size.INSIDE)
    assert (above.regime, below.regime) == (Regime.AS_PUBLISHED, Regime.BELOW)


def test_a_direction_is_past_counting_if_one_side_is():
    for a, b, regime in ((0.60, 0.527, Regime.AS_PUBLISHED), (0.52, 0.45, Regime.BELOW)):
        found = judged(*tuned(a, b))
        assert (found.outcome, found.direction, found.regime) == (AS_CLAIMED, Direction.POSITIVE, regime)


def test_a_side_within_noise_of_the_majority_is_at_the_floor():
    assert "1 of 2 sides" in judged(*tuned(0.60, 0.529)).remarks
    assert "not shown" not in judged(*tuned(0.60, 0.545)).remarks


def test_the_bar_of_a_task_is_the_best_method_without_a_network():
    cells, records = tuned(0.64, 0.60, **{"rte.accuracy.tfidf": 0.66})
    found = judged(cells, records)
    assert (found.outcome, found.regime) == (AS_CLAIMED, Regime.BELOW)
    assert "TF-IDF" in found.remarks
    assert judged(*tuned(0.68, 0.60, **{"rte.accuracy.tfidf": 0.66})).regime is Regime.AS_PUBLISHED


def test_no_difference_and_none_beyond_the_margin_is_an_answer():
    found = judged(*tuned(0.627, 0.6272), margin=0.05)
    assert (found.outcome, found.reason, found.size) == (WITHIN, Reason.NONE, Size.INSIDE)
    assert judged(*tuned(0.627, 0.6272), margin=0.001).outcome == OPEN


# --- positive controls


def above_majority(a, control, **claim):
    """A claim that a cell, at ``a``, is at the majority of .527, and one that it is better than another cell."""
    cells, records = tuned(a, control)
    asked = TASK | {"b": {}, "against": "rte.accuracy.majority", "relation": "~", "margin": 0.02} | claim
    better = make_claim(id="other", **TASK | {"a": {RATE: 0.15}, "b": {}, "against": "rte.accuracy.majority"})
    grid = make_grid(claims=[make_claim(**asked), better], **GRID)
    return judging.verdicts(Measurements(grid, cells, records))


CONTROL = {"positive_control": {"at": {RATE: 0.15}}}


def test_chance_says_nothing_where_the_positive_control_is_at_chance_too():
    learned, _ = above_majority(0.527, 0.627, **CONTROL)
    found, _ = above_majority(0.527, 0.528, **CONTROL)
    without, _ = above_majority(0.527, 0.528)
    assert learned.outcome == found.outcome == without.outcome == AS_CLAIMED
    assert (learned.regime, found.regime, without.regime) == (
        Regime.AS_PUBLISHED, Regime.PLATEAU, Regime.AS_PUBLISHED
    )  # fmt: skip
    assert "positive control, masking rate 15 %" in found.remarks


def test_a_control_may_be_asked_on_another_metric_and_may_lack_runs():
    elsewhere = {"positive_control": {"at": {RATE: 0.15}, "metric": "mrpc.accuracy"}}
    assert "has no result" in above_majority(0.527, 0.627, **elsewhere)[0].remarks


def test_a_control_may_have_to_learn_more_than_a_simple_method_knows():
    above = {"positive_control": {"at": {RATE: 0.15}, "above": "rte.accuracy.tfidf"}}
    assert judged(*tuned(0.66, 0.63, **{"rte.accuracy.tfidf": 0.62}), **above).regime is Regime.AS_PUBLISHED
    cells, records = tuned(0.66, 0.63, **{"rte.accuracy.tfidf": 0.64})
    assert judged(cells, records, **CONTROL).regime is Regime.AS_PUBLISHED
    found = judged(cells, records, **above)
    assert (found.outcome, found.regime) == (AS_CLAIMED, Regime.PLATEAU)
    assert "is no better than TF-IDF" in found.remarks


# --- fine-tunings that answer every example alike


def silence(cell, records, count):
    for run in cell.finetunings[:count]:
        records[run.id] = records[run.id].but(metrics=records[run.id].metrics | {"rte.all_equal": True})


def test_equal_outputs_are_counted_and_enter_no_mean():
    cells, records = tuned(0.60, 0.58)
    before = judged(cells, records).effect
    silence(cells[1], records, 2)
    records[cells[1].finetunings[0].id] = records[cells[1].finetunings[0].id].but(
        metrics={"rte.accuracy": 0.1, "rte.accuracy.majority": 0.527, "rte.all_equal": True}
    )
    found = judged(cells, records)
    assert found.n == 3
    assert found.effect == pytest.approx(before, abs=0.01)
    assert "2 fine-tunings with all outputs equal, not counted" in found.remarks
    table = Measurements(make_grid(**GRID), cells, records)
    assert {row.outcome for row in table.rows if row.run == cells[1].finetunings[0].id} == {SILENT}


def test_a_side_of_equal_outputs_alone_has_no_score():
    cells, records = tuned(0.60, 0.58)
    silence(cells[1], records, 5)
    found = judged(cells, records)
    assert (found.outcome, found.reason, found.is_measured) == (OPEN, Reason.SILENT, False)


def test_failed_runs_are_what_a_claim_about_spread_is_about():
    cells, records = tuned(0.60, 0.60)
    silence(cells[1], records, 2)
    for run in cells[1].finetunings[:2]:
        records[run.id] = records[run.id].but(metrics=records[run.id].metrics | {"rte.accuracy": 0.527})
    found = judged(cells, records, relation="spread")
    assert found.n == 5
    assert found.effect > 0.02
    assert "2 fine-tunings with all outputs equal, counted" in found.remarks


# --- held-out text


def test_losses_on_other_held_out_text_are_not_subtracted():
    cells = [make_cell({RATE: rate}) for rate in (0.4, 0.15)]
    records, grid = losses(cells[0], FAR[0]) | losses(cells[1], FAR[1]), make_grid(axes={RATE: [0.15, 0.4]})
    assert judging.verdicts(Measurements(grid, cells, records))[0].outcome == AS_CLAIMED
    for knob, value in (
        ("data.tokenizer.vocab_size", 999),
        ("format.sequence_length", 16),
        ("evaluation.sequences", 7),
    ):
        other = cells[1].model_copy(update={"system": cells[1].system.but(**{knob: value})})
        (found,) = judging.verdicts(Measurements(grid, [cells[0], other], records))
        assert (found.outcome, found.reason, found.p) == (OPEN, Reason.TEXT, None)


def test_an_interaction_compares_differences_that_are_each_within_one_text():
    """The effect on a text with a property against that on its control."""
    cells, records = [], {}
    for text, means in (("made:order", (4.0, 4.5)), ("made:no-order", (3.0, 3.1))):
        for rate, mean in zip((0.4, 0.15), means, strict=True):
            cell = make_cell({RATE: rate, "data.corpora": (text,)})
            cells.append(cell.model_copy(update={"system": cell.system.but(**{"data.corpora": (text,)})}))
            records |= losses(cells[-1], (mean + SPREAD).tolist())
    a, b, c, d = (dict(cell.values) for cell in cells)
    asked = {"relation": "interaction", "a": {}, "b": {}, "published": {}}
    claims = [make_claim(**asked, sides=[a, b, c, d]), make_claim(**asked, sides=[a, c, b, d], id="crossed")]
    grid = make_grid(axes={RATE: [0.15, 0.4], "data.corpora": [["made:order"], ["made:no-order"]]}, claims=claims)
    found, crossed = judging.verdicts(Measurements(grid, cells, records))
    assert (found.outcome, found.effect) == (AS_CLAIMED, pytest.approx(0.4))
    assert (crossed.outcome, crossed.reason) == (OPEN, Reason.TEXT), "its brackets hold losses on two texts"


# --- the rate


def searched(cell, chosen, by_rate, records):
    """A cell that searched two rates; its trials ended at the given losses."""
    trials = []
    for rate, loss in by_rate.items():
        system = cell.system.but(**{"optimizer.peak_lr": rate})
        run = Run.pretraining(system, 1000, dict.fromkeys(system.data.corpora, cell.label))
        records[run.id] = make_record(run, loss)
        values = {"optimizer.peak_lr": rate}
        trials.append(Trial(values=values, label=f"{cell.label}, {rate}", system=system, runs=(run,)))
    return cell.model_copy(update={"search": tuple(trials), "chosen": {"optimizer.peak_lr": chosen}})


OWN = (3e-3, {1e-3: 4.6, 3e-3: 4.5})


@pytest.mark.parametrize(
    ("a", "b", "turns"),
    [
        ((1e-3, {1e-3: 4.1, 3e-3: 4.8}), OWN, True),
        ((1e-3, {1e-3: 4.1, 3e-3: 4.3}), OWN, False),
        ((3e-3, {3e-3: 4.8}), (3e-3, {3e-3: 4.5}), True),  # the rate of all
        ((3e-3, {3e-3: 4.2}), (3e-3, {3e-3: 4.5}), False),
    ],
)
def test_a_direction_that_trials_at_a_common_rate_reverse_is_confounded(a, b, turns):
    cells = [make_cell({RATE: rate}) for rate in (0.4, 0.15)]
    records = losses(cells[0], FAR[0]) | losses(cells[1], FAR[1])
    cells = [searched(cell, *search, records) for cell, search in zip(cells, (a, b), strict=True)]
    (found,) = judging.verdicts(Measurements(make_grid(axes={RATE: [0.15, 0.4]}), cells, records))
    assert (found.outcome, found.regime is Regime.CONFOUNDED) == (AS_CLAIMED, turns)
    assert (found.p == 1.0) is turns, "what is confounded leaves nothing to the other tests"


# --- threats


FAR = ([4.1, 4.11, 4.12, 4.1, 4.11], [4.5, 4.51, 4.52, 4.5, 4.51])
NEAR = ([4.1, 4.31, 4.12, 4.3, 4.21], [4.2, 4.11, 4.32, 4.2, 4.21])


def of_losses(values, *claims):
    cells = [make_cell({RATE: rate}) for rate in (0.4, 0.15)]
    records = losses(cells[0], values[0]) | losses(cells[1], values[1])
    grid = make_grid(claims=list(claims), axes={RATE: [0.15, 0.4]})
    return judging.verdicts(Measurements(grid, cells, records))


def threat(kind, **more):
    return {"kind": kind, "because": "held-out rows are cut in mid-sentence", **more}


@pytest.mark.parametrize("kind", ["other subject", "by construction", "confounded"])
def test_a_threat_is_the_regime_and_changes_no_verdict(kind):
    stands, found = of_losses(FAR, make_claim(), make_claim(id="other", threat=threat(kind)))
    assert (stands.outcome, found.outcome, found.regime) == (AS_CLAIMED, AS_CLAIMED, kind)
    assert (found.direction, found.reason) == (stands.direction, Reason.NONE)
    assert (found.effect, found.adjusted, found.p, found.n) == (stands.effect, stands.adjusted, stands.p, stands.n)
    assert "rows are cut in mid-sentence" in found.sentence


def test_a_test_that_was_withdrawn_leaves_nothing_to_the_others():
    other = make_claim(id="other", size="beyond", margin=0.35)
    same, beside = of_losses(FAR, make_claim(), other)
    found, wider = of_losses(FAR, make_claim(threat=threat("confounded", withdrawn=True)), other)
    assert (found.regime, found.p, found.effect) == (Regime.CONFOUNDED, 1.0, same.effect)
    assert wider.adjusted_p > beside.adjusted_p


# --- examples


def answered(rates, seed=0, examples=400):
    """Fine-tunings whose answers to the same examples are kept; each example is as hard for all."""
    draws, hard = np.random.default_rng(seed), np.random.default_rng(9).normal(0, 1, examples)
    cells, records = [make_cell({RATE: rate}, task="rte") for rate in (0.4, 0.15)], {}
    for cell, rate in zip(cells, rates, strict=True):
        for run in cell.finetunings:
            right = draws.random(examples) < 1 / (1 + np.exp(-(rate + hard)))
            metrics = {"rte.accuracy": float(right.mean()), "rte.accuracy.majority": 0.1}
            records[run.id] = make_record(
                run, 0.0, kind="finetune", metrics=metrics, curve={}, examples={"right": pack(right)}
            )
    return cells, records


def test_the_noise_of_examples_is_part_of_the_interval():
    cells, records = answered((2.0, 0.5))
    found = judged(cells, records)
    without = judged(cells, {id: record.but(examples={}) for id, record in records.items()})
    assert found.example_error > 0
    assert without.example_error is None
    assert found.effect == without.effect
    assert found.raw.half > without.raw.half


def test_losses_by_document_are_clusters(tmp_path):
    cells, store = [make_cell({RATE: rate}) for rate in (0.4, 0.15)], Records(tmp_path)
    documents, draws = np.repeat(np.arange(20), 5), np.random.default_rng(2)
    hard = draws.normal(0, 0.5, 20)[documents]
    for cell, mean in zip(cells, (4.0, 4.4), strict=True):
        for run in cell.runs:
            by_sequence = (mean + hard * (1 + 0.1 * (mean > 4.2)) + draws.normal(0, 0.05, 100)).astype(np.float16)
            counts = np.full(100, 10)
            nats = (by_sequence.astype(float) * 10).astype(np.float16)
            losses_ = {"loss": {"nats": pack(nats), "counts": pack(counts)}}
            store.put_sums(run.id, {"text": "t", "documents": pack(documents), "losses": losses_})
            store.put(make_record(run, float(nats.astype(float).sum() / 1000), config=run.to_dict()))
    grid = make_grid(claims=[make_claim()], axes={RATE: [0.15, 0.4]})
    (found,) = judging.verdicts(Measurements(grid, cells, store.snapshot()))
    by_document = 0.1 * np.array([hard[5 * n] for n in range(20)])
    assert found.example_error == pytest.approx(by_document.std(ddof=1) / 20**0.5, rel=0.15)
    sidecar = next((tmp_path / "records").glob("*/*.heldout"))
    sidecar.write_bytes(sidecar.read_bytes().replace(b'"t"', b'"u"'))
    with pytest.warns(RecordWarning, match="does not match its checksum"):
        (found,) = judging.verdicts(Measurements(grid, cells, store.snapshot()))
    assert found.example_error is None  # the page says that they are not counted
