"""Promises that hold over everything on disk: packages, sizes, dependencies, notebooks, documents."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import papermill
import pytest
from IPython.core.interactiveshell import InteractiveShell
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

import ablations
from ablations.core import notebooks
from ablations.planning import grids
from ablations.study import Study
from lightning_modules.config import ConfigError
from lightning_modules.data.corpora.made import Language
from lightning_modules.places import project
from tests.depth import NIGHTLY
from tests.every import every

ROOT = project()
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_no_file_is_too_long():
    folders = ("ablations", "lightning_modules", "benchmarks", "docs", "tests")
    sizes = {path: len(path.read_text().splitlines()) for room in folders for path in (ROOT / room).rglob("*.py")}
    assert not {path: size for path, size in sizes.items() if size > 800}


HEAVY = {  # module -> what neither it nor one above it imports
    "ablations.commands.cli": ["torch", "pandas", "pytorch_lightning", "scipy"],
    "ablations.planning.plan": ["pytorch_lightning", "gensim", "datasets", "matplotlib", "sklearn"],
    "lightning_modules.systems": ["pytorch_lightning", "gensim", "datasets", "matplotlib", "sklearn"],
    "ablations.pages.publishing": ["pytorch_lightning", "sklearn"],
}


def test_help_plans_and_pages_import_no_more_than_they_need():
    code = (
        "import importlib, sys\n"
        f"for module, heavy in {HEAVY}.items():\n"
        "    importlib.import_module(module)\n"
        "    print(*[f'{module} imports {name}' for name in heavy if name in sys.modules], end='', sep='\\n')"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not ended.stdout


@every("path", NOTEBOOKS)
def test_notebooks_tell_and_libraries_do(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code), "committed with outputs"
    (parameters,) = [cell for cell in code if "parameters" in cell.metadata.get("tags", [])]
    for statement in ast.parse(parameters.source).body:
        assert isinstance(statement, ast.Assign)
        ast.literal_eval(statement.value)
    nodes = [node for cell in code for node in ast.walk(ast.parse(cell.source))]
    banned = (ast.FunctionDef, ast.ClassDef, ast.For, ast.While, ast.Lambda)
    assert not [node for node in nodes if isinstance(node, banned)]
    assert sum(len(cell.source.splitlines()) for cell in code) <= 75
    declared = {target.id for statement in ast.parse(parameters.source).body for target in statement.targets}
    if any("ablations.open(" in cell.source for cell in code):
        assert {"scale", "results_dir"} <= declared
    if any("study.run(" in cell.source for cell in code):
        assert {"seeds", "filters", "executor"} <= declared
    if path.stem in grids.available():
        axes = notebooks.axis_parameters(path)
        assert set(axes.values()) <= declared
        assert set(axes) <= set(grids.read(path.stem).axes)
        own = declared - {"scale", "seeds", "filters", "executor", "results_dir"}
        assert own == set(axes.values()), "every other parameter stands for an axis"


@every("path", NOTEBOOKS)
def test_every_notebook_stops_at_a_parameter_that_it_does_not_declare(path, monkeypatch):
    """As in a kernel: papermill's cell of parameters stands behind the declared ones, and the next cell checks it."""
    declared = list(papermill.inspect_notebook(str(path)))
    misspelt = declared[0][:-1] + "_"
    notebook = parameterize_notebook(load_notebook_node(str(path)), {misspelt: 1, declared[-1]: None})
    first, injected, checking, *_ = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    shell = InteractiveShell()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    for cell in (first, injected):
        shell.run_cell(cell, store_history=True).raise_error()
    with pytest.raises(ConfigError, match=rf"^{misspelt}: this notebook has no such parameter.*'{declared[0]}'\?$"):
        shell.run_cell(checking, store_history=True).raise_error()


@pytest.mark.nightly
def test_what_the_texts_of_grids_suggest_can_be_done(monkeypatch):
    """Each study resolves its cells as it is opened; by night it prints the plan, too."""
    if not NIGHTLY:
        monkeypatch.setattr(Study, "plan", lambda _: None)
    texts, wrong = {name: text for name in grids.available() if (text := grids.read(name).about)}, []
    for name, text in texts.items():
        blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        assert f'ablations.open("{name}"' in "".join(blocks[-1].split()), name
        try:
            for block in blocks:
                exec(block, {"ablations": ablations})
        except (ConfigError, TypeError) as error:
            wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)


def test_the_entropies_in_a_text_are_those_of_its_language():
    rows = re.findall(r"^\| (no copies|\d+ words) \|(.*)\|$", grids.read("copy_distance").about, re.MULTILINE)
    assert len(rows) == len(grids.read("copy_distance").axes["text"])
    for name, printed in rows:
        copies = "no-copies" if name == "no copies" else f"copies={name.split()[0]}"
        language = Language.of(f"agreement=2,{copies},length=5")
        assert [cell.strip() for cell in printed.split("|")] == [f"{language.nats(n):.3f}" for n in (0, 2, 5, 20)]


@every("name", grids.available())
def test_every_grid_reads_and_has_the_small_scales(name):
    grid = grids.read(name)
    assert "smoke" in grid.scales
    assert {"laptop", "mechanism"} & set(grid.scales)
    assert grid.question.endswith("?")
    for claim in grid.claims:
        assert claim.proxy or not claim.claim or claim.published_metric == claim.metric, (
            "what stands in for the paper's metric is said"
        )


def test_the_project_speaks_of_itself_alone():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    texts = [
        ROOT / name
        for name in listed
        if name.endswith((".py", ".svg", ".json", ".csv", ".md", ".yaml", ".yml", ".toml", ".ipynb", "Makefile"))
    ]
    for path in texts:
        if path.exists() and path != Path(__file__):
            found = re.search(r"(?<![\w.])/(home|root|tmp|work)/\w", path.read_text(encoding="utf-8"))
            assert not found, f"{path}: {found[0]}"
