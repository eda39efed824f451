"""What a notebook holds: what it shows, and what it gives to go on from."""

import inspect
import typing

import pytest
from matplotlib.figure import Figure

import ablations
from ablations.figures import style
from ablations.study import Study
from tests.unit.synthetic import make_record


@pytest.fixture
def study(tmp_path):
    """A study whose runs have all finished, with losses of our making."""
    found = Study("masking_ratio", "smoke", results_dir=tmp_path)
    for place, cell in enumerate(found.resolve().cells):
        for run in cell.runs:
            found.records.put(make_record(run, 4 + 0.1 * place + 0.01 * run.seed))
    found.resolve()
    return found


def test_open_has_the_signature_of_the_study_that_it_makes():
    """It is written twice, because `Study` is imported when the first is opened."""
    opened, made = inspect.signature(ablations.open), inspect.signature(Study)
    assert list(opened.parameters.values()) == list(made.parameters.values())
    assert typing.get_type_hints(ablations.open, localns={"Study": Study})["return"] is Study


def test_tables_have_their_numbers_unrounded(study):
    cells = study.resolve().cells
    shown = study.table()
    assert list(shown.data["cell"]) == [cell.label for cell in cells]
    runs = study.frame()
    for cell, mean in zip(shown.data["cell"], shown.data["heldout.loss mean"], strict=True):
        assert mean == pytest.approx(runs.loc[runs["cell"] == cell, "heldout.loss"].mean())
    assert list(study.plan().data["cell"]) == list(shown.data["cell"])
    assert set(study.claims().data["claim"]) == {claim.id for claim in study.grid.claims}


def test_what_is_shown_in_a_notebook_is_printed_in_a_terminal(study):
    shown = study.table()
    assert str(shown) == shown.text == shown._repr_markdown_()
    assert shown.text.startswith("| ")


def test_figures_can_be_drawn_on_and_are_shown_in_the_bytes_that_are_saved(study):
    figure = study.figure()
    assert isinstance(figure, Figure)
    before = figure._repr_svg_()
    assert before == style.svg(figure)
    figure.axes[0].axhline(4.2)
    assert figure._repr_svg_() != before


def test_nothing_to_draw_is_said(tmp_path):
    assert "no run has finished" in str(Study("masking_ratio", "smoke", results_dir=tmp_path).figure())


def test_what_papers_print_and_what_is_claimed_is_there_before_anything_runs(tmp_path):
    study = Study("masking_ratio", "smoke", results_dir=tmp_path)
    printed, claimed = study.published(), study.hypotheses()
    assert str(printed).startswith("**Mask15, README mask-rate**")
    row = printed.data[(printed.data["variant"] == "m=0.40 (100% [MASK])") & (printed.data["metric"] == "MNLI")]
    assert row[["value", "number"]].to_numpy().tolist() == [["84.5", 84.5]]
    assert list(claimed.data["claim"]) == [claim.id for claim in study.grid.claims]
    assert "no table" in str(Study("directionality", "smoke", results_dir=tmp_path).published())
