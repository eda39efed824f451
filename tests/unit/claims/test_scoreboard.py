"""The scoreboard: published claims as data, and what pages say of them."""

import json
import random
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from ablations.claims.judging import verdicts
from ablations.claims.outcomes import AGAINST, AS_CLAIMED, OPEN, WITHIN, Reason
from ablations.claims.published_claims import claims, with_parts
from ablations.claims.scoreboard import (
    BELOW,
    ELSE,
    NO_GRID,
    NOT_RUN,
    PAST,
    STATES,
    Answer,
    Entry,
    Surviving,
    answers,
    card,
    entries,
    states,
    surviving,
)
from ablations.commands.cli import app
from ablations.figures.claims import board, forest
from ablations.measurements.measurements import Measurements
from ablations.pages import scoreboard_page
from tests.messages import names
from tests.unit import synthetic

ID = "mask15.r.40_gt_15_mnli"


@pytest.fixture
def study():
    """Forty per cent is worse than fifteen in these records: the claim is contradicted."""
    return synthetic.make_study(claims=[synthetic.make_claim(id=ID, claim=ID)])


def answered(study, records, grid="masking_ratio"):
    made, cells, everything = study
    page = {"claims": cards(Measurements(made, cells, everything))}
    return answers([(grid, "laptop", json.loads(json.dumps(page)))], records)


def cards(measured):
    return [card(verdict) for verdict in verdicts(measured)]


def said(*outcomes, grids=("g",)):
    made = [
        Answer(ID, f"{ID}{n}", grid, "laptop", outcome, "", "m", 5, None, ())
        for n, (grid, outcome) in enumerate(outcomes)
    ]
    return Entry(claims()[ID], tuple(made), tuple(grids)).outcome("laptop")


def test_a_claim_counts_by_all_its_answers():
    assert said(("g", AS_CLAIMED), ("g", AS_CLAIMED)) == AS_CLAIMED
    assert said(("g", WITHIN), ("h", WITHIN)) == WITHIN
    assert said(("g", AS_CLAIMED), ("g", OPEN)) == OPEN
    assert said(("g", AS_CLAIMED), ("g", WITHIN)) == OPEN
    assert said(("g", AS_CLAIMED), ("g", NOT_RUN)) == OPEN
    assert said(("g", AS_CLAIMED), ("h", NOT_RUN)) == AS_CLAIMED
    assert said(("g", AS_CLAIMED), ("h", OPEN)) == OPEN
    assert said(("g", AGAINST), ("g", OPEN)) == AGAINST
    assert said(("g", AGAINST), ("h", AS_CLAIMED)) == OPEN
    assert said(("g", NOT_RUN)) == NOT_RUN
    assert said() == NOT_RUN
    assert said(grids=()) == NO_GRID


def judged_elsewhere(grid, outcome, *p, regime="quality"):
    """The card of a page with one claim for each p, each a test of its own."""
    row = {"claim": ID, "sentence": "", "metric": "m", "outcome": outcome, "n": 5, "effect": 1.0, "runs": ["r"]}
    row["regime"] = regime
    rows = [row | {"asked": f"{ID}{n}", "p": x, "test": n} for n, x in enumerate(p)]
    return grid, "laptop", {"claims": rows}


def test_what_survives_one_grid_need_not_survive_the_board():
    small = [judged_elsewhere("g", AS_CLAIMED, 0.004)]
    assert [answer.survives for answer in answers(small, {"r"})] == [True]
    large = [*small, judged_elsewhere("h", OPEN, *[0.5] * 20)]
    assert not any(answer.survives for answer in answers(large, {"r"}))
    board = entries(answers(large, {"r"}), {})
    assert surviving(board, "laptop") == Surviving(tests=21, planned=21, settled=1, left=0, claims=0, whole=0)
    alone = entries(answers(small, {"r"}), {})
    assert surviving(alone, "laptop") == Surviving(tests=1, planned=1, settled=1, left=1, claims=1, whole=1)


def test_a_part_that_survives_is_no_claim_that_does():
    parts = [judged_elsewhere("g", AS_CLAIMED, 1e-9), judged_elsewhere("h", OPEN, 0.5)]
    found = surviving(entries(answers(parts, {"r"}), {}), "laptop")
    assert (found.settled, found.left, found.claims, found.whole) == (1, 1, 0, 0)


def test_two_answers_by_one_test_are_one_test():
    grid, scale, page = judged_elsewhere("g", AS_CLAIMED, 0.03, 0.03)
    apart = answers([(grid, scale, page)], {"r"})
    assert {answer.survives for answer in apart} == {False}
    for row in page["claims"]:
        row["test"] = 0
    assert {answer.survives for answer in answers([(grid, scale, page)], {"r"})} == {True}


def test_what_is_open_or_threatened_survives_nothing_however_small_its_p():
    for outcome, regime in ((OPEN, "quality"), (NOT_RUN, ""), (AS_CLAIMED, "confounded"), (AGAINST, "other subject")):
        (found,) = answers([judged_elsewhere("g", outcome, 1e-9, regime=regime)], {"r"})
        assert not found.survives_all, (outcome, regime)


def test_missing_records_never_leave_a_verdict(study):
    """However records get lost, a verdict that rested on one of them is gone."""
    everything = study[2]
    (whole,) = answered(study, everything)
    assert whole.outcome == AGAINST
    assert len(whole.runs) == 10
    chance = random.Random(0)
    for _ in range(30):
        kept = {id: record for id, record in everything.items() if chance.random() < 0.9}
        (left,) = answered(study, kept)
        assert left.outcome == (AGAINST if set(whole.runs) <= kept.keys() else NOT_RUN)
    (nothing,) = answered(study, set())
    assert nothing.outcome == NOT_RUN


def test_a_hypothesis_of_a_grid_is_on_no_papers_row():
    study = synthetic.make_study(claims=[synthetic.make_claim(claim="")])
    assert answered(study, study[2]) == []


def test_a_part_counts_as_the_claim_it_is_part_of():
    study = synthetic.make_study(claims=[synthetic.make_claim(claim="mask15.r.falls_past_40")])
    (answer,) = answered(study, study[2])
    assert answer.claim == "mask15.r.peak_then_decline"


def test_the_sheets_hold_every_claim_once(study):
    found = entries(answered(study, study[2]), {ID: ["masking_ratio"]})
    reading, numbers, runs = scoreboard_page.sheets(found)
    assert len(reading.rows) == 1
    assert len(numbers.rows) == len(claims())
    assert len(runs["claims"][0]["runs"]) == 10
    total = scoreboard_page.summary(found, "laptop").rows[-1]
    assert total[1] == len(claims())
    assert (total[3], total[4 + STATES.index(AGAINST)]) == (1, 1)  # measured, and against
    assert sum(map(int, total[4:])) == 1
    assert board(found, "laptop") is not None
    assert forest(found, "laptop") is not None
    assert forest(entries([], {}), "laptop") is None


def given(*reasons, outcome=OPEN, claim=ID, **changes):
    """A published claim whose answers are open for these reasons."""
    known = {"effect": 0.1, "effect_low": 0.05, "effect_high": 0.2, "quantity": "nats", "statement": "A is better."}
    made = [
        Answer(
            claim, f"{claim}{n}", f"g{n}", "laptop", outcome, "", "loss", 5, runs=(), reason=reason, **known | changes,
        )
        for n, reason in enumerate(reasons)
    ]  # fmt: skip
    return Entry(claims()[claim], tuple(made), ("g",))


def test_a_settled_claim_is_counted_by_its_most_cautious_regime():
    def state(outcome, *regimes):
        found = given(*[""] * len(regimes), outcome=outcome)
        told = tuple(replace(one, regime=regime) for one, regime in zip(found.answers, regimes, strict=True))
        return replace(found, answers=told).state("laptop")

    assert state(AS_CLAIMED, "quality", "speed") == PAST
    assert state(AS_CLAIMED, "as published", "below counting") == BELOW
    assert state(AGAINST, "plateau") == AGAINST
    assert state(AGAINST, "quality", "confounded") == ELSE == state(AS_CLAIMED, "below counting", "by construction")
    assert state(OPEN, "below counting") == OPEN


def test_the_board_counts_what_the_scale_can_test():
    larger = next(claim for claim in claims().values() if claim.testable == "paper")
    assert not Entry(larger, (), ("g",)).is_testable("laptop")
    assert Entry(larger, (), ("g",)).is_testable("paper")
    assert given(Reason.POWER, claim=larger.id).is_testable("laptop")
    assert not given(Reason.UNTESTABLE, outcome=NOT_RUN).is_testable("laptop")
    found = entries([], {})
    rows = states(found, "laptop")
    assert sum(sum(counts.values()) for _, counts in rows) == sum(c.testable == "laptop" for c in claims().values())
    sizes = [sum(counts.values()) for _, counts in rows]
    assert sizes == sorted(sizes, reverse=True)


def test_constructed_text_is_counted_apart_and_last():
    mechanism = next(claim for claim in claims().values() if claim.testable == "constructed")
    assert Entry(mechanism, (), ("g",)).is_testable("mechanism")
    assert not Entry(mechanism, (), ("g",)).is_testable("paper")
    on_real_text = given("", outcome=AS_CLAIMED)
    made = replace(on_real_text.answers[0], scale="mechanism", outcome=AGAINST, grid="h")
    both = replace(on_real_text, answers=(*on_real_text.answers, made))
    assert not on_real_text.is_testable("mechanism"), "a verdict on real text is none there"
    assert both.is_testable("mechanism")
    assert (both.outcome("laptop"), both.outcome("mechanism")) == (AS_CLAIMED, AGAINST), "never mixed"
    reading = scoreboard_page.sheets([both])[0]
    assert reading.headings[4:6] == ["laptop", "mechanism (constructed text)"]
    assert reading.rows[0][4:6] == [AS_CLAIMED, AGAINST]
    counts = scoreboard_page.summary(entries([], {}), "mechanism")
    assert counts.rows[-1][2] == sum(claim.testable == "constructed" for claim in claims().values())
    assert scoreboard_page.summary(entries([], {}), "laptop").headings[2] != counts.headings[2]


@pytest.mark.slow
def test_claims_are_asked_by_id_and_a_slip_is_answered_with_the_nearest(tmp_path):
    (tmp_path / "records").mkdir()

    def asked(*words):
        return CliRunner().invoke(app, ["claims", *words, "--results-dir", str(tmp_path)])

    part = asked(ID, "mask15.r.falls_past_40", "--format", "names")
    assert part.stdout.split() == [ID, "mask15.r.peak_then_decline"], "a part counts with its whole"
    assert claims()[ID].statement in asked(ID).stdout
    slip = asked(f"{ID}x")
    assert slip.exit_code == 2
    assert names(slip.output, f"'{ID}x'", f"'{ID}'?", f"{len(with_parts())}")
    assert len(slip.output) < 400
