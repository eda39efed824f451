import json
import re
import shutil
import sys

import pytest

from ablations.pages import publishing, report
from ablations.planning import grids
from ablations.planning.plan import run_states
from lightning_modules.config import ConfigError
from tests.unit.synthetic import (
    RATE,
    make_cell,
    make_claim,
    make_failure,
    make_grid,
    make_objectives,
    make_plan,
    make_record,
    make_study,
    publish_page,
)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A page that is made once for all tests here; they get copies."""
    grid, cells, records = make_study()
    folder = tmp_path_factory.mktemp("drawn")
    return folder, publish_page(make_plan(grid, cells), records, folder)


@pytest.fixture
def published(drawn, tmp_path):
    made, written = drawn
    folder = shutil.copytree(made, tmp_path / "masking_ratio" / "laptop")
    return folder, {name: folder / path.name for name, path in written.items()}


def test_the_page_says_which_runs_are_stale_and_what_to_do(tmp_path):
    """A run whose record is by code of another generation of numerics is not one that never was."""
    cell = make_cell({RATE: 0.15}, 4)
    done, *old, missing = cell.runs
    made = [done, *(run.of_generation({**run.numerics, "pretrain": 1}) for run in old)]
    records = {run.id: make_record(run, 4.0, config=run.to_dict()) for run in made}
    assert missing.id not in records
    grid = make_grid(axes={RATE: [0.15]}, claims=[], published=[])
    publish_page(make_plan(grid, [cell], states=run_states(cell.runs, records)), records, tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "**1 of 4 runs finished.** This page is incomplete." in page
    (line,) = (line for line in page.splitlines() if "stale" in line)
    assert line.startswith("**2 runs are stale:**")
    assert "`ablations run masking_ratio --scale laptop`" in line
    publish_page(make_plan(grid, [cell], states=run_states(cell.runs[:1], records)), records, tmp_path)
    assert "stale" not in (tmp_path / "README.md").read_text()


CLEAN, CHANGED = ({"commit": "0123456789abcdef", "dirty": dirty} for dirty in (False, True))


def test_the_page_says_how_many_codes_made_its_runs(tmp_path):
    for origins, said, unsaid in [
        ([CLEAN] * 4, ("at commit `0123456789`.",), ("code",)),
        ([CLEAN | {"code": "aa"}] * 4, ("at commit `0123456789`.",), ("code",)),
        ([CHANGED | {"code": "aa"}] * 3 + [CHANGED | {"code": "bb"}], ("changed code in 4", "2 different codes"), ()),
        ([CHANGED | {"code": "aa"}] * 4, ("changed code in 4", "all by the same code"), ()),
        ([CLEAN] * 3 + [CHANGED], ("changed code in 1", "how many codes is unknown"), ()),
        ([CLEAN | {"code": "aa"}] * 3 + [CLEAN | {"code": "bb"}], ("2 different codes",), ("changed",)),
        ([{"code": "aa"}] * 3 + [{"code": "bb"}], ("2 different codes",), ("commit",)),
        ([CLEAN | {"code": "aa"}, {"commit": "fedcba9876543210", "dirty": False, "code": "bb"}], (), ("code",)),
    ]:
        cell = make_cell({RATE: 0.15}, len(origins))
        pairs = zip(cell.runs, origins, strict=True)
        records = {run.id: make_record(run, 4.0, provenance={"device": "cpu"} | origin) for run, origin in pairs}
        publish_page(make_plan(make_grid(axes={RATE: [0.15]}, claims=[], published=[]), [cell]), records, tmp_path)
        (cost,) = re.findall(r"^\* \d+ runs, .*computing.*$", (tmp_path / "README.md").read_text(), re.MULTILINE)
        assert all(part in cost for part in said), origins
        assert not any(part in cost for part in unsaid), origins


def test_the_page_answers_its_question(published):
    folder, _ = published
    page = (folder / "README.md").read_text()
    assert page.startswith("# Does hiding more than 15 % of the tokens help?\n")
    assert "**25 of 25 runs finished.**" in page
    assert "incomplete" not in page
    (row,) = (line for line in page.splitlines() if line.startswith("| 1: "))
    assert re.search(r"\| against \| [a-z ]+ \|$", row)
    assert "Every cell gets the number of training tokens of the baseline." in page
    assert "49 min of computing on a shared machine on cpu" in page
    assert "`ablations run masking_ratio --scale laptop`" in page
    for target in re.findall(r"\]\(([^)]+)\)", page):
        assert (folder / target).exists(), target


def test_unfinished_grids_say_so(tmp_path):
    grid, cells, records = make_study()
    for run in cells[3].runs[:2]:
        records[run.id] = make_failure(run)
    del records[cells[0].runs[0].id]
    publish_page(make_plan(grid, cells, folder_name="laptop-abc123", overrides={"seeds": 5}), records, tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "**22 of 25 runs finished.** This page is incomplete." in page
    assert "2 diverged (loss is NaN at step 312)" in page
    assert "**Overridden in this study:** 5 seeds." in page


def test_without_data_no_figure_is_written_and_an_old_one_goes(published):
    folder, _ = published
    grid, cells, _ = make_study()
    written = publish_page(make_plan(grid, cells), {}, folder)
    assert "knob.svg" not in written
    assert not (folder / "knob.svg").exists()
    page = (folder / "README.md").read_text()
    assert "**0 of 25 runs finished.**" in page
    assert "No run has been made." in page
    assert "![" not in page


def test_an_executed_notebook_of_fewer_runs_is_called_so(published):
    """As after ``ablations run --no-notebook``, which trains further runs and leaves the notebook as it is."""
    folder, _ = published
    grid, cells, records = make_study()
    finished = json.loads((folder / "page.json").read_text())["finished"]
    for shown in (0, finished // 2, finished):
        notebook = {"cells": [], "metadata": {"ablations": {"runs": shown}}}
        (folder / "notebook.ipynb").write_text(json.dumps(notebook))
        publish_page(make_plan(grid, cells), records, folder)
        lines = (folder / "details.md").read_text().splitlines()
        line = next(line for line in lines if line.startswith("Executed notebook"))
        assert (f"{shown} of these {finished} runs" in line) == (shown < finished)


def test_the_text_of_a_grid_is_shown_as_the_markdown_that_it_is(tmp_path):
    grid, cells, records = make_study()
    publish_page(make_plan(grid, cells), records, tmp_path)
    before = (tmp_path / "details.md").read_text()
    about = "A *note* on [a paper](https://arxiv.org/abs/2202.08005).\n\n| x | 1 < 2 |\n|---|---|\n| `a` | b |"
    publish_page(make_plan(make_grid(about=f"{about}\n"), cells), records, tmp_path)
    assert (tmp_path / "details.md").read_text().replace(f"## About\n\n{about}\n\n", "") == before


def test_fine_tunings_are_counted_and_shared_runs_once(tmp_path):
    grid, cells, records = make_objectives()
    shared = [*cells, cells[3].model_copy(update={"values": {"objective": "pairs, SOP again"}})]
    del records[cells[0].finetunings[0].id]
    written = publish_page(make_plan(grid, shared), records, tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "**39 of 40 runs finished.** This page is incomplete." in page
    assert "39 runs, " in page
    assert "1 not run on rte" in page
    assert "layers.svg" in written
    assert "](layers.svg)" in (tmp_path / "details.md").read_text()
    bare = {id: record.but(layers={}) for id, record in records.items()}
    assert "layers.svg" not in publish_page(make_plan(grid, cells), bare, tmp_path)
    assert not (tmp_path / "layers.svg").exists()


def test_the_index_lists_every_page(tmp_path):
    grid, cells, records = make_study()
    for name in ("masking_ratio", "another"):
        for scale in ("laptop", "smoke"):
            found = records if scale == "laptop" else {}
            publish_page(make_plan(grid, cells, folder_name=scale), found, tmp_path / name / scale)
    text = report.index(tmp_path).read_text()
    rows = [line for line in text.splitlines() if line.startswith("| [")]
    assert [re.search(r"\(([^)]+)\)", row)[1] for row in rows] == [
        "masking_ratio/laptop/README.md",
        "another/laptop/README.md",
        "masking_ratio/smoke/README.md",  # under half of their runs
        "another/smoke/README.md",
    ]
    assert f"{len(grids.available()) - 1} more grids" in text
    assert "15 % beats 40 % by" in rows[0]
    assert "25 of 25" in rows[0]
    assert "1 not measured | 0 of 25" in rows[2]
    assert report.index(tmp_path).read_text() == text


def test_pages_are_rebuilt_without_the_data_of_other_scales(tmp_path, monkeypatch):
    """The official tasks of the paper scale are neither pinned nor at hand; a page of theirs is not passed over."""
    ladder = {"albert_size_ladder": grids.available()["albert_size_ladder"]}
    monkeypatch.setattr(grids, "available", lambda *_: ladder)
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert publishing.republish(tmp_path) == []
    (tmp_path / "albert_size_ladder/paper").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"SQuAD 1\.1 was not found"):
        publishing.republish(tmp_path)


@pytest.mark.parametrize(("margin", "settled"), [(2.0, True), (1e-6, False)])
def test_what_else_could_explain_an_equality_stands_beside_it(tmp_path, margin, settled):
    equal = make_claim(relation="~", margin=margin, a={RATE: 0.4}, b={RATE: 0.4001}, alternative="neither has learned")
    grid, cells, records = make_study(claims=(equal,))
    twin = make_cell({RATE: 0.4001}, 5)
    first = next(cell for cell in cells if cell.values[RATE] == 0.4)
    of_twin = zip(twin.runs, first.runs, strict=True)
    records |= {run.id: make_record(run, records[other.id].metrics["heldout.loss"]) for run, other in of_twin}
    publish_page(make_plan(grid, [*cells, twin]), records, tmp_path)
    assert ("neither has learned" in (tmp_path / "README.md").read_text(encoding="utf-8")) == settled
