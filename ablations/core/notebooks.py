"""Executing notebooks with papermill: unknown parameters are refused, the output appears whole or not at all.

Whether a grid succeeded is read from its records; a notebook's own status is never asked.
"""

import ast
import contextlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbformat.reader import NotJSONError

from lightning_modules.config import ConfigError, Problem, did_you_mean
from lightning_modules.places import project

ANY_GRID = "grid"  # the notebook that runs grids without one of their own


def folder() -> Path:
    """Where the notebooks are."""
    return project() / "notebooks"


def find(grid: str, notebook: str | None = None) -> Path:
    """The notebook of a grid: the named one, the grid's own, or the one for any grid.

    Raises:
        ConfigError: When the named one does not exist.
    """
    names = {path.stem: path for path in sorted(folder().glob("*.ipynb"))}
    if notebook is not None and notebook not in names:
        raise ConfigError([Problem("notebook", f"there is no notebook '{notebook}'.{did_you_mean(notebook, names)}")])
    return names[notebook or (Path(grid).stem if Path(grid).stem in names else ANY_GRID)]


def checked(source: Path, grid: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters to execute a notebook with.

    Args:
        source: The notebook.
        grid: Given to notebooks that take any grid.
        wanted: Parameter -> value; values of None keep the notebook's own default.

    Raises:
        ConfigError: For parameters that the notebook does not declare, each with the nearest one that it does.
    """
    declared = _declared(source)
    given = {name: value for name, value in wanted.items() if value is not None}
    if "grid" in declared:
        given.setdefault("grid", grid)
    wrong = [
        Problem(name, f"{source.name} has no such parameter.{did_you_mean(name, declared)}")
        for name in given
        if name not in declared
    ]
    if wrong:
        raise ConfigError(wrong)
    return given


def _declared(source: Path) -> list[str]:
    import papermill

    found = papermill.inspect_notebook(str(source))
    if not found:
        raise ConfigError([f"{source.name} has no cell tagged 'parameters', so nothing can be set in it"])
    return list(found)


def axes(source: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What a notebook's parameters say about axes, so that the grid can be trained before the notebook shows it.

    Which parameter stands for which axis is read where the notebook opens its study:
    ``ablations.open(..., axes={path: parameter})``.
    """
    named = axis_parameters(source)
    found = {path: parameters[name] for path, name in named.items() if name in parameters}
    return found | dict(parameters.get("axes") or {})


def axis_parameters(source: Path) -> dict[str, str]:
    """Axis -> the parameter that holds its values, from the first call of ``ablations.open`` in a notebook."""
    cells = nbformat.read(source, as_version=4).cells
    trees = [ast.parse(cell.source) for cell in cells if cell.cell_type == "code" and "ablations.open(" in cell.source]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    opening = next((call for call in calls if ast.unparse(call.func) == "ablations.open"), None)
    given = next((word.value for word in opening.keywords if word.arg == "axes"), None) if opening else None
    if not isinstance(given, ast.Dict):
        return {}
    return {
        path.value: value.id
        for path, value in zip(given.keys, given.values, strict=True)
        if isinstance(path, ast.Constant) and isinstance(value, ast.Name)
    }


def execute(source: Path, parameters: Mapping[str, Any], output: Path) -> None:
    """Executes a notebook into ``output``, replacing it only once the execution has ended.

    A notebook that fails is kept too, with its error, for the reader; the error is raised.

    Raises:
        papermill.exceptions.PapermillExecutionError: From the failing cell.
    """
    import papermill

    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f".{output.stem}.{os.getpid()}.ipynb")
    logging.getLogger("papermill").setLevel(logging.WARNING)
    try:
        papermill.execute_notebook(
            str(source),
            str(temporary),
            parameters=dict(parameters),
            progress_bar=False,
            cwd=str(project()),
            extra_arguments=["--IPKernelApp.log_level=ERROR"],  # it warns of loopback connections
        )
    finally:
        with contextlib.suppress(FileNotFoundError):
            try:
                _name_relatively(temporary, source, output)
                os.replace(temporary, output)
            except NotJSONError:  # written by half: the error that stopped the writing is the one to tell
                temporary.unlink()


def _name_relatively(executed: Path, source: Path, output: Path) -> None:
    """Papermill notes absolute paths in the notebook; a published one says nothing of the machine it ran on."""
    notebook = nbformat.read(executed, as_version=4)
    notebook.metadata["papermill"] |= {"input_path": source.name, "output_path": output.name}
    nbformat.write(notebook, executed)
