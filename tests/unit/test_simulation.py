"""The simulation of `benchmarks` judges as verdicts do, and what it publishes are its numbers."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablations.claims.judging import CONTRADICTS, NOT_RESOLVED, REPLICATES, verdicts
from ablations.core.estimates import blocked, crossed, linear
from ablations.core.examples import example_variance, run_variance
from ablations.core.looks import decided
from ablations.core.moderation import Variance, moderated, own_variance
from ablations.measurements.measurements import Measurements
from benchmarks.simulation import __main__ as simulate
from benchmarks.simulation import aa_tests, pair_simulation, simulation, trunk_simulation
from benchmarks.simulation import alignment_simulation as simulated
from benchmarks.simulation.simulation import CELLS, FAMILIES, LOOKS, METHODS
from lightning_modules.places import project
from tests.unit.claims.test_alignment import BAR, contrast, course
from tests.unit.synthetic import RATE, make_cell, make_claim, make_grid

pytestmark = pytest.mark.slow

PUBLISHED = project() / "results" / simulate.FOLDER


# --- the formulas of many grids at once are those of verdicts


def variances(cells, method):
    if method == "moderated":
        return moderated(cells).variances
    own = {cell: own_variance(values) for cell, values in cells.items()}
    if method == "own variances":
        return own
    df = sum(variance.df for variance in own.values())
    common = sum(variance.value * variance.df for variance in own.values()) / df
    return dict.fromkeys(cells, Variance(common, df, df))


@pytest.mark.parametrize("method", METHODS)
@given(st.integers(0, 2**32 - 1), st.integers(2, 9), st.integers(2, 8))
def test_contrasts_are_those_of_verdicts(method, entropy, cells, seeds):
    values = np.random.default_rng(entropy).normal(0, np.arange(1, cells + 1)[:, None], (3, cells, seeds))
    found, p = simulation.contrasts(values, method), simulation.p_values(values, method)
    for place, one in enumerate(values.tolist()):
        grid = dict(enumerate(one))
        noise = variances(grid, method)
        estimates = [linear([(variant, 1.0), (0, -1.0)], grid, noise) for variant in range(1, cells)]
        expected = [[getattr(estimate, name) for estimate in estimates] for name in ("value", "error", "df")]
        assert np.array(found)[:, place] == pytest.approx(np.array(expected), rel=1e-9)
        assert p[place].tolist() == pytest.approx([estimate.p for estimate in estimates], rel=1e-9)


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(2, 8))
def test_contrasts_within_trunks_are_those_of_verdicts(entropy, arms, trunks):
    values = np.random.default_rng(entropy).normal(0, np.arange(1, arms + 1)[:, None], (3, arms, trunks))
    found = trunk_simulation.within(values)
    for place, one in enumerate(values.tolist()):
        estimates = [blocked([(arm, 1.0), (0, -1.0)], dict(enumerate(one))) for arm in range(1, arms)]
        expected = [[getattr(estimate, name) for estimate in estimates] for name in ("value", "error", "df")]
        assert np.array(found)[:, place] == pytest.approx(np.array(expected), rel=1e-9)


@given(st.integers(0, 2**32 - 1), st.integers(2, 8))
def test_contrasts_of_pairs_are_those_of_verdicts(entropy, seeds):
    draws, count = np.random.default_rng(entropy), 30
    scores = draws.normal(0, 1, (3, 2, seeds, count)) + draws.normal(0, draws.uniform(0, 1), (3, 2, seeds, 1))
    scores += draws.normal(0, draws.uniform(0, 1), (3, 2, 1, count))
    found = pair_simulation.crossed(pair_simulation.told(scores))
    for place, (first, second) in enumerate(scores):
        table, names = first - second, np.arange(count)
        rest = run_variance(table, names)
        examples = example_variance(table.mean(axis=0), names, runs=rest)
        values = {"a": first.mean(axis=1).tolist(), "b": second.mean(axis=1).tolist()}
        estimate = crossed((("a", 1.0), ("b", -1.0)), values, examples=examples, rest=seeds * rest)
        expected = [getattr(estimate, name) for name in ("value", "error", "df")]
        assert np.array(found)[:, place] == pytest.approx(np.array(expected), rel=1e-9, abs=1e-12)


@given(st.integers(0, 2**32 - 1), st.integers(1, 9))
def test_families_are_decided_as_those_of_verdicts(entropy, size):
    p = np.random.default_rng(entropy).uniform(0, 1, (4, size, 2)) ** 6
    expected = [[one.look if one.rejected else 0 for one in decided(family, LOOKS)] for family in p.tolist()]
    assert simulation.rejected(p).tolist() == expected


# --- what they promise


def among(rows, **wanted):
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def check_coverage(rows):
    found = [row for row in among(rows, noise="normal", method="moderated") if row["seeds"] in LOOKS.n]
    assert {row["noisier cells"] for row in found} == set(CELLS)
    for row in found:
        assert 0.93 <= row["coverage"] <= 0.97
        assert row["lowest"] >= 0.92
    worst = min(row["lowest"] for row in among(rows, method="one pooled variance"))
    assert worst < 0.85, "were it better, it would be the chosen one"


def check_examples(rows):
    for row in among(rows, method="seeds and examples"):
        assert 0.93 <= row["coverage"] <= 0.985
    many = among(rows, method="seeds", answers="runs much alike", seeds=8)
    assert many[0]["coverage"] < 0.935, "were it better, examples would not have to be counted"


def check_families(rows):
    assert {row["family"] for row in rows} == set(FAMILIES)
    for row in rows:
        assert row["moderated"] <= 0.055
        assert row["moderated"] <= row["uncorrected"]
    assert max(row["one pooled variance"] for row in rows) > 0.15


def check_trunks(rows):
    """Families err within a tenth of 5 % or less, and a condition by no more than three standard errors besides."""
    inside = among(rows, method="within trunks")
    assert {(row["arms"], row["icc"], row["family"]) for row in inside} == {
        (arms, icc, size) for arms in (3, 5) for icc in (0.5, 0.9) for size in FAMILIES
    }
    assert {row["noisier cells"] for row in inside} == set(CELLS)
    for size in FAMILIES:
        assert np.mean([row["errs"] for row in among(inside, family=size)]) <= 0.055
    for row in inside:
        assert row["errs"] <= 0.0625
        assert 0.93 <= row["lowest"] <= row["highest"] <= 0.97
    assert max(row["errs"] for row in among(rows, method="two-way residuals")) > 0.06, "were it better, it would stand"


def check_pairs(rows):
    """Families of 14 err in at most 6 %, and intervals cover 94 % or more."""
    ours = among(rows, method="seeds and examples")
    keys = ("seeds", "examples", "seed variance", "correlation")
    asked = {tuple(row[key] for key in keys) for row in among(ours, scores="normal")}
    seeds, counts = pair_simulation.SEEDS, pair_simulation.EXAMPLES
    assert asked >= {(n, count, "large", r) for n in seeds for count in counts for r in pair_simulation.CORRELATIONS}
    assert asked >= {(n, count, "none", None) for n in seeds for count in counts}
    for row in ours:
        assert row["coverage"] >= 0.94
        assert row["errs"] is None or row["errs"] <= 0.06
    for method in ("Satterthwaite's formula", "seeds alone"):
        worst = max(row["errs"] for row in among(rows, scores="normal", method=method))
        assert worst > 0.15, "were it better, it would stand"


def check_power(rows):
    for row in among(rows, method="moderated"):
        assert row["first look"] <= row["both looks"]
        assert abs(row["first look"] - row["formula"]) <= 0.1
    both = {m: among(rows, method=m, family=9, effect=2.0)[0]["both looks"] for m in METHODS}
    assert both["own variances"] < both["moderated"] < both["one pooled variance"]


# --- the same variant under two names, judged by the engine itself


def test_a_variant_is_no_better_than_itself():
    (row,) = aa_tests.verdict_rows(200, aa_tests.SCENARIOS[:1])
    assert row["wrong grids"] <= 19  # 10 are allowed for; three standard errors are 9
    assert row[NOT_RESOLVED] == 1 - row["share wrong"]


def test_seven_claims_about_the_same_are_judged_together():
    (row,) = aa_tests.verdict_rows(60, aa_tests.SCENARIOS[1:2])
    assert row["wrong grids"] <= 8
    assert row[REPLICATES] + row[NOT_RESOLVED] + row[CONTRADICTS] == pytest.approx(1)


def test_equality_is_confirmed_and_a_real_effect_is_found():
    equal = [found for (found,) in aa_tests.outcomes(aa_tests.SCENARIOS[-2], 60)]
    better = [found for (found,) in aa_tests.outcomes(aa_tests.SCENARIOS[-1], 60)]
    assert CONTRADICTS not in equal + better
    assert equal.count(REPLICATES) > 45
    assert 36 < better.count(REPLICATES) < 60


def test_runs_that_are_the_very_same_decide_nothing():
    scenario = aa_tests.SCENARIOS[0]
    grid, cells = (
        aa_tests._grid(scenario, ["baseline", "copy 1"]),
        list(map(aa_tests._cell, ("baseline", "copy 1"))),
    )
    records = {
        run.id: aa_tests._record(run.id, loss)
        for cell in cells
        for run, loss in zip(cell.runs, [4.5] * len(cell.runs), strict=True)
    }
    (verdict,) = verdicts(Measurements(grid, cells, records))
    assert verdict.outcome == NOT_RESOLVED
    assert "no noise" in verdict.reason


# --- the command and what it publishes


def test_the_command_writes_the_same_bytes_again(tmp_path):
    words = [sys.executable, "-m", "benchmarks.simulation", "--grids", "10", "--results-dir", str(tmp_path)]
    done = subprocess.run(words, cwd=project(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    written = {str(path): path.read_bytes() for path in simulate.write(tmp_path / "again", 10)}
    first = tmp_path / simulate.FOLDER
    assert done.stdout.split() == [name.replace(str(tmp_path / "again"), str(first)) for name in written]
    assert {str(tmp_path / "again" / path.name): path.read_bytes() for path in first.iterdir()} == written


def published(study):
    with (PUBLISHED / f"{study}.csv").open(encoding="utf-8", newline="") as file:
        return [{name: _value(text) for name, text in row.items()} for row in csv.DictReader(file)]


def _value(text):
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def test_what_is_published_holds_what_is_asked():
    check_coverage(published("coverage"))
    check_examples(published("examples"))
    check_families(published("family_wise_error"))
    check_trunks(published("trunks"))
    check_pairs(published("pairs"))
    check_power(published("power"))
    for row in published("alignment"):
        assert row["quality" if row["truth"] == "speed" else "speed"] <= 0.06
    for row in published("aa")[:4]:
        assert row["share wrong"] <= 0.05
    assert published("coverage")[0]["grids"] >= 2_000


def test_the_page_is_made_of_the_published_numbers():
    page = simulate.page({study: published(study) for study in simulate.STUDIES})
    assert page == (PUBLISHED / "README.md").read_text(encoding="utf-8")


def test_what_is_published_can_be_simulated_again():
    """The same numbers with the pinned libraries; others may draw other noise, which moves shares a little."""
    for old, new in zip(published("power"), simulation.power(), strict=True):
        assert new == pytest.approx(old, abs=0.05)


def test_simulated_grids_are_aligned_as_records_are():
    draws = np.random.default_rng(7)
    curves = simulated.arms(draws, "quality", "bending", 2.5, 0.15, (1, 4), flat=True)[0]
    tokens = 1e6 * np.exp(simulated.X)
    cells = [make_cell({RATE: rate}, 4) for rate in (0.4, 0.15)]
    records = {
        run.id: course(run, BAR + losses, tokens)
        for cell, side in zip(cells, curves, strict=True)
        for run, losses in zip(cell.runs, side, strict=True)
    }
    found = contrast(
        Measurements(make_grid(axes={RATE: [0.4, 0.15]}, claims=[make_claim(published={})]), cells, records)
    )
    low, high, middle = simulated._interval(simulated.X, curves[None])
    assert (found.multiples.low, found.multiples.high) == (pytest.approx(low[0]), pytest.approx(high[0]))
    assert found.multiples.mean == pytest.approx(middle[0])
    early = simulated._interval(simulated.X[simulated.EARLY], curves[None][..., simulated.EARLY])
    assert (found.earlier.low, found.earlier.high) == (pytest.approx(early[0][0]), pytest.approx(early[1][0]))
    assert found.left == pytest.approx(simulated._left(curves[None], curves[None, ..., -1].mean(axis=-1))[0])
