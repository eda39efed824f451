import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from ablations.pages import publishing, report
from ablations.planning import grids
from ablations.planning.plan import run_states
from ablations.schema.scale import Scale
from lightning_modules.config import ConfigError
from lightning_modules.places import project
from tests.depth import some
from tests.unit.core.test_formatting import HOSTILE
from tests.unit.synthetic import (
    RATE,
    make_cell,
    make_claim,
    make_depths,
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


def test_a_folder_has_tables_verdicts_figures_and_a_page(published):
    folder, written = published
    stems = ("table", "claims", "equal_compute", "alignment", "seeds")
    names = {f"{stem}.{end}" for stem in stems for end in ("md", "csv", "json")}
    names |= {"knob.svg", "curves.svg", "alignment.svg", "README.md", "page.json"}
    assert {path.name for path in folder.iterdir()} == set(written) == names


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


@pytest.mark.parametrize(
    ("origins", "said", "unsaid"),
    [
        ([CLEAN] * 4, ("at commit `0123456789`.",), ("code",)),
        ([CLEAN | {"code": "aa"}] * 4, ("at commit `0123456789`.",), ("code",)),
        ([CHANGED | {"code": "aa"}] * 3 + [CHANGED | {"code": "bb"}], ("changed code in 4", "2 different codes"), ()),
        ([CHANGED | {"code": "aa"}] * 4, ("changed code in 4", "all by the same code"), ()),
        ([CLEAN] * 3 + [CHANGED], ("changed code in 1", "how many codes is unknown"), ()),
        ([CLEAN | {"code": "aa"}] * 3 + [CLEAN | {"code": "bb"}], ("2 different codes",), ("changed",)),
        ([{"code": "aa"}] * 3 + [{"code": "bb"}], ("2 different codes",), ("commit",)),
        ([CLEAN | {"code": "aa"}, {"commit": "fedcba9876543210", "dirty": False, "code": "bb"}], (), ("code",)),
    ],
)
def test_the_page_says_how_many_codes_made_its_runs(tmp_path, origins, said, unsaid):
    cell = make_cell({RATE: 0.15}, len(origins))
    pairs = zip(cell.runs, origins, strict=True)
    records = {run.id: make_record(run, 4.0, provenance={"device": "cpu"} | origin) for run, origin in pairs}
    publish_page(make_plan(make_grid(axes={RATE: [0.15]}, claims=[], published=[]), [cell]), records, tmp_path)
    (cost,) = re.findall(r"^\d+ runs, .*computing.*$", (tmp_path / "README.md").read_text(), re.MULTILINE)
    assert all(part in cost for part in said)
    assert not any(part in cost for part in unsaid)


def test_the_page_answers_its_question(published):
    folder, _ = published
    page = (folder / "README.md").read_text()
    assert page.startswith("# Does hiding more than 15 % of the tokens help?\n")
    assert "**25 of 25 runs finished.**" in page
    assert "incomplete" not in page
    (row,) = (line for line in page.splitlines() if line.startswith("| 1: "))
    assert row.endswith("| contradicts |")
    assert "Every cell gets the number of training tokens of the baseline." in page
    assert "25 runs, 49 min of computing on cpu" in page
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


def test_publishing_again_changes_no_byte(published, tmp_path):
    folder, _ = published
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    grid, cells, records = make_study()
    publish_page(make_plan(grid, cells), dict(reversed(records.items())), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


SCRIPT = """
import random, sys
from pathlib import Path
from tests.unit.synthetic import make_plan, make_study, publish_page
grid, cells, records = make_study()
order = list(records)
random.shuffle(order)
publish_page(make_plan(grid, cells), {id: records[id] for id in order}, Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_bytes_do_not_depend_on_the_surroundings(published, tmp_path):
    """Those of this process, and of one with another locale, time zone, hash seed and order of records."""
    folder, _ = published
    changes = {"PYTHONHASHSEED": "77", "TZ": "Asia/Tokyo", "LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"}
    environment = {**os.environ, **changes, "PYTHONPATH": str(project())}
    other = tmp_path / "other"
    subprocess.run([sys.executable, "-c", SCRIPT, str(other)], check=True, env=environment, cwd=tmp_path)
    here, elsewhere = ({path.name: path.read_bytes() for path in place.iterdir()} for place in (folder, other))
    assert len(here) == 20
    assert elsewhere == here


def test_the_executed_notebook_is_linked_where_there_is_one(published):
    folder, _ = published
    grid, cells, records = make_study()
    assert "notebook" not in (folder / "README.md").read_text()
    (folder / "notebook.ipynb").write_text("{}")
    publish_page(make_plan(grid, cells), records, folder)
    assert "[notebook.ipynb](notebook.ipynb)" in (folder / "README.md").read_text()
    assert (folder / "notebook.ipynb").read_text() == "{}"


@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_an_executed_notebook_of_fewer_runs_is_called_so(published, share):
    """As after ``ablations run --no-notebook``, which trains further runs and leaves the notebook as it is."""
    folder, _ = published
    grid, cells, records = make_study()
    page, path = folder / "README.md", folder / "notebook.ipynb"
    finished = json.loads((folder / "page.json").read_text())["finished"]
    shown = int(share * finished)
    path.write_text(json.dumps({"cells": [], "metadata": {"ablations": {"runs": shown}}}))
    publish_page(make_plan(grid, cells), records, folder)
    line = next(line for line in page.read_text().splitlines() if line.startswith("Executed notebook"))
    assert (f"{shown} of these {finished} runs" in line) == (share < 1)


def test_the_text_of_a_grid_is_shown_as_the_markdown_that_it_is(tmp_path):
    grid, cells, records = make_study()
    publish_page(make_plan(grid, cells), records, tmp_path)
    before = (tmp_path / "README.md").read_text()
    about = "A *note* on [a paper](https://arxiv.org/abs/2202.08005).\n\n| x | 1 < 2 |\n|---|---|\n| `a` | b |"
    publish_page(make_plan(make_grid(about=f"{about}\n"), cells), records, tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert page.replace(f"## About\n\n{about}\n\n", "") == before
    assert page.index("**Answer:**") < page.index(about) < page.index("## Results")


def test_combinations_left_out_are_listed_with_their_reasons(tmp_path):
    grid, cells, records = make_study()
    excluded = (({"model.num_layers": 8}, "too slow"),)
    publish_page(make_plan(grid, cells, excluded=excluded), records, tmp_path)
    assert "* Left out: num_layers 8: too slow." in (tmp_path / "README.md").read_text()


def test_stand_ins_are_listed(tmp_path):
    grid, cells, records = make_depths()
    publish_page(make_plan(grid, cells), records, tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "num_layers: 1 for 3, 2 for 6, 4 for 12." in page
    assert "| num_layers 4, own (for 12) against num_layers 1, own (for 3) in " in page


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
    assert "](layers.svg)" in page
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
        "masking_ratio/smoke/README.md",
        "another/laptop/README.md",
        "another/smoke/README.md",
    ]
    assert f"{len(grids.available()) - 1} more grids" in text
    assert "15 % beats 40 % by" in rows[0]
    assert "25 of 25" in rows[0]
    assert "1 not measured | 0 of 25" in rows[1]
    assert report.index(tmp_path).read_text() == text


def test_an_index_of_nothing_is_a_page(tmp_path):
    assert "No page has been published yet." in report.index(tmp_path).read_text()


MARKUP = [text for text in HOSTILE if any(sign in text for sign in ("<", "$", "]("))]  # of a page, which is Markdown


@pytest.mark.slow
@pytest.mark.parametrize("text", [*MARKUP, *some((text for text in HOSTILE if text not in MARKUP), 2)])
def test_hostile_words_stay_words(text, tmp_path):
    claim = make_claim(statement=text, source=text, proxy=text, published_metric=text)
    grid, cells, records = make_study(question=text, paper=text, claims=[claim])
    publish_page(make_plan(grid, cells, excluded=(({text: text}, text),)), records, tmp_path / "g" / "s")
    for page in (tmp_path / "g" / "s" / "README.md", report.index(tmp_path)):
        content = page.read_text()
        assert "<script" not in content
        assert "](javascript" not in content
        assert not re.search(r"(?<!\\)\$", content)
    card = json.loads((tmp_path / "g" / "s" / "page.json").read_text())
    assert card["question"] == text


def test_pages_are_rebuilt_without_the_data_of_other_scales(tmp_path, monkeypatch):
    """The official tasks of the paper scale are neither pinned nor at hand; a page of theirs is not passed over."""
    ladder = {"albert_size_ladder": grids.available()["albert_size_ladder"]}
    monkeypatch.setattr(grids, "available", lambda *_: ladder)
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert publishing.republish(tmp_path) == []
    (tmp_path / "albert_size_ladder/paper").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"SQuAD 1\.1 was not found"):
        publishing.republish(tmp_path)


def test_what_a_scale_cannot_show_stands_before_everything_but_the_answer(tmp_path, monkeypatch):
    grid, cells, records = make_study()
    monkeypatch.setattr(report.scales, "has_recipe", lambda scale: False)
    pages = []
    for caveat, own in (
        ("", ""),
        ("heads are blind beyond | ten words", ""),
        ("", "one epoch"),
        ("blind", "one epoch"),
    ):
        monkeypatch.setattr(report.scales, "caveat", {grid.name: "", "laptop": caveat}.get)
        stated = grid.model_copy(update={"scales": {**grid.scales, "laptop": Scale(caveat=own)}})
        publish_page(make_plan(stated, cells), records, tmp_path)
        pages.append((tmp_path / "README.md").read_text(encoding="utf-8"))
    plain, cautious, *of_grid = pages
    assert "**Caution:** one epoch\n" in of_grid[0]
    assert "**Caution:**\n\n* Blind\n* One epoch\n" in of_grid[1]
    assert "Caution" not in plain
    assert cautious.index("**Answer:**") < cautious.index("heads are blind") < cautious.index("Grid `")
    assert cautious.replace("**Caution:** heads are blind beyond \\| ten words\n\n", "") == plain


@pytest.mark.parametrize(
    ("chosen", "says"),
    [({}, "by the same recipe"), ({"optimizer.peak_lr": 1e-3}, "Each cell has the peak_lr that its own search chose")],
)
def test_the_recipe_is_the_same_but_for_what_a_search_chose(tmp_path, chosen, says):
    grid, cells, records = make_study()
    publish_page(make_plan(grid, [cell.model_copy(update={"chosen": chosen}) for cell in cells]), records, tmp_path)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert says in page
    assert ("by the same recipe" in page) == (not chosen)


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
