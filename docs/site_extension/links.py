"""Relative links of Markdown, made absolute in the site: to a page, or to a file for download.

Sources are untouched, so the same links work wherever the repository is browsed.
"""

import re
from collections.abc import Collection
from pathlib import Path

from site_extension import grid_pages

_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|/|#)([^()\s#]+)(#[^()\s]*)?(?=\))")
_EXECUTED = re.compile(r"results/[^/]+/[^/]+/notebook\.ipynb")
_SOURCES = (".md", ".ipynb", ".rst")


def absolute(root: Path, name: str, text: str, pages: Collection[str]) -> str:
    """The text of a file with its links from the root.

    Args:
        root: The root of the repository.
        name: The file, relative to the root; the links of an executed notebook were written for ``notebooks/``.
        text: Markdown, or a notebook as JSON.
        pages: The docnames of the site.
    """
    executed = grid_pages.executed(root)
    folder = root / "notebooks" if _EXECUTED.fullmatch(name) else (root / name).parent

    def replaced(match: re.Match[str]) -> str:
        path = (folder / match[1]).resolve()
        if not path.is_relative_to(root) or not path.exists():
            return match[0]  # Sphinx reports it, with file and line
        stem, dot, ending = path.relative_to(root).as_posix().rpartition(".")
        shown = executed.get(stem, stem) + dot + ending
        is_file = dot + ending in _SOURCES and executed.get(stem, stem) not in pages
        return f"{'path:' * is_file}/{shown}{match[2] or ''}"

    return _LINK.sub(replaced, text)
