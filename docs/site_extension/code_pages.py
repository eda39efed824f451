"""The reference: a page for each package, and one each for the command line, for knobs and for metrics."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typer.cli import get_docs_for_click

from ablations.commands.cli import app
from ablations.core.formatting import markdown_text
from ablations.measurements.dictionary import lines
from lightning_modules.config import Settings, paths
from lightning_modules.system import System
from lightning_modules.tasks.settings import FineTuning

FOLDER = "docs/generated/api"
COMMANDS = "docs/generated/commands.md"
KNOBS = "docs/generated/knobs.md"
METRICS = "docs/generated/metrics.md"
_ROOTS = ("ablations", "lightning_modules")
_ON_OTHER_PAGES = ("ablations.commands",)  # the command line has a page of its own


def generated(root: Path) -> Iterator[tuple[str, str]]:
    """Name and text of every page."""
    found = [package for name in _ROOTS for package in _packages(root, name)]
    yield f"{FOLDER}/index.md", _index(root, found)
    for package in found:
        yield f"{FOLDER}/{package}.rst", _package(root, package, found)
    yield COMMANDS, _commands()
    yield KNOBS, _knobs()
    yield METRICS, "\n".join(["# Metrics", "", "The first line that matches a name describes it.", "", *lines(), ""])


def modules(root: Path, package: str) -> list[str]:
    """The public modules of a package, by their full names."""
    folder = root / package.replace(".", "/")
    names = sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))
    return [f"{package}.{name}" for name in names]


def _packages(root: Path, top: str) -> list[str]:
    """A package and the packages in it, parents first."""
    inits = sorted((root / top).rglob("__init__.py"), key=lambda path: path.parts)
    names = [path.parent.relative_to(root).as_posix().replace("/", ".") for path in inits]
    return [name for name in names if not name.startswith(_ON_OTHER_PAGES)]


def _index(root: Path, packages: list[str]) -> str:
    lines = [f"| [`{name}`]({name}.rst) | {_summary(root, name)} |" for name in packages]
    trees = "\n".join(_tree(top, packages) for top in _ROOTS)
    introduction = "# API reference\n\n```{include} /docs/api_introduction.md\n```\n\n## Packages\n"
    return "\n".join([introduction, "| package | holds |\n|---|---|", *lines, "", trees])


def _tree(top: str, packages: list[str]) -> str:
    """The pages of a package and those in it, without the repeated first name."""
    entries = [f"{name.removeprefix(f'{top}.')} <{name}>" for name in packages if name.split(".")[0] == top]
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {top}", "", *entries, "```", ""])


def _summary(root: Path, package: str) -> str:
    """The first line of a package's docstring; its double backticks are Markdown too."""
    return (ast.get_docstring(_init(root, package)) or "").partition("\n")[0]


def _init(root: Path, package: str) -> ast.Module:
    return ast.parse((root / package.replace(".", "/") / "__init__.py").read_text(encoding="utf-8"))


def _passed_on(root: Path, package: str) -> list[str]:
    """The full names of what a package offers from its modules: what it imports and lists in ``__all__``."""
    body = _init(root, package).body
    offered = {
        name
        for node in body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for name in ast.literal_eval(node.value)
    }
    imports = [node for node in body if isinstance(node, ast.ImportFrom)]
    return [f"{node.module}.{item.name}" for node in imports for item in node.names if item.name in offered]


def _package(root: Path, package: str, packages: list[str]) -> str:
    parts = [_heading(package, "="), f".. automodule:: {package}\n"]
    names = _passed_on(root, package)
    if names:
        parts.append(f"To be imported from here: {', '.join(f'`~{name}`' for name in names)}.\n")
    inner = [name for name in packages if name.rpartition(".")[0] == package]
    if inner:
        listed = "\n".join(f"* :doc:`{name}`: {_summary(root, name)}" for name in inner)
        parts.append(f"Packages in it:\n\n{listed}\n")
    for module in modules(root, package):
        parts.append(f"{_heading(module.rpartition('.')[2], '-')}\n.. automodule:: {module}\n")
    return "\n".join(parts)


def _heading(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n"


def _commands() -> str:
    command = typer.main.get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command, info_name="ablations"), name="ablations")
    _, first, rest = text.partition("## `")  # before it a list of commands with shortened sentences
    lines = [f"| [`{name}`](#ablations-{name}) | {_first_line(part)} |" for name, part in command.commands.items()]
    introduction = "`ablations --help` and `ablations COMMAND --help` print the same."
    return "\n".join(["# Commands", "", introduction, "", "| command | does |", "|---|---|", *lines, "", first + rest])


def _first_line(command: Any) -> str:
    return markdown_text((command.help or "").strip().partition("\n")[0])


def _knobs() -> str:
    return "\n\n".join([
        "# Knobs",
        "Grids name a knob by its path, in `axes` and `set`; `ablations params SYSTEM` prints the values of a system, "
        "and `ablations diff A B` what two systems differ in. Defaults are BERT's where nothing else is said.",
        "## Of a system",
        _table(System, ""),
        "## Of a fine-tuning",
        "For all tasks `finetuning.<knob>`, for one task `finetuning.<task>.<knob>`.",
        _table(FineTuning, "finetuning."),
    ])  # fmt: skip


def _table(settings: type[Settings], prefix: str) -> str:
    """A row for each knob; parts, which hold knobs, and labels, which change no number, have none."""
    known = paths(settings)
    parts = {path.rpartition(".")[0] for path in known}
    lines = [
        f"| `{prefix}{path}` | {_default(info)} | {markdown_text(info.description or '')} |"
        for path, info in known.items()
        if path not in parts and not (info.json_schema_extra or {}).get("label")
    ]
    return "\n".join(["| knob | default | meaning |", "|---|---|---|", *lines, ""])


def _default(info: FieldInfo) -> str:
    return "" if info.default in (None, PydanticUndefined) else f"`{info.default}`"
