"""The page of what every grid costs and what its first look sees, at the scales of the project."""

from collections.abc import Iterator
from pathlib import Path

from ablations.core.formatting import markdown
from ablations.core.store import Records
from ablations.pages import cost_table

PAGE = "docs/generated/costs.md"

_INTRODUCTION = (
    "Every grid at `laptop`, for processor cores, and at `gpu`, for a GPU: its runs, what they cost, "
    "and the smallest difference that can be seen after the first look. `ablations plan GRID --scale SCALE` says more "
    "of one. Click a heading to sort."
)


def generated(root: Path) -> Iterator[tuple[str, str]]:
    """Name and text of the page."""
    found = cost_table.rows(Records(root / "results").snapshot())
    yield PAGE, f"# What each grid costs and sees\n\n{_INTRODUCTION}\n\n{markdown(cost_table.sheet(found))}\n"
