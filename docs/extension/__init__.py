"""The part of the site that is made at build time: pages of what exists, and how code is shown.

``pages`` says which pages are generated, ``grid_pages`` which results pages and notebooks belong to a grid, and
``reference`` how docstrings and signatures look. Nothing here states a fact of its own: numbers come from ``results/``,
claims and printed values from ``ablations/published/``, everything else from the code.
"""

from pathlib import Path
from typing import Any

from extension import grid_pages, links, pages, reference


def setup(app: Any) -> dict[str, Any]:
    """Connects the steps to the events of Sphinx."""
    app.connect("config-inited", _prepare)
    app.connect("source-read", _read_page)
    app.connect("include-read", _read_part)
    app.connect("autodoc-skip-member", reference.skip_member)
    app.connect("autodoc-process-signature", reference.process_signature)
    app.connect("autodoc-process-docstring", reference.process_docstring)
    app.connect("missing-reference", reference.link_by_last_name)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def _prepare(app: Any, config: Any) -> None:
    """Writes the generated pages. A notebook that was executed is shown once, with its outputs."""
    root = Path(app.srcdir)
    pages.write(root)
    config.exclude_patterns += [f"{name}.ipynb" for name in grid_pages.executed(root)]


def _read_page(app: Any, docname: str, source: list[str]) -> None:
    """Adds to a grid's results page what the site has beside it, and makes links absolute."""
    root, name = Path(app.srcdir), Path(app.env.doc2path(docname, base=False)).as_posix()
    if not name.endswith(".rst"):
        source[0] = links.absolute(root, name, source[0], app.env.found_docs)
    source[0] += grid_pages.supplement(root, docname)


def _read_part(app: Any, path: Path, parent: str, source: list[str]) -> None:
    """Makes links absolute in a file that a page includes."""
    if path.suffix == ".md":
        root = Path(app.srcdir)
        name = (root / path).resolve().relative_to(root).as_posix()
        source[0] = links.absolute(root, name, source[0], app.env.found_docs)
