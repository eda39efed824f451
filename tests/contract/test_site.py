"""The documentation site leads to everything: grids, notebooks, pages. It is not built here: `make docs` does that."""

import csv
import itertools
import json
import re
import shutil

import pytest

import ablations
import budget
from ablations.core.formatting import Sheet, comma_separated, printable
from ablations.planning import grids
from lightning_modules.places import project
from site_extension import claim_pages, grid_pages, links, pages, run_tables, sections
from tests import foreign
from tests.depth import some

pytestmark = pytest.mark.slow

ROOT = project()
FRONT = "docs/index"
PARTS = {"docs/api_introduction"}  # included by a page, not one itself


@pytest.fixture(scope="module")
def generated():
    """Docname -> text of the pages that are written at build time."""
    return {name.rpartition(".")[0]: text for name, text in pages.generated(ROOT)}


@pytest.fixture(scope="module")
def reachable(generated):
    """Every docname that the trees of pages lead to from the front page."""
    found, open_ones = set(), [FRONT]
    while open_ones:
        docname = open_ones.pop()
        if docname not in found:
            found.add(docname)
            open_ones += _children(docname, _text(docname, generated))
    return found


def _text(docname, generated):
    if docname in generated:
        return generated[docname]
    (path,) = [path for end in (".md", ".ipynb") if (path := ROOT / f"{docname}{end}").is_file()]
    return path.read_text(encoding="utf-8") + grid_pages.supplement(ROOT, docname)


def _children(docname, text):
    for block in re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in filter(None, block.split("\n")):
            if not line.startswith(":"):
                target = re.sub(r"^.* <(.*)>$", r"\1", line)
                folder = docname.rpartition("/")[0]
                yield target.removeprefix("/") if target.startswith("/") else f"{folder}/{target}"


def test_a_grid_whose_text_is_missing_has_a_page_that_says_so(tmp_path, monkeypatch):
    corpus = f"'text:{tmp_path}/*.txt'"
    file = tmp_path / "lacking.yaml"
    file.write_text(
        "question: Does text help?\nbase: mask15_large\naxes: {model.num_layers: [1, 2]}\nseeds: 2\n"
        f"set: {{data.corpora: [{corpus}]}}\nscales: {{smoke: , laptop: }}\n"
        "figure: {x: model.num_layers, y: heldout.loss}\n"
        "metrics: [{name: heldout.loss, label: loss}]\n"
    )
    known = dict(some(grids.available().items(), 2))
    monkeypatch.setattr(grids, "available", lambda: {"lacking": file, **known})
    page = dict(grid_pages.generated(ROOT))["docs/generated/grids/lacking.md"]
    assert page.startswith("# Does text help?\n\n**Not run yet.** ")
    assert "No file matches" in page
    assert str(tmp_path) in page, "which file is missing"


@pytest.mark.nightly
def test_every_grid_has_a_page_that_begins_with_its_answer(reachable, generated):
    found = [page for page in grid_pages.every(ROOT) if page.grid in grids.available()]
    assert {page.grid for page in found} == grids.available().keys()
    assert {page.docname for page in found} <= reachable
    for page in found:
        text, grid = _text(page.docname, generated), grids.read(page.grid)
        title, _, first = text.split("\n")[:3]
        assert title == f"# {grid.question}"
        assert first.startswith(("**Answer:** ", "**Not run yet.** ")), page.docname
        if page.scale:
            text += _text(page.docname.replace("README", "details"), generated)
        assert text.count(grid.about or title) >= 1, page.docname


@pytest.mark.nightly
def test_every_notebook_is_on_the_site_with_outputs_where_it_was_executed(reachable):
    executed = grid_pages.executed(ROOT)
    docnames = [f"notebooks/{path.stem}" for path in (ROOT / "notebooks").glob("*.ipynb")]
    assert {executed.get(docname, docname) for docname in docnames} <= reachable


@pytest.mark.nightly
def test_every_page_of_the_documentation_is_in_a_tree(reachable, generated):
    written = {path.relative_to(ROOT).with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    own = {name for name in written if not name.startswith(("docs/generated/", "docs/_"))}
    assert own - PARTS | set(generated) | {"CONTRIBUTING", "CHANGELOG"} <= reachable


@pytest.mark.nightly
def test_every_page_under_results_is_in_a_tree(reachable):
    found = {p.relative_to(ROOT).with_suffix("").as_posix() for p in (ROOT / "results").glob("*/*/[Rd]*.md")}
    assert found | {"results/README", "results/claims", "results/statistics/README"} <= reachable
    essays = {p.relative_to(ROOT).with_suffix("").as_posix() for p in (ROOT / "results").glob("essays/*/*.ipynb")}
    assert essays <= reachable


def test_a_grid_of_ones_own_gets_its_place_without_an_edit(tmp_path):
    folder = tmp_path / "results" / "my_question" / "smoke"
    folder.mkdir(parents=True)
    (folder / "page.json").write_text(
        '{"question": "Does it matter?", "finished": 1, "planned": 2, "verdicts": "no claims"}'
    )
    (folder / "notebook.ipynb").write_text("{}")
    (page,) = [page for page in grid_pages.every(tmp_path) if page.grid == "my_question"]
    assert page.answer == "no claims (1 of 2 runs)"
    assert "</results/my_question/smoke/notebook>" in grid_pages.supplement(tmp_path, page.docname)


@pytest.mark.nightly
def test_grids_of_ones_own_are_apart_from_those_of_the_project(tmp_path, generated, monkeypatch):
    theirs, yours = f"{grid_pages.FOLDER}/index", grid_pages.OWN
    assert "masking_ratio" in generated[theirs]
    assert "masking_ratio" not in generated[yours]
    known = {name: grids.locate(name) for name in ("masking_ratio", "embedding_size")}
    file = tmp_path / "mine.yaml"
    file.write_text(known["masking_ratio"].read_text(encoding="utf-8").replace("\npaper: ", "\n# paper: ", 1))
    monkeypatch.setattr(grids, "available", lambda: {"mine": file, **known})
    pages = dict(grid_pages.generated(ROOT))
    assert f"</{grid_pages.FOLDER}/mine>" in pages[f"{yours}.md"]
    assert "mine" not in pages[f"{theirs}.md"].split()
    assert f"</{yours}>" in pages[f"{theirs}.md"]


def test_a_results_page_has_its_long_table_to_download(finished_results, tmp_path):
    results = shutil.copytree(finished_results, tmp_path / "results")
    for place in ("another/laptop", "masking_ratio/laptop-123456"):
        (results / place).mkdir(parents=True)
        (results / place / "page.json").write_text('{"question": "?", "finished": 1, "planned": 1, "verdicts": ""}')
    (results / "masking_ratio" / "laptop-123456" / "request.json").write_text("{}")
    run_tables.write(tmp_path)
    (path,) = (tmp_path / run_tables.FOLDER / "masking_ratio").rglob("*.csv")
    assert not (tmp_path / run_tables.FOLDER / "another").exists()
    assert path.read_text() == ablations.open("masking_ratio", "laptop", results_dir=results).written("csv")
    assert f"](/{path.relative_to(tmp_path)})" in run_tables.link(tmp_path, "results/masking_ratio/laptop/README")
    for docname in ("results/README", "results/another/laptop/README", "results/masking_ratio/laptop-123456/README"):
        assert run_tables.link(tmp_path, docname) == ""


@pytest.mark.parametrize("text", foreign.TEXTS.values(), ids=foreign.TEXTS)
def test_generated_pages_show_texts_of_others_as_text(tmp_path, text):
    folder = tmp_path / "results" / "another" / "laptop"
    folder.mkdir(parents=True)
    card = {"question": text, "verdicts": text, "finished": 1, "planned": 1}
    (folder / "page.json").write_text(json.dumps(card))
    with (ROOT / "results" / "claims.csv").open(encoding="utf-8", newline="") as file:
        columns = next(csv.reader(file))
    sheet = Sheet(columns, [[text] * len(columns)])
    (tmp_path / "results" / "claims.csv").write_text(comma_separated(sheet), encoding="utf-8")
    _, own = itertools.islice(grid_pages.generated(tmp_path), 2)
    pages = dict([own, *claim_pages.generated(tmp_path)])
    for page in pages.values():
        shown = foreign.rendered(page.partition("```{toctree}")[0])
        assert printable(text) in shown


@pytest.mark.nightly
def test_the_scoreboard_has_every_claim_and_leads_to_its_grid(generated):
    with (ROOT / "results" / "claims.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    lines = generated["docs/generated/claims"].splitlines()
    for row in rows:
        assert [line for line in lines if f"`{row['claim']}`" in line and row["outcome"] in line], row["claim"]
    for page in grid_pages.published(ROOT):
        shown = any((row["grid"], row["scale"]) == (page.grid, page.scale) for row in rows)  # not at demo, for one
        assert any(f"(/{page.docname})" in line for line in lines) == shown


def test_a_page_that_is_gone_is_removed_and_an_equal_one_is_left_alone(tmp_path, monkeypatch):
    def write(*names):
        monkeypatch.setattr(pages, "generated", lambda root: ((f"{pages.FOLDER}/{name}.md", name) for name in names))
        pages.write(tmp_path)

    write("kept", "gone")
    kept = tmp_path / pages.FOLDER / "kept.md"
    before = kept.stat().st_mtime_ns
    write("kept")
    assert [path.name for path in kept.parent.iterdir()] == ["kept.md"]
    assert kept.stat().st_mtime_ns == before


def test_links_lead_to_pages_or_to_files(tmp_path):
    for name in ("docs/a.md", "docs/b.md", "results/g/s/notebook.ipynb", "results/g/s/table.md", "notebooks/g.ipynb"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    shown = {"docs/a", "docs/b", "results/g/s/notebook"}
    text = "[b](b.md#part) ![i](i.svg) [t](../results/g/s/table.md) [n](../notebooks/g.ipynb) [w](https://x.org/b.md)"
    assert links.absolute(tmp_path, "docs/a.md", text, shown) == (
        "[b](/docs/b.md#part) ![i](i.svg) [t](path:/results/g/s/table.md) [n](/results/g/s/notebook.ipynb) "
        "[w](https://x.org/b.md)"
    )
    executed = links.absolute(tmp_path, "results/g/s/notebook.ipynb", "[b](../docs/b.md)", shown)
    assert executed == links.absolute(tmp_path, "results/of_any/s/notebook.ipynb", "[b](../docs/b.md)", shown)
    assert executed == "[b](/docs/b.md)", "an executed notebook keeps the links of its source"


def test_a_section_ends_at_the_next_heading_of_its_level_and_a_missing_one_is_named():
    text = "# T\n\n## One\n\na\n\n### Deep\n\n```\n## no heading\n```\n\n## Two\n\nb\n"
    assert sections.section(text, "One") == "a\n\n### Deep\n\n```\n## no heading\n```\n"
    assert sections.section(text, "Two") == "b\n"
    with pytest.raises(ValueError, match="0 sections are called 'Three'; there are: T, One, Deep, Two"):
        sections.section(text, "Three")


def test_every_section_that_a_page_shows_exists():
    for path in (ROOT / "docs").rglob("*.md"):
        for name, title in re.findall(r"^```\{section\} /(.*?): (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE):
            assert sections.section((ROOT / name).read_text(encoding="utf-8"), title), f"{path}: {name}: {title}"


def _markdown():
    """The Markdown of the repository, of notebooks too, without what is generated or built."""
    of_pages = ("results/**/README.md", "results/*/*/details.md")
    for pattern in ("*.md", "docs/**/*.md", *of_pages, "ablations/**/*.md", "notebooks/*.ipynb"):
        for path in ROOT.glob(pattern):
            if not path.is_relative_to(ROOT / pages.FOLDER):
                yield path


def test_a_page_is_three_screens_and_its_details_are_no_book():
    known = {path: budget.words(path.read_text(encoding="utf-8")) for path in (ROOT / "results").glob("*/*/[Rd]*.md")}
    bounds = {"README.md": 900, "details.md": 2500}
    assert not {path: count for path, count in known.items() if path.name in bounds and count > bounds[path.name]}
    assert len(known) > 2 * len(bounds)


def test_links_between_files_also_work_where_the_repository_is_browsed():
    broken = []
    for path in _markdown():
        for target in re.findall(r"\]\((?![a-z]+:|#)([^()\s#]+)[^()\s]*\)", path.read_text(encoding="utf-8")):
            if target.startswith("/") or not (path.parent / target).exists():
                broken.append(f"{path.relative_to(ROOT)}: {target}")
    assert not broken
