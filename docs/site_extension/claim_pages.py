"""The page of all published claims, tested or not, from ``results/claims.csv``."""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from ablations.claims.published_claims import TESTABLE
from ablations.core.formatting import markdown_code, markdown_link, markdown_text
from site_extension import grid_pages

PAGE = "docs/generated/claims.md"
_HEADINGS = ("claim", "outcome", "effect", "n", "published", "paper", "table", "grid", "scale", "testable at", "id")


def generated(root: Path) -> Iterator[tuple[str, str]]:
    """Name and text of the page."""
    with (root / "results" / "claims.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    docnames = {(page.grid, page.scale): page.docname for page in grid_pages.every(root)}
    lines = [_line(row, docnames) for row in rows]
    table = "\n".join(["| " + " | ".join(_HEADINGS) + " |", "|---" * len(_HEADINGS) + "|", *lines])
    scales = "\n".join(f"* *{name}*: {meaning}" for name, meaning in TESTABLE.items())
    yield PAGE, f"# All published claims\n\n{_INTRODUCTION}\n\n{scales}\n\n{table}\n"


_INTRODUCTION = (
    "Every claim that is kept as data, with the verdict of each grid that tests it. Click a heading to sort. Type to "
    "filter, or choose a value. An effect is positive as claimed, with the interval that decides. `ablations claims` "
    "prints the same. *Testable at* is the smallest scale with a meaningful test:"
)


def _line(row: Mapping[str, str], docnames: Mapping[tuple[str, str], str]) -> str:
    names = [row["grid"]] if row["grid"] else row["grids"].split()
    links = ", ".join(_link(name, row["scale"], docnames) for name in names)
    plain = {name: markdown_text(text.removeprefix("'")) for name, text in row.items()}
    why = plain["regime"] or plain["reason"]
    outcome = plain["outcome"] + (f" ({why})" if why and row["outcome"] != "not run" else "")
    entries = [plain["statement"], outcome, markdown_text(_effect(row)), plain["n"], plain["published"], plain["paper"]]
    entries += [plain["table"], links, plain["scale"], plain["testable"], markdown_code(row["claim"])]
    return "| " + " | ".join(entries) + " |"


def _effect(row: Mapping[str, str]) -> str:
    """The effect, positive as claimed, with the interval that decides; empty for a claim that was not measured."""
    try:
        effect, low, high = (float(row[name]) for name in ("effect", "low", "high"))
    except ValueError:
        return ""
    return f"{effect:+.3f} [{low:.3f}, {high:.3f}] {row['unit']}".strip()


def _link(grid: str, scale: str, docnames: Mapping[tuple[str, str], str]) -> str:
    found = docnames.get((grid, scale)) or next((page for (name, _), page in docnames.items() if name == grid), "")
    return markdown_link(grid, f"/{found}") if found else markdown_text(grid)
