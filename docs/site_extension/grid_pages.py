"""The pages of grids: results pages where there are any, else a page of what a grid will test."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import ablations
from ablations.core.formatting import markdown_code, markdown_link, markdown_text, printable
from ablations.planning import grids
from lightning_modules.config import ConfigError

FOLDER = "docs/generated/grids"
OWN = "docs/generated/own_grids"  # the index of a user's own grids
_SCALE = "laptop"  # at which the hypotheses of a grid without results are stated; every grid of the project has it


@dataclass(frozen=True)
class GridPage:
    """A page about a grid.

    Attributes:
        grid: The grid's name.
        scale: The folder of its results; empty without results.
        docname: The page, relative to the root and without ending.
        answer: What its claims came to, in a few words.
    """

    grid: str
    scale: str
    question: str
    docname: str
    answer: str


def published(root: Path) -> list[GridPage]:
    """The results pages of all grids, those of overridden and of a user's own grids included."""
    found = []
    for path in sorted(root.glob("results/*/*/page.json")):
        card = json.loads(path.read_text(encoding="utf-8"))
        runs = "" if card["finished"] == card["planned"] else f" ({card['finished']} of {card['planned']} runs)"
        docname = (path.parent / "README").relative_to(root).as_posix()
        grid, scale = path.parts[-3:-1]
        found.append(GridPage(grid, scale, card["question"], docname, card["verdicts"] + runs))
    return found


def every(root: Path) -> list[GridPage]:
    """The pages of all grids by name; a grid without results has one page, which is generated."""
    with_results = published(root)
    known = {page.grid for page in with_results}
    others = [
        GridPage(name, "", grids.read(name).question, f"{FOLDER}/{name}", "not run yet")
        for name in grids.available()
        if name not in known
    ]
    return sorted(with_results + others, key=lambda page: (page.grid, page.scale))


def generated(root: Path) -> Iterator[tuple[str, str]]:
    """Name and text of the indices of grids and of the pages of grids without results.

    A user's own grids have an index of their own: those that name no paper, and those whose file is elsewhere.
    """
    listed = every(root)
    own = [page for page in listed if grids.is_own(page.grid)]
    published = [page for page in listed if page not in own]
    yield f"{FOLDER}/index.md", _index("Grids", _INTRODUCTION, published, [f"Your own grids </{OWN}>"])
    yield f"{OWN}.md", _index("Your own grids", _ABOUT_OWN if own else f"{_ABOUT_OWN} There are none yet.", own)
    for page in listed:
        if not page.scale:
            yield f"{page.docname}.md", _without_results(page) + _grid_file(root, page.grid) + _below(root, page)


def supplement(root: Path, docname: str) -> str:
    """What follows the text of a results page: the grid file, and details and notebook in the tree of pages."""
    page = next((page for page in published(root) if page.docname == docname), None)
    return "" if page is None else _grid_file(root, page.grid) + _below(root, page)


def executed(root: Path) -> dict[str, str]:
    """The notebooks of grids that are shown as executed, with outputs: docname of the source -> of that copy."""
    found = {}
    for path in sorted(root.glob("results/*/*/notebook.ipynb")):
        grid, scale = path.parts[-3:-1]
        if (root / "notebooks" / f"{grid}.ipynb").is_file():
            found[f"notebooks/{grid}"] = f"results/{grid}/{scale}/notebook"
    return found


def notebook(root: Path, page: GridPage) -> str:
    """The docname of a page's notebook: as executed for its results, else without outputs; empty if there is none."""
    choices = [f"results/{page.grid}/{page.scale}/notebook"] * bool(page.scale) + [f"notebooks/{page.grid}"]
    return next((name for name in choices if (root / f"{name}.ipynb").is_file()), "")


def _index(title: str, introduction: str, listed: list[GridPage], first: Sequence[str] = ()) -> str:
    lines = [
        f"| {markdown_link(page.grid, f'/{page.docname}')} | {markdown_text(page.scale)} | "
        f"{markdown_text(page.question)} | {markdown_text(page.answer)} |"
        for page in sorted(listed, key=lambda page: not page.scale)  # those with results first
    ]
    table = "\n".join(["| grid | scale | question | verdicts on its claims |", "|---|---|---|---|", *lines])
    parts = [f"# {title}", introduction, *([table] if lines else []), _tree([*first, *_entries(listed)])]
    return "\n\n".join(parts)


_INTRODUCTION = (
    "A grid asks one question: which knobs vary, what is held equal, which published claims are tested. "
    "Its page starts with the answer. Click a heading to sort."
)
_ABOUT_OWN = (
    "Grids of yours, which name no paper, are listed here and not among those of the project. "
    "[Ask a question of your own](/docs/how-to/grid.md) shows how to make one."
)


def _entries(listed: list[GridPage]) -> list[str]:
    """Entries of a tree, titled by the grid, and by the scale too where a grid has several pages."""
    names = [page.grid for page in listed]
    return [
        f"{page.grid}{f', {page.scale}' if names.count(page.grid) > 1 else ''} </{page.docname}>" for page in listed
    ]


def _tree(entries: list[str]) -> str:
    return "\n".join(["```{toctree}", ":hidden:", "", *map(printable, entries), "```", ""])


def _below(root: Path, page: GridPage) -> str:
    details = f"{page.docname.rpartition('/')[0]}/details"
    entries = [f"Details </{details}>"] if (root / f"{details}.md").is_file() else []
    entries += [f"Notebook </{name}>"] if (name := notebook(root, page)) else []
    return f"\n{_tree(entries)}" if entries else ""


def _grid_file(root: Path, grid: str) -> str:
    path = f"ablations/grids/{grid}.yaml"
    if not (root / path).is_file():  # a user's grid may lie anywhere
        return ""
    return f"\n## The grid file\n\n```{{literalinclude}} /{path}\n:language: yaml\n```\n"


def _without_results(page: GridPage) -> str:
    """What a grid will test; of one that cannot be planned here, for want of its text for example, the reason."""
    title = f"# {markdown_text(page.question)}"
    run, planned = (markdown_code(f"ablations {verb} {page.grid} --scale {_SCALE}") for verb in ("run", "plan"))
    named = f"**Not run yet.** Grid {markdown_code(page.grid)}; {run} runs it"
    try:
        study = ablations.open(page.grid, scale=_SCALE)
    except ConfigError as error:
        return f"{title}\n\n{named}, where it can be planned. Here it cannot: {markdown_text(str(error))}\n"
    parts = [
        title,
        f"{named}, {planned} says first what that costs.",
        "## About",
        study.about().text.partition("\n\n")[2],
        f"## What would be an answer at scale `{_SCALE}`",
        study.hypotheses().text,
        "## Published",
        study.published().text,
    ]
    return "\n\n".join(parts) + "\n"
