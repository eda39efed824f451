"""The page of the courses: each numeric table that they print, the grids that ask the same, and what those answer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ablations.core import store, strict_yaml
from ablations.core.formatting import markdown_link, markdown_text
from ablations.literature import published_values
from ablations.pages import cards
from lightning_modules.config import Settings, knob, required

NAME = "lectures.md"
_INTRODUCTION = """\
# The tables of the lectures

Five courses on pretrained language models print these tables. `ablations published` has their values. Next to each
are the grids of this project with the same question, and their answers: of small models, on other text.
"""


class Printed(Settings):
    """A table that the courses print."""

    file: str = required("The file of its values in ablations/published/.")
    table: str = required("Its name there.")
    printed: tuple[int, ...] = required("The courses that print it.")
    grids: tuple[str, ...] = knob((), "Grids that ask the same.")
    instead: str = knob("", "What takes its place where no grid can, as Markdown.")


def read(file: Path = published_values.FOLDER / "lectures.yaml") -> list[Printed]:
    """The tables, in the order of the file.

    Raises:
        ConfigError: For an entry that is none.
    """
    document = strict_yaml.load(file)
    document.check()
    return [Printed.read(entry) for entry in document.data]


def write(results_dir: Path) -> Path:
    """Writes ``lectures.md`` from the pages of a results folder."""
    pages: dict[str, list[tuple[Path, Mapping[str, Any]]]] = {}
    for folder, card in cards.cards(results_dir):
        pages.setdefault(folder.parent.name, []).append((folder, card))
    lines = ["| table | courses | grids and their answers |", "| :-- | :-- | :-- |"]
    for one in read():
        paper = published_values.read(one.file, one.table)[0].paper
        said = [one.instead] if one.instead else []
        for name in one.grids:
            for folder, card in pages.get(name, []):
                link = markdown_link(f"{name}/{folder.name}", f"{name}/{folder.name}/README.md")
                said.append(f"{link}: {markdown_text(card['headline'] or card['verdicts'])}")
        if waiting := [name for name in one.grids if name not in pages]:
            said.append(f"not run yet: {markdown_text(', '.join(waiting))}")
        title, courses = markdown_text(f"{paper}, {one.table}"), ", ".join(map(str, one.printed))
        lines += [f"| {title} | {courses} | {text} |" if text is said[0] else f"| | | {text} |" for text in said]
    store.write(path := results_dir / NAME, "\n".join([_INTRODUCTION, *lines, ""]).encode())
    return path
