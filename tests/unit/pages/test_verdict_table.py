"""The verdicts of a page: a row each, what belongs to several said once, and none where numbers mean nothing."""

import re
from dataclasses import replace

import pytest

from ablations.claims import judging
from ablations.measurements.measurements import Measurements
from ablations.pages import judged, verdict_table
from tests.unit.synthetic import RATE, make_claim, make_plan, make_study, publish_page

PROXY = "the loss in place of MNLI"


def claims(*ids):
    return [make_claim(id=id, a={RATE: 0.4}, b={RATE: 0.15 + 0.15 * n}, proxy=PROXY) for n, id in enumerate(ids)]


@pytest.fixture
def measured():
    return Measurements(*make_study(claims=claims("one", "two")))


def test_what_two_claims_share_is_said_once_with_both_numbers(measured):
    text = "\n".join(verdict_table.remarks(verdicts := judging.verdicts(measured)))
    assert text.count(PROXY) == 1
    assert f"(1, 2): {PROXY}." in text
    assert verdict_table.threats([replace(verdicts[0], floors=("words",) * n, notes=()) for n in (2, 3)]) == [
        "No side is shown to be better than the words (1, 2)."
    ]


def test_a_row_has_the_effect_and_the_interval_that_decide(measured):
    first, _ = judging.verdicts(measured)
    (row,) = (line for line in verdict_table.table([first]).splitlines() if line.startswith("| 1: "))
    *_, effect, n, verdict, regime, _ = (cell.strip() for cell in row.split("|"))
    shown = [float(number) for number in re.findall(r"-?[\d.]+", effect)]
    assert shown == pytest.approx([first.effect, first.adjusted.low, first.adjusted.high], abs=0.005)
    assert (int(n), verdict, regime) == (first.n, first.outcome, first.regime)


def test_claims_without_runs_say_why_and_what_to_do():
    grid, cells, _ = make_study(claims=claims("one", "two"))
    verdicts = judging.verdicts(Measurements(grid, cells, {}))
    assert "**Not measured: no run** (1, 2): train its runs" in "\n".join(verdict_table.remarks(verdicts))
    assert not verdict_table.table(verdicts)


def test_a_scale_for_tests_has_the_numbers_and_no_verdict(measured, tmp_path):
    at_laptop, at_smoke = (judged.verdicts(scale, measured) for scale in ("laptop", "smoke"))
    assert {verdict.outcome for verdict in at_laptop} <= {"as claimed", "against", "open"}
    assert [verdict.adjusted for verdict in at_smoke] == [verdict.adjusted for verdict in at_laptop]
    assert {verdict.outcome for verdict in at_smoke} == {"not judged"}
    grid, cells, records = make_study(claims=claims("one", "two"))
    publish_page(make_plan(grid, cells, scale="smoke", folder_name="smoke"), records, tmp_path)
    for path in tmp_path.iterdir():
        text = path.read_text()
        assert not re.search(r"[|] (as claimed|against) [|]", text), path.name
    assert "2 not judged" in (tmp_path / "README.md").read_text()
