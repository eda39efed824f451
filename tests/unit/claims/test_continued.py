"""Claims about arms that continue from trunks: compared trunk by trunk, marked, and not mixed with other runs."""

import numpy as np
import pytest
from scipy import stats

from ablations.claims import judging, power, rates
from ablations.claims.contrasts import collect
from ablations.claims.outcomes import AS_CLAIMED, Reason
from ablations.core.moderation import Variance
from ablations.measurements import trunks
from ablations.measurements.measurements import Measurements
from ablations.measurements.summaries import summarise
from ablations.pages import equal_compute, tables, verdict_table
from ablations.schema.cell import Cell
from ablations.schema.run import Run
from lightning_modules.tasks import FineTuning
from tests.unit.synthetic import BASE, RATE, make_claim, make_grid, make_record

START = {"training.steps": 50_000, RATE: 0.15}
TRUNKS = np.array([0.31, -0.24, 0.12, -0.19])  # what each gives to all of its arms: far more than arms differ
NOISE = {0.15: [0.004, -0.006, 0.005, -0.003], 0.4: [-0.002, 0.003, -0.004, 0.005], 0.8: [0.003, 0.001, -0.005, 0.002]}
LOSS = {0.15: 4.50, 0.4: 4.44, 0.8: 4.90}


def make_arm(rate, seeds=4, **changes):
    system = BASE.but(**{RATE: rate, "training.start": START, **changes})
    text = dict.fromkeys(system.data.corpora, "0" * 64)
    runs = tuple(Run.pretraining(system, seed, text) for seed in range(seeds))
    return Cell(values={RATE: rate}, label=f"rate={rate}", system=system, runs=runs)


def finished(cells, changes=lambda cell: {}):
    found = {}
    for cell in cells:
        for run in cell.runs:
            rate, trunk = cell.values[RATE], run.start
            loss = LOSS[rate] + NOISE[rate][run.seed] + TRUNKS[run.seed]
            simple = {"heldout.sop_accuracy": 0.6 + TRUNKS[run.seed] / 10, "heldout.sop_majority": 0.5}
            record = make_record(run, loss)
            found[run.id] = record.but(metrics=record.metrics | simple)
            if trunk is not None:
                found[trunk.id] = make_record(trunk, 4.7, cost={"seconds": 2400.0, "flops": 1e15, "tokens": 1e8})
    return found


def study(**changes):
    cells = [make_arm(rate) for rate in LOSS]
    return Measurements(make_grid(seeds=4, **changes), cells, finished(cells))


def of(rate):
    return np.array([LOSS[rate] + noise for noise in NOISE[rate]]) + TRUNKS


def test_an_effect_far_below_the_spread_of_trunks_is_seen_within_them():
    (found,) = judging.verdicts(study())
    by_hand = stats.ttest_rel(of(0.15), of(0.4))
    assert found.outcome == AS_CLAIMED
    assert found.effect == pytest.approx(0.06, abs=0.005)
    assert found.p == pytest.approx(by_hand.pvalue)
    low, high = by_hand.confidence_interval(found.adjusted.level)
    assert (found.adjusted.low, found.adjusted.high) == (pytest.approx(low), pytest.approx(high))


def test_the_same_runs_from_random_weights_do_not_show_it():
    """The control: without trunks the seeds' own spread hides the effect."""
    cells = [make_arm(rate, **{"training.start": {}}) for rate in LOSS]
    (found,) = judging.verdicts(Measurements(make_grid(seeds=4), cells, finished(cells)))
    assert found.reason is Reason.POWER
    assert not found.continued
    assert not found.marks


def test_a_ratio_is_of_logarithms_within_trunks():
    claim = make_claim(relation="ratio", ratio=1.001, published={})
    (found,) = judging.verdicts(study(claims=[claim]))
    logs = np.log(of(0.15)) - np.log(of(0.4))
    low, high = stats.ttest_1samp(logs, 0).confidence_interval(found.adjusted.level)
    assert (found.adjusted.low, found.adjusted.high) == (pytest.approx(np.exp(low)), pytest.approx(np.exp(high)))


def test_spreads_are_compared_within_trunks():
    """What a trunk adds to all of its arms makes none of them steadier."""
    values = np.array([[4.1, 4.6, 4.2, 4.9, 4.0], [4.11, 4.63, 4.18, 4.93, 3.96]])
    cells = [make_arm(0.15, 5), make_arm(0.4, 5)]
    records = {
        run.id: make_record(run, loss)
        for cell, losses in zip(cells, values, strict=True)
        for run, loss in zip(cell.runs, losses, strict=True)
    }
    claim = make_claim(relation="spread", a={RATE: 0.15}, b={RATE: 0.4}, published={})
    (found,) = judging.verdicts(Measurements(make_grid(claims=[claim]), cells, records))
    far = np.abs(values - np.median(values, axis=1, keepdims=True))
    assert found.p == pytest.approx(stats.ttest_rel(far[1], far[0]).pvalue)


def test_the_noise_of_a_run_within_its_trunk_judges_the_trials_of_a_search():
    sample = collect(study(), make_claim()).sample
    both = np.array([of(0.4), of(0.15)])
    left = both - both.mean(axis=0) - both.mean(axis=1, keepdims=True) + both.mean()
    assert sample.within == Variance(pytest.approx((left**2).sum() / 3), 3.0)
    tried = rates._sample(sample, [(4.3,), (4.5,)])
    assert tried.linear((1.0, -1.0)).error == pytest.approx((2 * sample.within.value) ** 0.5)
    assert tried.linear((1.0, -1.0)).df == 3


def test_arms_and_runs_from_random_weights_are_not_compared():
    cells = [make_arm(0.15), make_arm(0.4, **{"training.start": {}})]
    measured = Measurements(make_grid(seeds=4), cells, finished(cells))
    (found,) = judging.verdicts(measured)
    assert found.reason is Reason.QUESTION
    assert found.effect is None
    assert not found.is_measured
    assert "one side is continued pretraining, the other starts from random weights" in found.remarks
    assert summarise(measured)[1].metrics["heldout.loss"].contrast is None
    assert all(prospect.untestable for prospect in power.prospects(measured.grid, "laptop", {"laptop": measured}))


def test_different_trunks_are_separate_draws():
    """Arms of unlike ancestors share no trunk, so nothing is paired."""
    cells = [make_arm(0.15), make_arm(0.4, **{"training.start": {**START, "training.steps": 60_000}})]
    (found,) = judging.verdicts(Measurements(make_grid(seeds=4), cells, finished(cells)))
    assert found.reason is Reason.POWER
    assert found.p > 0.5


def test_tables_and_equal_compute_compare_within_trunks():
    measured = study()
    low, high = stats.ttest_rel(of(0.4), of(0.15)).confidence_interval(0.95)
    difference = summarise(measured)[1].metrics["heldout.loss"].difference
    assert (difference.low, difference.high) == pytest.approx((low, high))
    notes = equal_compute.single(measured, "tokens").notes
    assert any("continued pretraining" in note and "without those of their trunks" in note for note in notes)


def test_a_plan_promises_what_the_test_within_trunks_can_show():
    (found,) = power.prospects(make_grid(seeds=4), "laptop", {"laptop": study()})
    within = np.std(of(0.4) - of(0.15), ddof=1) / 2**0.5
    assert found.sd == pytest.approx(within)
    assert found.visible < 0.05 < TRUNKS.std()


def test_what_continuing_adds_to_a_fine_tuned_trunk_is_one_question():
    """A task's score of the trunk itself and of what continues it: the same chance behind both."""
    arm = make_arm(0.15).runs
    tuned, scratch = (
        [Run.finetuning_of(run, "bigram_shift", "aa", FineTuning()) for run in runs]
        for runs in ([run.start for run in arm], [Run.pretraining(BASE, run.seed, run.fingerprints) for run in arm])
    )
    continued = [Run.finetuning_of(run, "bigram_shift", "aa", FineTuning()) for run in arm]
    assert not trunks.ask_different_questions([tuned, continued])
    assert trunks.ask_different_questions([scratch, continued])
    assert trunks.ask_different_questions([[run.start for run in arm], arm])  # of losses it is another question


def test_arms_of_a_chain_share_its_first_link():
    chains = [
        BASE.but(**{"training.start": {**START, "training.steps": steps, "training.start": {"training.steps": 9}}})
        for steps in (3, 4)
    ]
    text = dict.fromkeys(BASE.data.corpora, "0" * 64)
    sides = [[Run.pretraining(system, seed, text) for seed in range(2)] for system in chains]
    assert [len(trunks.trunks_of(side[0])) for side in sides] == [2, 2]
    assert trunks.are_shared(sides)
    assert not trunks.ask_different_questions(sides)


# --- what is said


def test_the_mark_stands_in_the_row_and_trunks_are_charged_apart():
    (found,) = judging.verdicts(study())
    assert found.marks == ("continued pretraining",)
    assert (found.computing.runs, found.computing.seconds) == (8, 8 * 118.0)
    assert (found.trunks.runs, found.trunks.seconds) == (4, 4 * 2400.0)
    reading, numbers, _ = tables.claims([found])
    assert "(continued pretraining)" in reading.rows[0][1]
    assert numbers.rows[0][numbers.headings.index("continued")] is True
    assert len(numbers.rows[0]) == len(numbers.headings)
    assert "\n".join(verdict_table.remarks([found])).count("continued pretraining") == 1
