"""Fine-tunings of one pretraining: compared seed by seed and example by example; of several they are separate draws."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ablations.claims import judging, power
from ablations.claims.contrasts import collect
from ablations.claims.outcomes import AS_CLAIMED
from ablations.claims.relations import RELATIONS
from ablations.claims.sample import Sample
from ablations.measurements.example_scores import Scores
from ablations.measurements.measurements import Measurements
from ablations.measurements.variances import about, differences
from lightning_modules.tasks.scores.kept import pack
from tests.unit.synthetic import RATE, make_cell, make_claim, make_grid, make_record, of_one_pretraining

TASK = {"metric": "sst2.accuracy", "published": {}}
RATES = (0.4, 0.15, 0.8)
DIFFERENCE = (1.0, -1.0)


def sample(scores, documents=None, weights=None):
    """The sides of a claim from scores ``[sides, seeds, examples]``."""
    count = scores.shape[-1]
    documents = np.arange(count) if documents is None else documents
    weights = np.ones(count) if weights is None else weights
    sides = tuple(Scores(side, documents, weights, "made") for side in scores)
    values = tuple(tuple((side * weights).sum(axis=1) / weights.sum()) for side in scores)
    keys = tuple(f"side {n}" for n in range(len(scores)))
    return Sample(keys, values, scores=sides, blocked=True, crossed=True)


def told(estimate):
    return estimate.value, estimate.error, estimate.df


def drawn(entropy, sides=2, seeds=4, examples=60):
    draws = np.random.default_rng(entropy)
    common = draws.normal(0, 1, (1, seeds, 1)) + draws.normal(0, 1, (1, 1, examples))
    own = draws.normal(0, draws.uniform(0, 2), (sides, seeds, 1)) + draws.normal(0, 1, (sides, 1, examples))
    return common + own + draws.normal(0, 1, (sides, seeds, examples))


def by_hand(table):
    """The variance of the mean of a table ``[seeds, examples]``: of seeds with the rest, and of examples."""
    seeds, count = table.shape
    of_seeds, of_examples = table.mean(axis=1), table.mean(axis=0)
    left = table - of_seeds[:, None] - of_examples + table.mean()
    squares = (
        count * ((of_seeds - table.mean()) ** 2).sum() / (seeds - 1),
        seeds * ((of_examples - table.mean()) ** 2).sum() / (count - 1),
        (left**2).sum() / ((seeds - 1) * (count - 1)),
    )
    seed, example, rest = max(0, squares[0] - squares[2]), max(0, squares[1] - squares[2]), squares[2]
    return (seed + rest) / (seeds * count), example / (seeds * count)


@given(st.integers(0, 2**32 - 1), st.integers(2, 8))
def test_the_variance_is_that_of_two_way_crossed_random_effects(entropy, seeds):
    scores = drawn(entropy, seeds=seeds)
    found = sample(scores).linear(DIFFERENCE)
    seed, example = by_hand(scores[0] - scores[1])
    assert found.value == pytest.approx((scores[0] - scores[1]).mean())
    assert (found.seeds.value, found.examples.value) == (pytest.approx(seed), pytest.approx(example, abs=1e-12))
    limit = seed * (seeds - 1) / stats.chi2.ppf(0.1, seeds - 1)
    share = limit / (limit + example)
    assert found.df == pytest.approx(1 / (share**2 / (seeds - 1) + (1 - share) ** 2 / 59))


@given(st.integers(0, 2**32 - 1))
def test_neither_the_order_nor_what_both_sides_share_matters(entropy):
    draws, scores = np.random.default_rng(entropy), drawn(entropy)
    documents, weights = draws.integers(0, 20, 60), draws.uniform(0.5, 2, 60)
    found = told(sample(scores, documents, weights).linear(DIFFERENCE))
    seeds, examples = draws.permutation(4), draws.permutation(60)
    moved = scores[:, seeds][:, :, examples]
    assert told(sample(moved, documents[examples], weights[examples]).linear(DIFFERENCE)) == pytest.approx(found)
    shared = scores + draws.normal(0, 5, (1, 4, 1)) + draws.normal(0, 5, (1, 1, 60))
    assert told(sample(shared, documents, weights).linear(DIFFERENCE)) == pytest.approx(found)


@given(st.integers(0, 2**32 - 1), st.integers(2, 8))
def test_without_a_part_of_examples_it_is_the_paired_test_of_seeds(entropy, seeds):
    """Examples matter alike to both sides, so each seed's difference is that of all of its examples."""
    draws = np.random.default_rng(entropy)
    scores = draws.normal(0, 1, (1, 1, 60)) + draws.normal(0, 1, (2, seeds, 1))
    found = sample(scores).linear(DIFFERENCE)
    expected = stats.ttest_rel(*scores.mean(axis=2))
    assert (found.p, found.df) == (pytest.approx(expected.pvalue), pytest.approx(seeds - 1))
    assert told(sample(scores).linear(DIFFERENCE)) == pytest.approx(
        told(Sample(("a", "b"), tuple(map(tuple, scores.mean(axis=2))), blocked=True).linear(DIFFERENCE))
    )


def test_without_a_part_of_seeds_it_is_the_paired_test_of_examples():
    scores = np.repeat(drawn(0, seeds=1), 4, axis=1)
    almost = scores + 1e-6 * np.arange(8).reshape(2, 4, 1) ** 2
    found = sample(almost).linear(DIFFERENCE)
    expected = stats.ttest_rel(scores[0, 0], scores[1, 0])
    assert (found.p, found.df) == (pytest.approx(expected.pvalue, rel=1e-3), pytest.approx(59, rel=1e-3))
    assert sample(scores).linear(DIFFERENCE).p is None, "runs that are the very same decide nothing"


def test_seeds_that_differ_less_than_chance_makes_them_are_no_evidence():
    """The rest alone moves each seed's mean: a spread of seeds below it is luck."""
    scores = np.random.default_rng(1).normal(0, 1, (2, 4, 2_000))
    scores -= scores.mean(axis=2, keepdims=True)
    found = sample(scores).linear(DIFFERENCE)
    assert found.seeds.value == pytest.approx(by_hand(scores[0] - scores[1])[0])
    assert found.seeds.value == pytest.approx(2 / 4 / 2_000, rel=0.05)


@pytest.mark.parametrize("relation", ["ordering", "trend", "interaction"])
def test_weighted_relations_take_the_same_sums_by_seed(relation):
    count = 4 if relation == "interaction" else 3
    sides = [{RATE: rate} for rate in (*RATES, 0.15)[:count]]
    claim = make_claim(**TASK | {"relation": relation, "a": {}, "b": {}, "sides": sides})
    scores = drawn(2, sides=count)
    for weights, found in zip(
        RELATIONS[relation].weights(claim), RELATIONS[relation].estimates(claim, sample(scores)), strict=True
    ):
        seed, example = by_hand(np.tensordot(weights, scores, 1))
        assert (found.seeds.value, found.examples.value) == (pytest.approx(seed), pytest.approx(example, abs=1e-12))


# --- records


def finished(cells, scores):
    """Records of fine-tunings on right and wrong answers ``[cells, seeds, examples]``; every label is 1."""
    found = {}
    for cell, runs in zip(cells, scores, strict=True):
        for run, right in zip(cell.finetunings, runs, strict=True):
            metrics = {"sst2.accuracy": float(right.mean()), "sst2.accuracy.majority": 0.509}
            kept = {"right": pack(right), "answer": pack(right.astype(int))}
            changes = {"kind": "finetune", "metrics": metrics, "curve": {}, "examples": kept, "config": run.to_dict()}
            found[run.id] = make_record(run, 0.0, **changes)
    return found


def answers(entropy=3, seeds=4, examples=400, advantage=0.1):
    """Right and wrong answers ``[cells, seeds, examples]``: seeds matter much, and alike to all cells."""
    draws = np.random.default_rng(entropy)
    chance = 0.75 + draws.normal(0, 0.08, (1, seeds, 1)) + np.array([advantage, 0.0, 0.0])[:, None, None]
    return draws.random((3, seeds, examples)) < chance


def study(scores, shared=True, **claim):
    """The three cells are fine-tuned in different ways from the same pretrainings, unless those are their own."""
    cells = [make_cell({RATE: rate}, scores.shape[1], task="sst2") for rate in RATES]
    cells = of_one_pretraining(cells, "sst2") if shared else cells
    metrics = [{"name": "sst2.accuracy"}, {"name": "heldout.loss"}]
    grid = make_grid(claims=[make_claim(**TASK | claim)], metrics=metrics)
    return Measurements(grid, cells, finished(cells, scores))


def test_a_claim_about_fine_tunings_is_judged_by_pairs():
    scores = answers()
    measured = study(scores)
    (found,) = judging.verdicts(measured)
    expected = sample(scores[:2].astype(float)).linear(DIFFERENCE)
    assert found.effect == pytest.approx(expected.value)
    assert (found.seed_error, found.example_error) == pytest.approx(
        (expected.seeds.value**0.5, expected.examples.value**0.5)
    )
    assert found.p == pytest.approx(expected.p)
    assert found.outcome == AS_CLAIMED
    apart = [stats.ttest_ind(*scores[:2].mean(axis=2)).pvalue, found.p]
    assert apart[0] > 0.05 > apart[1], "the spread of seeds, which both share, would hide it"


def test_differences_to_the_baseline_are_of_pairs_too():
    scores = answers()
    measured = study(scores)
    assert "seed by seed" in about(measured.grid, measured.cells)
    _, found = differences(measured, lambda cell: measured.of(cell, "sst2.accuracy"))(*measured.cells[:2])
    assert found.p == pytest.approx(stats.ttest_rel(*scores[:2].mean(axis=2)).pvalue)


def test_a_seed_that_one_side_lacks_is_left_out_of_both():
    scores = answers()
    measured = study(scores)
    lost = measured.cells[1].finetunings[2].id
    records = finished(measured.cells, scores)
    records[lost] = records[lost].but(outcome="diverged", metrics={}, examples={})
    (found,) = judging.verdicts(Measurements(measured.grid, measured.cells, records))
    assert found.n == 3
    assert found.p == pytest.approx(sample(scores[:2, [0, 1, 3]].astype(float)).linear(DIFFERENCE).p)
    assert "seeds 2 are left out: not every side has a run of that seed" in found.remarks


def test_against_a_simple_method_the_seeds_are_the_sample():
    scores = answers()
    (found,) = judging.verdicts(study(scores, b={}, against="sst2.accuracy.majority"))
    seed, example = by_hand(scores[0] - 1.0)  # the majority is right everywhere
    assert (found.seed_error, found.example_error) == pytest.approx((seed**0.5, example**0.5), abs=1e-9)


def test_pretrainings_of_one_seed_are_separate_draws():
    measured = study(answers(), shared=False, metric="heldout.loss")
    assert not collect(measured, measured.grid.claims[0]).sample.blocked


def test_fine_tunings_of_different_pretrainings_are_separate_draws():
    scores = answers()
    measured = study(scores, shared=False)
    found = collect(measured, measured.grid.claims[0]).sample.linear(DIFFERENCE)
    paired = sample(scores[:2].astype(float)).linear(DIFFERENCE)
    assert found.value == pytest.approx(paired.value)
    assert found.seeds.df == pytest.approx(9), "three cells of four runs have one spread"
    _, apart = differences(measured, lambda cell: measured.of(cell, "sst2.accuracy"))(*measured.cells[:2])
    assert apart.df == found.seeds.df


def test_separate_runs_never_differ_less_than_examples_make_them():
    """Four runs a side may lie close by luck. What differs with run and example alone moves their means by so much."""
    scores = np.random.default_rng(1).normal(0, 1, (2, 4, 2_000))
    scores += 1e-9 * np.arange(4)[:, None] - scores.mean(axis=2, keepdims=True)
    close = sample(scores)
    close = replace(close, blocked=False, groups={0: dict(zip(close.keys, close.values, strict=True))})
    for crossed in (False, True):
        found = replace(close, crossed=crossed).linear(DIFFERENCE)
        assert found.seeds.value == pytest.approx(2 / 4 / 2_000, rel=0.05)


def test_a_plan_promises_what_pairs_can_show():
    """Twice the seeds halve the part of seeds with the rest, and leave that of examples."""
    scores = answers()
    measured = study(scores)
    measured.grid = measured.grid.but(seeds=4, looks=[4, 8])
    measured.cells = tuple(cell.but(looks=(4, 8)) for cell in measured.cells)
    first, second = power.prospects(measured.grid, "laptop", {"laptop": measured})
    assert first.examples
    at_four = sample(scores[:2].astype(float)).linear(DIFFERENCE)
    level = judging.verdicts(measured)[0].adjusted.level
    assert first.visible == pytest.approx(at_four.detectable(level), rel=1e-6)
    assert second.visible < first.visible / 1.5


def test_averages_over_tasks_are_pairs_too():
    scores = answers()
    measured = study(scores, metric="tasks.mean")
    (found,) = judging.verdicts(measured)
    _, difference = differences(measured, lambda cell: measured.of(cell, "tasks.mean"))(*measured.cells[:2])
    expected = stats.ttest_rel(*scores[:2].mean(axis=2)).pvalue
    assert (found.p, difference.p) == (pytest.approx(expected), pytest.approx(expected))
