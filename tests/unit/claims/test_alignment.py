"""Claims about losses whose sides differ in speed alone, or by a constant alone, or cannot be aligned."""

import numpy as np
import pytest

from ablations.claims import judging
from ablations.claims.alignment import NO_CROSSING, Kind
from ablations.claims.outcomes import AGAINST, AS_CLAIMED
from ablations.core.crossing import EARLIER
from ablations.measurements.measurements import Measurements
from ablations.schema.run import Run
from tests.unit.synthetic import RATE, make_cell, make_claim, make_grid, make_record

METRIC = "heldout.loss"
TOKENS = np.arange(1, 25) * 1e6
BAR = 4.5
NOISE = (0.004, -0.002, 0.001, -0.003)  # nats, by seed


def bent(crossing):
    """A curve that passes the bar at ``crossing`` tokens, and bends as those of records do."""
    return BAR - 0.75 / 0.4 * (1 - np.exp(-0.4 * np.log(TOKENS / crossing)))


def straight(crossing):
    return BAR - 0.6 * np.log(TOKENS / crossing)


def course(run, losses, tokens=TOKENS, flops=1e6):
    """A finished run with a curve; ``flops`` for each token."""
    return make_record(
        run,
        float(losses[-1]),
        metrics={METRIC: float(losses[-1]), "heldout.bigram_loss": BAR},
        curve={"tokens": tokens.tolist(), METRIC: losses.tolist()},
        cost={"tokens": float(tokens[-1]), "flops": flops * float(tokens[-1]), "seconds": 1.0},
    )


def study(curves, claims=None, **courses):
    """Cells by masking rate, whose runs have the curve given for each and a little noise; ``courses`` for `course`."""
    cells = [make_cell({RATE: rate}, len(NOISE)) for rate in curves]
    records = {}
    for place, (cell, losses) in enumerate(zip(cells, curves.values(), strict=True)):
        for run, shift in zip(cell.runs, NOISE, strict=True):
            records[run.id] = course(run, losses + (-1) ** place * shift, **courses)
    grid = make_grid(axes={RATE: list(curves)}, claims=claims or [make_claim(published={})], published=[])
    return Measurements(grid, cells, records)


def changed(measured, rate, change):
    """The same measurements with the records of one cell changed."""
    records = {run.id: measured.get(run.id) for cell in measured.cells for run in cell.runs}
    for cell in measured.cells:
        for run in cell.runs if cell.values[RATE] == rate else ():
            records[run.id] = change(records[run.id], run)
    return Measurements(measured.grid, measured.cells, records)


def only(measured):
    (verdict,) = judging.verdicts(measured)
    return verdict


def contrast(measured):
    (found,) = only(measured).aligned.contrasts
    return found


def test_arms_that_differ_in_speed_alone_have_no_aligned_effect():
    verdict = only(study({0.15: bent(9e6), 0.4: bent(5e6)}))
    (found,) = verdict.aligned.contrasts
    assert verdict.outcome == AS_CLAIMED
    assert found.tokens == verdict.raw
    assert found.tokens.mean == pytest.approx(bent(9e6)[-1] - bent(5e6)[-1])
    assert found.multiples.mean == pytest.approx(0.0, abs=0.004)
    assert found.multiple == pytest.approx(24 / 9, rel=0.01)
    assert found.left > found.multiples.high
    assert (found.kind, verdict.aligned.kind) == (Kind.SPEED, Kind.SPEED)
    assert verdict.aligned.interval == found.multiples


def test_arms_that_differ_by_a_constant_keep_what_an_offset_leaves():
    verdict = only(study({0.15: bent(6e6) + 0.2, 0.4: bent(6e6)}))
    (found,) = verdict.aligned.contrasts
    assert verdict.aligned.kind is Kind.QUALITY
    assert found.left == pytest.approx(found.multiples.mean, abs=0.004)
    assert 0 < found.left < 0.1 < found.tokens.mean
    assert found.earlier.low > 0


def test_what_only_the_end_of_a_schedule_makes_is_no_quality():
    """In its last sixth every curve flattens, and the slower arm alone is compared there."""
    flat = 0.05 * (TOKENS / TOKENS[-1] > EARLIER)
    found = contrast(study({0.15: bent(9e6) + flat, 0.4: bent(5e6) + flat}))
    assert found.multiples.low > 0
    assert found.earlier.low < 0 < found.earlier.high
    assert found.kind is Kind.OPEN


def test_straight_curves_do_not_tell_speed_from_an_offset():
    found = contrast(study({0.15: straight(8e6), 0.4: straight(6e6)}))
    assert found.multiples.mean == pytest.approx(0.0, abs=0.005)
    assert found.left == pytest.approx(0.0, abs=0.005)
    assert found.kind is Kind.OPEN


def test_at_equal_flops_the_dearer_side_is_read_earlier():
    cheap = study({0.15: bent(6e6), 0.4: bent(6e6) - 0.1})
    dear = changed(cheap, 0.4, lambda record, run: record.but(cost=record.cost | {"flops": 2e6 * TOKENS[-1]}))
    found, half = contrast(dear).flops, (bent(6e6)[11], bent(6e6)[-1])
    assert contrast(cheap).flops.mean == pytest.approx(0.1)
    assert found.mean == pytest.approx(0.1 - (half[0] - half[1]))
    bare = changed(cheap, 0.4, lambda record, run: record.but(cost={}))
    assert contrast(bare).flops is None
    late = changed(
        dear, 0.4, lambda record, run: course(run, bent(6e6)[15:], TOKENS[15:], 2e6) if run.seed > 1 else record
    )
    assert contrast(late).flops is None  # two of its runs had not been measured by then: no mean of the others


def test_at_unequal_tokens_both_are_read_where_both_have_been():
    longer = changed(
        study({0.15: straight(6e6), 0.4: straight(6e6)}),
        0.4,
        lambda record, run: course(run, np.append(straight(6e6), 1.0), np.append(TOKENS, 48e6)),
    )
    assert only(longer).effect == pytest.approx(straight(6e6)[-1] - 1.0)
    assert contrast(longer).tokens.mean == pytest.approx(0.0, abs=0.003)


def test_a_side_that_never_passes_or_had_passed_before_is_not_aligned():
    for losses, why in ((bent(30e6), "4 of 4 runs of masking rate 15 % never"), (bent(0.5e6), "before their first")):
        verdict = only(study({0.15: losses, 0.4: bent(5e6)}))
        assert (verdict.aligned.kind, verdict.aligned.interval) == (Kind.NONE, None)
        assert why in verdict.aligned.why
        assert verdict.aligned.contrasts[0].tokens == verdict.raw
        assert "crossing" not in verdict.sentence
    one = study({0.15: bent(9e6), 0.4: bent(5e6)})
    late = changed(one, 0.15, lambda record, run: course(run, bent(30e6)) if run.seed == 2 else record)
    assert "1 of 4 runs" in only(late).aligned.why


def test_runs_that_continue_others_have_no_crossing():
    measured = study({0.15: bent(9e6), 0.4: bent(5e6)})
    cells, records = [], {}
    for cell in measured.cells:
        system = cell.system.but(**{"training.start": {RATE: 0.3}})
        runs = [Run.pretraining(system, run.seed, run.fingerprints) for run in cell.runs]
        records |= {new.id: measured.get(old.id).but(id=new.id) for new, old in zip(runs, cell.runs, strict=True)}
        cells.append(cell.model_copy(update={"system": system, "runs": tuple(runs)}))
    verdict = only(Measurements(measured.grid, cells, records))
    assert verdict.continued
    assert (verdict.aligned.kind, verdict.aligned.why) == (Kind.NONE, NO_CROSSING)
    assert verdict.aligned.contrasts[0].tokens == verdict.raw


def test_a_claim_without_curves_is_judged_as_before_and_not_aligned():
    measured = study({0.15: bent(9e6), 0.4: bent(5e6)})
    bare = changed(measured, 0.15, lambda record, run: record.but(curve={}))
    verdict = only(bare)
    assert verdict.aligned is None
    assert (verdict.outcome, verdict.raw, verdict.adjusted) == (
        only(measured).outcome, only(measured).raw, only(measured).adjusted,
    )  # fmt: skip
    ratio = make_claim(published={}, relation="ratio", ratio=1.1)
    assert only(study({0.15: bent(9e6), 0.4: bent(5e6)}, [ratio])).aligned is None
    scores = make_claim(published={}, metric="heldout.accuracy")
    assert only(study({0.15: bent(9e6), 0.4: bent(5e6)}, [scores])).aligned is None


def test_the_steps_of_an_order_are_contrasts_of_their_own():
    """The last side never passes the bar; the first step is aligned all the same."""
    claim = make_claim(a={}, b={}, sides=[{RATE: rate} for rate in (0.4, 0.15, 0.8)], relation="ordering", published={})
    curves = {0.15: bent(9e6), 0.4: bent(5e6), 0.8: bent(30e6)}
    verdict = only(study(curves, [claim]))
    first, second = verdict.aligned.contrasts
    assert (first.kind, second.kind, verdict.aligned.kind) == (Kind.SPEED, Kind.NONE, Kind.NONE)
    alone = contrast(study({rate: curves[rate] for rate in (0.15, 0.4)}))
    assert first.multiples.mean == pytest.approx(alone.multiples.mean)
    assert first.name == alone.name == "masking rate 40 % against 15 %"


def test_a_contradicted_claim_is_shown_with_the_better_side_first():
    verdict = only(study({0.15: bent(6e6), 0.4: bent(6e6) + 0.2}))
    (found,) = verdict.aligned.contrasts
    assert verdict.outcome == AGAINST
    assert (found.name, found.kind) == ("masking rate 15 % against 40 %", Kind.QUALITY)
    assert found.multiples.high < 0 < found.facing(found.multiples).low
    assert found.facing(found.multiples).mean == -found.multiples.mean


def test_the_first_look_is_aligned_by_its_own_runs():
    measured = study({0.15: bent(9e6), 0.4: bent(5e6)})
    cells = [cell.model_copy(update={"looks": (3, 4)}) for cell in measured.cells]
    records = {run.id: measured.get(run.id) for cell in cells for run in cell.runs}
    verdict = only(Measurements(measured.grid.model_copy(update={"looks": (3, 4)}), cells, records))
    assert (verdict.look, verdict.n) == (1, 3)
    assert verdict.aligned.contrasts[0].multiples.n == 3
    assert verdict.aligned.contrasts[0].tokens == verdict.raw
