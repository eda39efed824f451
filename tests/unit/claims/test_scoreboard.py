"""The scoreboard: published claims as data, and what pages say of them."""

import json
import random

import pytest
from typer.testing import CliRunner

from ablations.claims import published_claims
from ablations.claims.judging import CONTRADICTS, NOT_RESOLVED, REPLICATES, verdicts
from ablations.claims.published_claims import COLUMNS, claims
from ablations.claims.scoreboard import (
    MIXED,
    NO_GRID,
    NOT_RUN,
    OUTCOMES,
    Answer,
    Entry,
    answers,
    card,
    entries,
    removed,
    tally,
)
from ablations.commands.cli import app
from ablations.figures.claims import board, forest
from ablations.pages import scoreboard_page
from ablations.planning import grids
from lightning_modules.config import ConfigError
from tests.unit import synthetic

ID = "mask15.r.40_gt_15_mnli"


@pytest.fixture
def study():
    """Forty per cent is worse than fifteen in these records: the claim is contradicted."""
    return synthetic.make_study(claims=[synthetic.make_claim(id=ID)])


def answered(study, records, grid="masking_ratio"):
    made, cells, everything = study
    page = {"claims": [card(verdict, everything) for verdict in verdicts(made, cells, everything)]}
    return answers([(grid, "laptop", json.loads(json.dumps(page)))], records)


def said(*outcomes, grids=("g",)):
    made = [
        Answer(ID, f"{ID}{n}", grid, "laptop", outcome, "", "m", 5, None, None, None, None, None, ())
        for n, (grid, outcome) in enumerate(outcomes)
    ]
    return Entry(claims()[ID], tuple(made), tuple(grids)).outcome("laptop")


def test_every_claim_of_a_grid_is_in_the_record():
    for name in grids.available():
        for claim in grids.read(name).claims:
            assert (claim.of or claim.id) in claims(), f"{name}: {claim.id}"


def test_the_record_is_whole():
    """227 claims of the papers, and those that grids add from tables of the same papers."""
    added = [claim for claim in claims().values() if claim.note.startswith("added")]
    assert len(claims()) - len(added) == 227
    assert all(claim.statement.endswith(".") for claim in claims().values())
    for claim in claims().values():
        if claim.relation in ("<", ">") and claim.a_value and claim.b_value:
            difference = float(claim.a_value.lstrip("~")) - float(claim.b_value.lstrip("~"))
            assert float(claim.effect.lstrip("~")) == pytest.approx(difference, abs=1e-9), claim.id


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"relation": "better"}, "relation is 'better'. Allowed"),
        ({"testable": "lapto"}, "did you mean 'laptop'|laptop"),
        ({"statement": ""}, "'statement' is empty"),
        ({"id": ID}, "already"),
    ],
)
def test_bad_rows_are_named_with_their_line(tmp_path, change, message):
    good = {column: getattr(claims()[ID], column) for column in COLUMNS}
    rows = [good, good | {"id": "other.id"} | change]
    lines = [",".join(COLUMNS), *(",".join(f'"{row[column]}"' for column in COLUMNS) for row in rows)]
    (tmp_path / "some.csv").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"some.csv:3") as found:
        published_claims.claims(tmp_path)
    assert any(part in str(found.value) for part in message.split("|"))


def test_a_claim_counts_by_all_its_answers():
    assert said(("g", REPLICATES), ("g", REPLICATES)) == REPLICATES
    assert said(("g", REPLICATES), ("g", NOT_RESOLVED)) == NOT_RESOLVED
    assert said(("g", REPLICATES), ("g", NOT_RUN)) == NOT_RESOLVED
    assert said(("g", REPLICATES), ("h", NOT_RUN)) == REPLICATES
    assert said(("g", REPLICATES), ("h", NOT_RESOLVED)) == NOT_RESOLVED
    assert said(("g", CONTRADICTS), ("g", NOT_RESOLVED)) == CONTRADICTS
    assert said(("g", CONTRADICTS), ("h", REPLICATES)) == MIXED
    assert said(("g", NOT_RUN)) == NOT_RUN
    assert said() == NOT_RUN
    assert said(grids=()) == NO_GRID


def test_missing_records_never_leave_a_verdict(study):
    """However records get lost, a verdict that rested on one of them is gone."""
    everything = study[2]
    (whole,) = answered(study, everything)
    assert whole.outcome == CONTRADICTS
    assert len(whole.runs) == 10
    chance = random.Random(0)
    for _ in range(30):
        kept = {id: record for id, record in everything.items() if chance.random() < 0.9}
        (left,) = answered(study, kept)
        assert left.outcome == (CONTRADICTS if set(whole.runs) <= kept.keys() else NOT_RUN)
    (nothing,) = answered(study, {})
    assert nothing.outcome == NOT_RUN


def test_a_page_without_data_is_not_run(study):
    made, cells, _ = study
    page = {"claims": [card(verdict, {}) for verdict in verdicts(made, cells, {})]}
    (empty,) = answers([("masking_ratio", "laptop", page)], {})
    assert empty.outcome == NOT_RUN
    (entry,) = [one for one in entries([empty], {ID: ["masking_ratio"]}) if one.claim.id == ID]
    assert entry.outcome("laptop") == NOT_RUN


def test_effects_are_shares_of_the_shortfall(study):
    (one,) = answered(study, study[2])
    assert removed(90.0, 80.0, lower=False) == pytest.approx(0.5)
    assert removed(0.9, 0.8, lower=False) == pytest.approx(0.5)
    assert removed(5.0, 4.0, lower=True) == pytest.approx(-0.25)
    assert removed(1.0, 1.0, lower=False) is None
    assert one.published == pytest.approx(0.3 / 15.8)
    made, cells, everything = study
    (verdict,) = verdicts(made, cells, everything)
    worse = [everything[b].metrics["heldout.loss"] for _, b in verdict.runs]
    assert one.removed == pytest.approx(verdict.effect / (sum(worse) / len(worse)))
    assert one.low < one.removed < one.high < 0


def test_an_unknown_claim_is_refused():
    with pytest.raises(ConfigError, match=ID):
        entries([], {ID + "x": ["masking_ratio"]})


def test_tally_and_sheets_hold_every_claim_once(study):
    found = entries(answered(study, study[2]), {ID: ["masking_ratio"]})
    rows = tally(found, "laptop")
    assert sum(sum(counts.values()) for _, counts in rows) == len(claims())
    assert dict(rows)["Mask15"][CONTRADICTS] == 1
    assert set(dict(rows)["Mask15"]) == set(OUTCOMES)
    reading, numbers, runs = scoreboard_page.sheets(found)
    assert len(reading.rows) == 1
    assert len(numbers.rows) == len(claims())
    assert len(runs["claims"][0]["runs"]) == 10
    total = scoreboard_page.summary(found, "laptop").rows[-1]
    assert total[1] == len(claims())
    assert board(found, "laptop") is not None
    assert forest(found, "laptop") is not None
    assert forest(entries([], {}), "laptop") is None


def test_a_choice_that_leaves_no_claim_says_so(tmp_path):
    asked = ["claims", "--paper", "albert", "--grid", "masking_ratio", "--results", str(tmp_path)]
    ended = CliRunner().invoke(app, asked)
    assert ended.exit_code == 0
    assert "No claim of 'albert' is asked by the grid 'masking_ratio'." in ended.output
