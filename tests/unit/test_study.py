"""What a notebook holds: what it shows, and what it gives to go on from."""

import io
import os
import re
from types import SimpleNamespace

import pandas as pd
import pytest
from matplotlib.figure import Figure
from papermill.translators import PythonTranslator

import ablations
from ablations.figures import style
from ablations.pages import runs_table
from ablations.running import estimate
from ablations.study import Study
from lightning_modules.config import ConfigError
from lightning_modules.data.corpora import sources
from lightning_modules.places import project
from tests import tiny
from tests.messages import names, naming
from tests.unit.synthetic import RATE, make_record


@pytest.fixture
def study(tmp_path):
    """A study whose runs have all finished, with losses of our making."""
    found = Study("masking_ratio", "smoke", results_dir=tmp_path)
    for place, cell in enumerate(found.resolve().cells):
        for run in cell.runs:
            found.records.put(make_record(run, 4 + 0.1 * place + 0.01 * run.seed))
    found.resolve()
    return found


def test_a_plan_shows_the_memory_that_each_cell_needs_and_names_those_that_need_too_much(tmp_path, monkeypatch):
    found = [SimpleNamespace(total=25e6), SimpleNamespace(total=96e9), None]
    monkeypatch.setattr(estimate, "footprints", lambda *_: found)
    file = tiny.grid(tmp_path, rates="[0.15, 0.3, 0.4]", seeds=1)
    told = Study(file, "smoke", results_dir=tmp_path / "results").plan().text
    shown = [line for line in told.splitlines() if line.startswith("| rate=")]
    assert ["25 MB" in shown[0], "96 GB" in shown[1], "not known" in shown[2]] == [True] * 3
    (warned,) = (line for line in told.splitlines() if "80 GB" in line)
    assert names(warned, "rate=0.3 (96 GB)", "--strategy fsdp")
    assert "0.15" not in warned


HOUR = 3600 * 10**9  # nanoseconds


def edited(file, old, new, back=0):
    """Replaces text by as much other text; the file keeps its time, or one so much earlier, as if set back."""
    before = file.stat()
    text = file.read_text()
    assert old in text
    assert len(old) == len(new)
    file.write_text(text.replace(old, new))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns - back))


def test_a_tuple_that_papermill_made_a_text_of_is_refused_with_a_list(tmp_path):
    file = tiny.grid(tmp_path, rates="[0.15, 0.40]", seeds=1)
    injected = {}
    exec(PythonTranslator.codify({"listed": [0.3, 0.4], "rates": (0.3, 0.4)}), injected)
    listed = Study(file, "smoke", axes={RATE: injected["listed"]}, results_dir=tmp_path / "results")
    assert [cell.values[RATE] for cell in listed.resolve().cells] == [0.3, 0.4]
    with pytest.raises(ConfigError, match=naming(RATE, "list", "papermill", "tuple")):
        Study(file, "smoke", axes={RATE: injected["rates"]}, results_dir=tmp_path / "results")


@pytest.mark.parametrize("back", [0, HOUR])
def test_an_edited_grid_is_read_anew_whatever_the_time_of_its_file(tmp_path, back):
    file = tiny.grid(tmp_path, rates="[0.15, 0.40]", seeds=1)
    first = Study(file, "smoke", results_dir=tmp_path / "results")
    edited(file, "0.40", "0.30", back)
    second = Study(file, "smoke", results_dir=tmp_path / "results")
    rates = [[cell.values[RATE] for cell in study.resolve().cells] for study in (first, second)]
    assert rates == [[0.15, 0.4], [0.15, 0.3]]


def test_a_study_is_refused_once_its_grid_was_edited(tmp_path):
    """It would train what the file no longer asks, and its page would take the place of the present grid's."""
    file = tiny.grid(tmp_path, rates="[0.15, 0.40]", seeds=1)
    first = Study(file, "smoke", results_dir=tmp_path / "results")
    first.publish()
    file.write_text(f"# a remark changes nothing\n{file.read_text()}")
    first.publish()
    edited(file, "0.40", "0.30")
    second = Study(file, "smoke", results_dir=tmp_path / "results")
    second.publish()
    page = second.folder / "README.md"
    before = page.read_text()
    for act in (first.run, first.publish):
        with pytest.raises(ConfigError, match=naming(str(file), "edited", "open it again")):
            act()
    assert page.read_text() == before
    assert list(first.records.all()) == []


def test_two_files_of_one_name_have_no_page_in_common(tmp_path):
    mine, theirs = (tiny.grid(tmp_path / name, rates=rates) for name, rates in (("a", "[0.15]"), ("b", "[0.2, 0.15]")))
    first, second = (Study(file, "smoke", results_dir=tmp_path / "results") for file in (mine, theirs))
    first.publish()
    page = (first.folder / "README.md").read_text()
    for act in (second.run, second.publish):
        with pytest.raises(ConfigError, match=naming(str(theirs), str(mine), "rename")):
            act()
    assert (first.folder / "README.md").read_text() == page
    mine.unlink()
    second.publish()


def test_tables_have_their_numbers_unrounded(study):
    cells = study.resolve().cells
    shown = study.table()
    assert list(shown.data["cell"]) == [cell.label for cell in cells]
    runs = study.runs()
    for cell, mean in zip(shown.data["cell"], shown.data["heldout.loss mean"], strict=True):
        assert mean == pytest.approx(runs.loc[runs["cell"] == cell, "heldout.loss"].mean())
    assert list(study.plan().data["cell"]) == list(shown.data["cell"])
    assert set(study.claims().data["claim"]) == {claim.id for claim in study.grid.claims}


def test_figures_can_be_drawn_on_and_are_shown_in_the_bytes_that_are_saved(study):
    figure = study.figure()
    assert isinstance(figure, Figure)
    before = figure._repr_svg_()
    assert before == style.svg(figure)
    figure.axes[0].axhline(4.2)
    assert figure._repr_svg_() != before


def test_what_papers_print_and_what_is_claimed_is_there_before_anything_runs(tmp_path):
    study = Study("masking_ratio", "smoke", results_dir=tmp_path)
    printed, claimed = study.published(), study.hypotheses()
    assert str(printed).startswith("**Mask15, README mask-rate**")
    row = printed.data[(printed.data["variant"] == "m=0.40 (100% [MASK])") & (printed.data["metric"] == "MNLI")]
    assert row[["value", "number"]].to_numpy().tolist() == [["84.5", 84.5]]
    assert list(claimed.data["claim"]) == [claim.id for claim in study.grid.claims]
    assert "no table" in str(Study("directionality", "smoke", results_dir=tmp_path).published())


@pytest.mark.parametrize("grids", [["masking_ratio"], ["embedding_size", "masking_ratio"]])
def test_a_frame_has_the_rows_that_are_written(grids, finished_results):
    found = ablations.frame(*grids, scale="laptop", results_dir=finished_results)
    tables = [io.StringIO(Study(grid, "laptop", results_dir=finished_results).written("csv")) for grid in grids]
    wanted = pd.concat([pd.read_csv(table, keep_default_na=False) for table in tables], ignore_index=True)
    assert len(found) > 100
    pd.testing.assert_frame_equal(found.astype({"dirty": str}), wanted.astype({"dirty": str}), check_dtype=False)
    assert found["value"].dtype == float


def test_a_frame_of_everything_has_each_page_once(finished_results):
    one, everything = (ablations.frame(*grids, results_dir=finished_results) for grids in (["masking_ratio"], []))
    pages = {path.parent.parts[-2:] for path in finished_results.glob("*/*/page.json")}
    assert {*zip(everything["grid"], everything["scale"], strict=True)} == pages
    assert len(one) == (everything["grid"] == "masking_ratio").sum()


def test_a_frame_of_nothing_or_an_unknown_grid_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="has no page of any grid"):
        ablations.frame(results_dir=tmp_path)
    with pytest.raises(ConfigError, match="masking_ratio"):
        ablations.frame("masking_ration", scale="laptop")


def test_a_study_without_runs_has_an_empty_frame_and_says_how_to_fill_it(tmp_path):
    with pytest.warns(ablations.NoRunsWarning, match="ablations run masking_ratio --scale smoke"):
        found = ablations.frame("masking_ratio", scale="smoke", results_dir=tmp_path)
    assert found.empty
    assert list(found.columns) == list(runs_table.Row._fields)


@pytest.mark.slow
def test_the_example_for_analysts_runs(tmp_path, finished_results, monkeypatch):
    text = (project() / "README.md").read_text().partition("## For analysts")[2]
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(code.replace('scale="laptop"', f'scale="laptop", results_dir={str(finished_results)!r}'), names)
    assert list(names["runs"].columns) == list(runs_table.Row._fields)
    assert (names["runs"].grid.nunique(), len(names["cells"])) == (1, 6)
    assert (tmp_path / "masking_rate.png").stat().st_size > 5000


def test_what_is_overridden_stands_in_the_first_lines(tmp_path):
    changes = {
        "axes": {"objectives.mlm.masking.rate": [0.15, 0.8]},
        "set": {"model.num_layers": 1, "training.micro_batch_size": None},
        "seeds": 1,
        "filters": {"objectives.mlm.masking.rate": 0.15},
    }
    study = Study("masking_ratio", "smoke", results_dir=tmp_path, **changes)
    study.publish()
    page, index = (study.folder / "README.md").read_text(), (tmp_path / "README.md").read_text()
    rates, kept = "masking rate is 15 %, 80 %", "only cells with masking rate 15 %"
    for text in (page.splitlines()[2], str(study.about()), index):
        assert all(part in text for part in ("`model.num_layers` = 1 in every cell", rates, "1 seed", kept)), text
    assert f"ablations.open('masking_ratio', 'smoke', axes={changes['axes']}, seeds=1, " in page
    plain = Study("masking_ratio", "smoke", results_dir=tmp_path)
    plain.publish()
    assert "Overridden" not in str(plain.about()) + (plain.folder / "README.md").read_text()


def test_a_plan_asks_no_hub_for_tasks_of_other_scales(tmp_path, monkeypatch):
    """The scale `paper` of this grid has tasks of GLUE that are neither pinned nor here."""
    asked = []

    def hub(*place, **options):
        asked.append(place)
        raise sources.Unavailable("offline")

    monkeypatch.setattr(sources, "loaded", hub)
    monkeypatch.setenv("ABLATIONS_DATA", str(tmp_path))
    assert "paper" in Study("distillation", "smoke", results_dir=tmp_path / "results").power().text
    assert not asked
