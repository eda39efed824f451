"""Every number of every run behind a results page, to download from it: what ``ablations show --format csv`` prints."""

from pathlib import Path

import ablations
from ablations.planning import grids
from ablations.planning.grids import REQUEST
from site_extension import grid_pages

FOLDER = "docs/generated/runs"


def write(root: Path) -> None:
    """Writes the tables of the project's own grids; those of others and of overridden ones a command prints."""
    for page in grid_pages.published(root):
        is_overridden = (root / page.docname).with_name(REQUEST).exists()
        if page.grid in grids.available() and not is_overridden:
            study = ablations.open(page.grid, page.scale, results_dir=root / "results")
            path = _path(root, page.docname)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(study.written("csv"), encoding="utf-8")


def link(root: Path, docname: str) -> str:
    """A section of Markdown with the table of a results page; empty for a page that has none."""
    path = _path(root, docname)
    if not path.is_file():
        return ""
    about = "one a row, with [what each column and metric is](/docs/records.md)"
    return f"\n## Download\n\n[Every number of every run](/{path.relative_to(root).as_posix()}), {about}.\n"


def _path(root: Path, docname: str) -> Path:
    """Where the table of a results page is, by its folders; its name tells the grid wherever it is saved."""
    grid, scale = ("", "", *Path(docname).parts)[-3:-1]
    return root / FOLDER / grid / f"{grid}_{scale}.csv"
