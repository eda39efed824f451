import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ablations.claims import judging
from ablations.core.resampling import bootstrap_interval, multibootstrap, percentile_t, resampled_means
from ablations.core.statistics import paired
from ablations.measurements.example_scores import resampled
from ablations.measurements.measurements import Measurements
from ablations.pages import tables
from lightning_modules.tasks.scores.kept import pack
from tests.unit.synthetic import RATE, make_cell, make_claim, make_grid, make_record

FIVE = [0.31, 0.12, 0.47, 0.22, 0.39]


def answers(seeds, examples, right=0.6, entropy=0):
    return (np.random.default_rng(entropy).random((seeds, examples)) < right).astype(float)


def percentile_t_by_the_book(values, level, draws, replicates):
    """One resample after the other, as Efron and Tibshirani write it."""
    values, ratios = np.asarray(values), []
    for _ in range(replicates):
        again = draws.choice(values, len(values))
        error = again.std(ddof=1) / len(values) ** 0.5
        gap = again.mean() - values.mean()
        ratios.append(gap / error if error > 1e-12 else np.copysign(np.inf, gap) if gap else 0.0)
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
    error = values.std(ddof=1) / len(values) ** 0.5
    return values.mean() - high * error, values.mean() - low * error


def test_percentile_t_is_that_of_the_book():
    values = np.random.default_rng(1).normal(size=9)
    found = bootstrap_interval(list(values))
    expected = percentile_t_by_the_book(values, 0.95, np.random.default_rng(2), 4000)
    assert (found.low, found.high) == pytest.approx(expected, abs=0.12)
    assert found.mean == pytest.approx(values.mean())
    assert found.n == 9


def test_many_samples_at_once_are_the_samples_one_by_one():
    values = np.random.default_rng(3).normal(size=(7, 5))
    low, high = percentile_t(values)
    for one, *edges in zip(values, low, high, strict=True):
        found = bootstrap_interval(list(one))
        assert (found.low, found.high) == pytest.approx(edges, rel=1e-12)


@given(st.lists(st.integers(-50, 50), min_size=4, max_size=9, unique=True), st.floats(0.01, 100), st.integers(-5, 5))
@settings(max_examples=25, deadline=None)
def test_the_bootstrap_follows_units_and_shifts(values, scale, shift):
    plain, moved = bootstrap_interval(values), bootstrap_interval([scale * value + shift for value in values])
    if plain.low is not None and moved.low is not None:
        assert moved.low == pytest.approx(scale * plain.low + shift, rel=1e-6, abs=1e-6)
        assert moved.high == pytest.approx(scale * plain.high + shift, rel=1e-6, abs=1e-6)
        assert plain.low <= plain.mean <= plain.high


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0], [1.0, 2.0, 4.0], [1.0, 1.0, 1.0, 1.0, 2.0]])
def test_too_few_values_have_no_bounded_interval(values):
    found = bootstrap_interval(values)
    assert (found.low, found.high, found.n) == (None, None, len(values))


def test_values_that_are_all_alike_have_an_interval_of_no_width():
    found = bootstrap_interval([0.5] * 5)
    assert (found.low, found.high) == (0.5, 0.5)


def test_resampling_is_the_same_every_time():
    assert bootstrap_interval(FIVE) == bootstrap_interval(FIVE)
    differences = answers(5, 40) - answers(5, 40, entropy=1)
    assert multibootstrap(differences) == multibootstrap(differences)


def test_the_spread_of_replicates_is_the_exact_one():
    """Counts of seeds and examples are independent, so their variances add, with that of what neither explains."""
    draws = np.random.default_rng(4)
    differences = draws.normal(size=(5, 60)) + 0.5 * draws.normal(size=(5, 1)) + draws.normal(size=(1, 60))
    of_seeds, of_examples = differences.mean(axis=1), differences.mean(axis=0)
    rest = differences - of_seeds[:, None] - of_examples + differences.mean()
    exact = of_seeds.var() / 5 + of_examples.var() / 60 + rest.var() / 300
    means = resampled_means(differences, 20_000)
    assert means.mean() == pytest.approx(differences.mean(), abs=4 * (exact / 20_000) ** 0.5)
    assert means.var() == pytest.approx(exact, rel=0.05)


def test_with_seeds_alike_only_examples_count():
    row = answers(1, 400)[0] - answers(1, 400, entropy=1)[0]
    found = multibootstrap(np.tile(row, (5, 1)))
    expected = stats.bootstrap((row,), np.mean, method="percentile", rng=np.random.default_rng(5)).confidence_interval
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.006)


def test_with_examples_alike_only_seeds_count():
    found = multibootstrap(np.tile(np.array(FIVE)[:, None], (1, 200)))
    expected = stats.bootstrap((FIVE,), np.mean, method="percentile", rng=np.random.default_rng(6)).confidence_interval
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.006)


def test_many_contrasts_at_once_are_the_contrasts_one_by_one():
    differences = np.stack([answers(4, 30, entropy=k) - answers(4, 30, entropy=k + 9) for k in range(3)])
    together = resampled_means(differences, 1_500)
    for one, means in zip(differences, together, strict=True):
        np.testing.assert_allclose(resampled_means(one, 1_500), means, rtol=0, atol=1e-14)


@pytest.mark.parametrize("shape", [(1, 30), (5, 1), (0, 30), (5, 0)])
def test_one_seed_or_one_example_cannot_be_resampled(shape):
    found = multibootstrap(np.zeros(shape))
    assert (found.low, found.high) == (None, None)


def test_ten_thousand_replicates_take_less_than_a_second():
    differences = answers(5, 1000) - answers(5, 1000, entropy=1)
    start = time.process_time()
    multibootstrap(differences)
    assert time.process_time() - start < 1  # 0.07 s on a quiet core


# --- from records


def study(metric="rte.accuracy", **changes):
    """Two cells, fine-tuned on RTE from five seeds: the second is right on more examples."""
    cells = [make_cell({RATE: rate}, task="rte") for rate in (0.15, 0.4)]
    right = [answers(5, 80, 0.6) > 0, answers(5, 80, 0.8, entropy=1) > 0]
    records = {}
    for cell, of_cell in zip(cells, right, strict=True):
        for run, pretrained, scores in zip(cell.finetunings, cell.runs, of_cell, strict=True):
            records[pretrained.id] = make_record(pretrained, 4.5)
            found = {"metrics": {metric: float(scores.mean())}, "examples": {"right": pack(scores)}, "curve": {}}
            records[run.id] = make_record(run, 0.0, kind="finetune", **(found | changes))
    claim = make_claim(metric=metric, better="higher")
    grid = make_grid(claims=[claim], tasks=["rte"], metrics=[{"name": metric, "better": "higher"}], figure=None)
    return grid, cells, records, right[1].astype(float) - right[0]


def test_a_verdict_has_both_intervals_beside_the_one_that_decides():
    grid, cells, records, differences = study()
    (verdict,) = judging.verdicts(Measurements(grid, cells, records))
    found = verdict.resampled
    assert found.both == multibootstrap(differences)
    assert found.examples == 80
    over_seeds = bootstrap_interval(list(differences.mean(axis=1)))
    assert (found.seeds.low, found.seeds.high) == pytest.approx((over_seeds.low, over_seeds.high), rel=1e-9)
    assert found.both.mean == pytest.approx(verdict.effect)
    everything = tables.claims([verdict])[1]
    row = dict(zip(everything.headings, everything.rows[0], strict=True))
    assert (row["seeds and examples low"], row["seeds and examples high"]) == (found.both.low, found.both.high)
    assert (row["bootstrap low"], row["bootstrap high"]) == (found.seeds.low, found.seeds.high)
    assert row["examples"] == 80


def test_a_turned_claim_turns_the_intervals():
    grid, cells, records, differences = study()
    (claim,) = grid.claims
    (verdict,) = judging.verdicts(
        Measurements(grid.but(claims=[claim.but(a=claim.b, b=claim.a).to_dict()]), cells, records)
    )
    assert verdict.resampled.both.mean == pytest.approx(-differences.mean())
    turned = judging.verdicts(Measurements(grid.but(claims=[claim.but(better="lower").to_dict()]), cells, records))[
        0
    ].resampled
    assert turned.both.mean == pytest.approx(-differences.mean())


@pytest.mark.parametrize(
    "changes",
    [
        {"examples": {}},
        {"examples": {"answer": pack(np.arange(80))}},
        {"metrics": {"rte.accuracy": 0.123}},  # not the mean of what was right
    ],
    ids=["nothing kept", "answers alone", "another metric"],
)
def test_without_the_scores_behind_a_metric_examples_are_not_resampled(changes):
    grid, cells, records, _ = study(**changes)
    (verdict,) = judging.verdicts(Measurements(grid, cells, records))
    assert verdict.resampled.both is None
    assert verdict.resampled.examples == 0


def test_other_examples_are_never_paired():
    grid, cells, records, _ = study()
    for change in ({"config": {"fingerprints": {"rte": "other"}}}, {"examples": {"right": pack(np.ones(79, bool))}}):
        run = cells[1].finetunings[2].id
        metrics = {"metrics": {"rte.accuracy": 1.0}} if "examples" in change else {}
        altered = records | {run: records[run].but(**change, **metrics)}
        assert judging.verdicts(Measurements(grid, cells, altered))[0].resampled.both is None


def test_scores_kept_in_steps_still_have_the_metric_as_their_mean():
    scores = np.random.default_rng(0).random((10, 300))
    cell = make_cell({RATE: 0.4}, seeds=10, task="squad1")
    records = {
        run.id: make_record(run, 0.0, metrics={"squad1.f1": of.mean()}, examples={"right": pack(of)})
        for run, of in zip(cell.finetunings, scores, strict=True)
    }
    pairs = [(cell.finetunings[k].id, cell.finetunings[5 + k].id) for k in range(5)]
    by_seed = paired(dict(enumerate(scores[:5].mean(1))), dict(enumerate(scores[5:].mean(1))))
    claim, measured = make_claim(metric="squad1.f1", better="higher"), Measurements(make_grid(), [cell], records)
    found = resampled(claim, by_seed, pairs, measured)
    assert found.both.mean == pytest.approx(float(np.mean(by_seed.differences)), abs=2e-3)
    assert found.examples == 300
