"""Simulated arms that differ in speed or quality alone."""

import numpy as np
import pytest

from ablations.core import alignment_simulation as simulation
from ablations.core.crossing import crossings

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("truth", simulation.TRUTHS)
@pytest.mark.parametrize("kind", simulation.FORMS)
def test_arms_differ_as_they_should(truth, kind, monkeypatch):
    monkeypatch.setattr(simulation, "NOISE", (0.0, 0.0, 0.0))
    ((better, worse),) = simulation.arms(np.random.default_rng(0), truth, kind, 2.0, 0.15, (1, 3), flat=False)
    assert (worse - better)[:, -1] == pytest.approx(0.15)
    passed = [crossings(simulation.X, side, 0.0).at for side in (better, worse)]
    assert -passed[1] == pytest.approx(np.log(2.0), abs=0.01)  # interpolated
    if truth == "quality":
        assert worse - better == pytest.approx(0.15)
    else:
        ahead = passed[1] - passed[0]
        steep, bend = simulation.FORMS[kind]
        assert better == pytest.approx(simulation.form(simulation.X - passed[0][:, None], steep, bend), abs=0.02)
        assert (ahead > 0.1).all()


@pytest.fixture(scope="module")
def rows():
    return simulation.error_rates(200)


@pytest.mark.slow
def test_the_same_numbers_come_again_and_shares_are_shares(rows):
    assert simulation.error_rates(10) == simulation.error_rates(10)
    for row in rows:
        assert 0 <= row["quality"] + row["speed"] <= 1
        assert row["quality"] <= row["quality by the end"]
        assert row["speed"] <= row["speed by size"]


def test_speed_is_rarely_called_quality_and_an_offset_rarely_speed(rows):
    wrong = [row["quality" if row["truth"] == "speed" else "speed"] for row in rows]
    assert max(wrong) <= 0.06 + 3 * np.sqrt(0.06 * 0.94 / 200)
    assert np.mean(wrong) <= 0.03


def test_each_class_needs_its_second_condition(rows):
    assert max(row["quality by the end"] for row in rows if row["truth"] == "speed") > 0.5
    assert max(row["speed by size"] for row in rows if row["truth"] == "quality") > 0.4


def test_a_bootstrap_over_few_runs_calls_speed_quality_too_often(rows):
    few = [row for row in rows if row["quality by bootstrap"] is not None and row["seeds"] < 8]
    bootstrap, t = (np.mean([row[f"quality by {name}"] for row in few]) for name in ("bootstrap", "the end"))
    assert bootstrap > 0.05 > t
