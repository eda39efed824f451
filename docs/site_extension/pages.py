"""The generated pages: written before Sphinx looks for sources, into a folder that git ignores."""

from collections.abc import Iterator
from pathlib import Path

from site_extension import claim_pages, code_pages, cost_pages, grid_pages, published_pages

FOLDER = "docs/generated"


def generated(root: Path) -> Iterator[tuple[str, str]]:
    """Name, relative to the root, and text of every generated page."""
    yield from grid_pages.generated(root)
    yield from claim_pages.generated(root)
    yield from cost_pages.generated(root)
    yield from published_pages.generated()
    yield from code_pages.generated(root)


def write(root: Path) -> None:
    """Writes every page that changed, so that Sphinx reads no other anew, and removes those that are gone."""
    pages = dict(generated(root))
    for path in (root / FOLDER).rglob("*"):
        if path.is_file() and path.relative_to(root).as_posix() not in pages:
            path.unlink()
    for name, text in pages.items():
        path = root / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
