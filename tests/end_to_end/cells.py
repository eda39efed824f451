"""Executes a notebook's cells in this process: a kernel of its own would first import torch for seconds."""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from IPython.core.formatters import DisplayFormatter
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook


def execute(source: Path, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Runs a notebook with papermill's parameters, and returns what its cells show, by MIME type.

    The notebooks are plain Python, without magics; a test of the contract reads them as such.
    """
    notebook = parameterize_notebook(load_notebook_node(str(source)), dict(parameters))
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        values = [_run(cell.source, names) for cell in notebook.cells if cell.cell_type == "code"]
        return [DisplayFormatter().format(value)[0] for value in values if value is not None]
    finally:
        plt.close("all")


def _run(source: str, names: dict[str, Any]) -> Any:
    """The value of a cell's last line, where that is an expression."""
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names) if last else None
