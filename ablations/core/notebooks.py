"""Executes notebooks with papermill: refuses unknown parameters, and writes the output whole or not at all.

The records say whether a grid succeeded, not the status of its notebook.
"""

import ast
import contextlib
import json
import logging
import os
import secrets
import symtable
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbformat.reader import NotJSONError

from ablations.core.store import unwritten
from lightning_modules.config import ConfigError, Problem, did_you_mean
from lightning_modules.files import is_full, read, read_text
from lightning_modules.places import checkout, own
from lightning_modules.problems import nearest

_INJECTED = "# Parameters\n"  # the first line of the cell that papermill adds
ANY_GRID = "grid"  # the notebook for grids without their own


def folder() -> Path:
    """The folder of the project's notebooks, which a wheel has inside the package."""
    return (checkout() or Path(__file__).parents[1]) / "notebooks"


def find(grid: str, notebook: str | None = None) -> Path:
    """The notebook for a grid: the one given by name or path, the grid's own, or the one for any grid.

    The user's own notebooks come before the project's of the same name.

    Raises:
        ConfigError: If the given one does not exist; if it has the grid's name, with the notebook that shows the grid.
        Refused: If it is no plain file, or too large.
    """
    found = _named(grid, notebook)
    read(found)  # papermill would open anything
    return found


def _named(grid: str, notebook: str | None) -> Path:
    names = {path.stem: path for place in (folder(), *own("notebooks")) for path in sorted(place.glob("*.ipynb"))}
    usual = names.get(Path(grid).stem, names[ANY_GRID])
    if notebook is None:
        return usual
    hint = f" {usual.name} shows this grid: ablations run {grid}, without --notebook"
    is_grids = Path(notebook).stem == Path(grid).stem
    if notebook.endswith(".ipynb"):
        if not Path(notebook).is_file():
            raise ConfigError([Problem("notebook", f"{notebook}: there is no such file.{hint * is_grids}")])
        return Path(notebook)
    if notebook not in names:
        known = hint if is_grids else did_you_mean(notebook, names)
        raise ConfigError([Problem("notebook", f"there is no notebook '{notebook}'.{known}")])
    return names[notebook]


def checked(source: Path, grid: str, values: Mapping[str, Any], axes: Iterable[str] = ()) -> dict[str, Any]:
    """The parameters to execute a notebook with.

    Args:
        grid: The grid, for notebooks with a parameter ``grid``.
        values: Parameter -> value; None keeps the notebook's default.

    Raises:
        ConfigError: For parameters that the notebook does not declare, each with the nearest declared one, or the
            nearest axis if a parameter ``axes`` sets these.
    """
    declared = _declared(source)
    parameters = {name: value for name, value in values.items() if value is not None}
    if "grid" in declared:
        parameters.setdefault("grid", grid)
    _refuse_unknown(parameters, declared, source.name, axes)
    return parameters


def _refuse_unknown(given: Iterable[str], declared: Iterable[str], notebook: str, axes: Iterable[str] = ()) -> None:
    last = {path.rpartition(".")[2]: path for path in axes}  # a notebook for one grid may have had it as a parameter

    def hint(name: str) -> str:
        axis = nearest(name, last)
        if "axes" not in declared or (axis is None and nearest(name, declared)):
            return did_you_mean(name, declared)
        example = last[axis] if axis else next(iter(axes), "model.num_layers")
        known = f" This grid has {', '.join(axes)}." if last else ""
        return f" Values of an axis are given as axes={{{example}: [...]}}.{known}"

    unknown = [name for name in given if name not in declared]
    if unknown:
        raise ConfigError([Problem(name, f"{notebook} has no such parameter.{hint(name)}") for name in unknown])


def _declared(source: Path) -> list[str]:
    import papermill

    declared = papermill.inspect_notebook(str(source))
    if not declared:
        raise ConfigError([f"{source.name} declares no parameters. Tag the cell that does with 'parameters'."])
    return list(declared)


def check_parameters() -> None:
    """Refuses parameters that papermill injected into this kernel and that no cell before them declares.

    Those of an earlier execution of the notebook in the same kernel do not count: its defaults have been set again.

    Papermill itself puts a misspelt parameter into a cell of its own and goes on with the default of the right one.

    Raises:
        ConfigError: With each such parameter and the nearest declared one.
    """
    import IPython

    shell = IPython.get_ipython()
    executed = [shell.transform_cell(cell) for cell in shell.user_ns["In"]] if shell else []
    injections = [number for number, cell in enumerate(executed) if cell.startswith(_INJECTED)]
    if not injections:
        return
    before, (injected, *after) = executed[: injections[-1]], executed[injections[-1] :]
    defaults = set(_assigned(before[-1]))  # papermill adds its cell behind the one that declares the parameters
    if not (defaults and any(defaults <= set(_assigned(cell)) for cell in after)):
        written = [cell for cell in before if not cell.startswith(_INJECTED)]
        _refuse_unknown(_assigned(injected), [name for cell in written for name in _assigned(cell)], "this notebook")


def _assigned(cell: str) -> list[str]:
    """The names that a cell sets outside functions; none for a cell that is no Python."""
    try:
        symbols = symtable.symtable(cell, "cell", "exec").get_symbols()
    except SyntaxError:
        return []
    return [symbol.get_name() for symbol in symbols if symbol.is_assigned()]


def axes(source: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The axes that a notebook's parameters set, so that the grid can be trained before the notebook shows it.

    The call that opens the study says which parameter holds which axis:
    ``ablations.open(..., axes={path: parameter})``.
    """
    names = axis_parameters(source)
    values = {path: parameters[name] for path, name in names.items() if name in parameters}
    return values | dict(parameters.get("axes") or {})


def axis_parameters(source: Path) -> dict[str, str]:
    """Axis -> the parameter with its values, from the first call of ``ablations.open`` in a notebook."""
    cells = nbformat.reads(read_text(source), as_version=4).cells
    trees = [ast.parse(cell.source) for cell in cells if cell.cell_type == "code" and "ablations.open(" in cell.source]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    opening = next((call for call in calls if ast.unparse(call.func) == "ablations.open"), None)
    argument = next((word.value for word in opening.keywords if word.arg == "axes"), None) if opening else None
    if not isinstance(argument, ast.Dict):
        return {}
    return {
        str(path.value): value.id
        for path, value in zip(argument.keys, argument.values, strict=True)
        if isinstance(path, ast.Constant) and isinstance(value, ast.Name)
    }


def execute(source: Path, parameters: Mapping[str, Any], output: Path, runs: int | None = None) -> None:
    """Executes a notebook and replaces ``output`` once the execution has ended.

    A failing notebook is kept too, with its error; the error is raised.

    Args:
        parameters: From `checked`.
        runs: How many finished runs it shows, which `runs_shown` reads again.

    Raises:
        ConfigError: For a cell that fails: which, with its error. For a kernel that dies or is not installed.
        StoreError: If ``output`` cannot be written; the old one is intact.
    """
    temporary = output.with_name(f".{output.stem}.{secrets.token_hex(8)}.ipynb")  # papermill would follow a link
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _execute(source, parameters, temporary, output, runs)
    except OSError as error:
        if is_full(error) or Path(error.filename or "").is_relative_to(output.parent):
            raise unwritten(error, output, "the executed notebook") from error
        raise
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _execute(source: Path, parameters: Mapping[str, Any], temporary: Path, output: Path, runs: int | None) -> None:
    import papermill
    from jupyter_client.kernelspec import NoSuchKernel
    from papermill.exceptions import PapermillExecutionError

    from ablations.core import kernels

    logging.getLogger("papermill").setLevel(logging.WARNING)
    try:
        papermill.execute_notebook(
            str(source),
            str(temporary),
            parameters=dict(parameters),
            engine_name=kernels.NAME,
            progress_bar=False,
            extra_arguments=["--IPKernelApp.log_level=ERROR"],  # it warns about loopback connections
        )
    except Exception as error:
        if not isinstance(error, OSError):
            with contextlib.suppress(FileNotFoundError, NotJSONError):  # not begun, or half written
                _replace(temporary, source, output, runs)
        if isinstance(error, PapermillExecutionError):
            said = f"cell {error.exec_count} failed with {error.ename}: {' '.join(str(error.evalue).split())}"
            raise ConfigError([Problem(source.name, f"{said}. The executed notebook is {output}")]) from error
        if isinstance(error, NoSuchKernel):
            text = f"Jupyter has no kernel '{error.name}'. Install it (python -m ipykernel install --sys-prefix), or"
            raise ConfigError([Problem(source.name, f"{text} leave the notebook out: --no-notebook")]) from error
        if str(error).startswith("Kernel died"):  # a RuntimeError of jupyter_client, if it was just starting
            text = "its kernel died, perhaps killed for memory. The records stay, and the same command continues."
            raise ConfigError([Problem(source.name, text)]) from error
        raise
    _replace(temporary, source, output, runs)


def _replace(temporary: Path, source: Path, output: Path, runs: int | None) -> None:
    notebook = nbformat.reads(read_text(temporary), as_version=4)
    notebook.metadata["papermill"] |= {"input_path": source.name, "output_path": output.name}
    if runs is not None:
        notebook.metadata["ablations"] = {"runs": runs}
    nbformat.write(notebook, temporary)
    os.replace(temporary, output)


def runs_shown(executed: Path) -> int | None:
    """How many finished runs an executed notebook shows; None for one that does not say, or cannot be read."""
    try:
        runs = json.loads(read_text(executed))["metadata"]["ablations"]["runs"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return runs if isinstance(runs, int) else None
