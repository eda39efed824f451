"""Answers in words: numbers from the records, and no sentence that the verdicts no longer bear."""

import re
from dataclasses import replace

import pytest

from ablations.claims import judging
from ablations.claims.outcomes import Reason
from ablations.claims.verdict_text import effect_text
from ablations.core.formatting import difference_text, markdown_text
from ablations.measurements.measurements import Measurements
from ablations.measurements.selection import baseline_of
from ablations.measurements.summaries import summarise
from ablations.pages.lead import conclusion
from ablations.planning import grids
from ablations.schema.scale import Conclusion
from lightning_modules.config import ConfigError
from tests import tiny
from tests.unit.synthetic import (
    RATE,
    Kept,
    make_cell,
    make_grid,
    make_plan,
    make_record,
    make_study,
    publish_page,
)


@pytest.fixture
def judged():
    grid, cells, records = make_study()
    measured = Measurements(grid, cells, records)
    return measured, judging.verdicts(measured)


def said(judged, say, outcome=None):
    measured, (verdict,) = judged
    given = {verdict.claim.id: outcome or verdict.outcome}
    return conclusion.sentences([Conclusion(say=say, given=given)], measured, [verdict])


def test_numbers_are_those_of_the_verdict_and_of_the_cell(judged):
    measured, (verdict,) = judged
    cell = measured.cells[0]
    (text,) = said(judged, f"By {{{verdict.claim.id}}}, from {{heldout.loss of {cell.label}}} on.")
    assert effect_text(verdict) in text
    mean = sum(values := list(measured.values(cell, "heldout.loss").values())) / len(values)
    assert float(re.search(r"from ([\d.]+) ±", text)[1]) == pytest.approx(mean, abs=0.006)


@pytest.mark.parametrize("outcome", ["as claimed", "open"])
def test_a_sentence_goes_with_the_verdict_for_which_it_was_written(judged, outcome):
    assert judged[1][0].outcome == "against"
    assert said(judged, "Less is better.") == ["Less is better."]
    assert said(judged, "Less is better.", outcome) == []


def test_a_sentence_on_an_open_claim_waits_for_all_of_its_runs(judged):
    measured, (verdict,) = judged
    words = Conclusion(say="It is open.", given={verdict.claim.id: "open"})
    for reason, shown in {Reason.POWER: ["It is open."], Reason.UNFINISHED: [], Reason.NO_RUN: []}.items():
        open_one = replace(verdict, outcome="open", reason=reason)
        assert conclusion.sentences([words], measured, [open_one]) == shown


@pytest.mark.parametrize("place", ["heldout.loss of rate=0.9", "rte.accuracy of rate=0.4"])
def test_a_sentence_without_its_number_is_left_out(judged, place):
    assert said(judged, f"It is {{{place}}}.") == []


def test_one_cell_minus_another_is_compared_as_in_the_table(judged):
    measured, _ = judged
    first, other = measured.cells[3], baseline_of(measured.grid, measured.cells, measured.cells[3])
    (text,) = said(judged, f"By {{heldout.loss of {first.label} minus {other.label}}}.")
    (found,) = (item for item in summarise(measured) if item.cell is first)
    assert text == f"By {markdown_text(difference_text(found.metrics['heldout.loss'].difference))}."
    assert said(judged, f"By {{heldout.loss of {first.label} minus rate=0.9}}.") == []


def test_after_some_steps_numbers_are_those_of_the_curves():
    cells = [make_cell({RATE: rate}, 2) for rate in (0.15, 0.4)]
    records = {}
    for place, cell in enumerate(cells):
        for run in cell.runs:
            curve = {"tokens": [1e6, 2e6], "step": [100, 2000], "heldout.loss": [6.0 - place + run.seed / 100, 4.0]}
            records[run.id] = make_record(run, 4.0, curve=curve)
    measured = Measurements(make_grid(), cells, records)
    both = (measured, judging.verdicts(measured))
    labels = [cell.label for cell in cells]
    (text,) = said(both, f"{{heldout.loss of {labels[0]} minus {labels[1]} after 100 steps}}")
    assert text.startswith("+1.00")
    (text,) = said(both, f"{{heldout.loss of {labels[1]} after 2,000 steps}}")
    assert text == "4.000"
    assert said(both, f"{{heldout.loss of {labels[1]} after 3,000 steps}}") == []


def test_what_counting_reaches_stands_with_the_number_of_pieces(tmp_path, judged):
    grid, cells, records = make_study()
    measured = Measurements(grid, cells, Kept(records, tmp_path, cells, 4.75))
    (text,) = said(
        (measured, judged[1]),
        f"{{heldout.loss.floor of {cells[0].label}}} from {{heldout.loss.floor.pieces of {cells[0].label}}}.",
    )
    assert text == "4.750 from 100 k."
    assert said(judged, f"{{heldout.loss.floor.pieces of {cells[0].label}}}") == []


def test_it_is_the_first_line_of_the_page(tmp_path, judged):
    grid, cells, records = make_study()
    told = {"say": f"Less is better by {{{grid.claims[0].id}}}.", "given": {grid.claims[0].id: "against"}}
    scales = {"laptop": grid.scales["laptop"].model_copy(update={"conclusion": (Conclusion(**told),)})}
    plan = make_plan(grid.model_copy(update={"scales": scales}), cells)
    folder = tmp_path / "rates" / "laptop"
    publish_page(plan, records, folder)
    first = (folder / "README.md").read_text().split("\n\n")[1]
    assert first.startswith("**Answer:** Less is better by ")
    assert effect_text(judged[1][0]) in first


CLAIM = """claims:
  - {id: less, statement: s, source: x, metric: heldout.loss, a: {RATE: 0.4}, b: {RATE: 0.15}}
"""


@pytest.mark.parametrize(
    ("say", "given", "message"),
    [
        ("So.", "{les: open}", "is not a claim of this grid at this scale. Did you mean 'less'?"),
        ("So.", "{less: as climed}", "Did you mean 'as claimed'?"),
        ("So.", "{less: confounded}", "Allowed: against, as claimed, open, within the margin"),
        ("{more}", "{less: open}", "'more' is not among the verdicts under 'given'"),
        ("{heldout.los of rate=0.4}", "{less: open}", "Did you mean 'heldout.loss'?"),
        ("{heldout.loss of rate=0.41}", "{less: open}", "Did you mean 'rate=0.4'?"),
        ("{heldout.loss of rate=0.4 minus rate=0.14}", "{less: open}", "Did you mean 'rate=0.4'?"),
        ("{heldout.accuracy of rate=0.4 after 5 steps}", "{less: open}", "no curve to be read after some steps"),
        ("So.", "{}", "given"),
    ],
)
def test_what_a_sentence_names_exists(tmp_path, say, given, message):
    file = tiny.grid(tmp_path, extra=CLAIM.replace("RATE", RATE))
    entry = f'smoke: {{description: seconds, conclusion: [{{say: "{say}", given: {given}}}]}}'
    file.write_text(file.read_text().replace("smoke: {description: seconds}", entry))
    with pytest.raises(ConfigError) as failure:
        grids.read(file)
    assert message in str(failure.value)
