"""Joins the steps to Sphinx."""

import zlib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from site_extension import grid_pages, links, pages, reference, results_text, run_tables
from site_extension.sections import section


def setup(app: Any) -> dict[str, Any]:
    """Connects the steps to the events of Sphinx."""
    app.add_directive("section", Section)
    app.connect("config-inited", _prepare)
    app.connect("source-read", _read_page)
    app.connect("include-read", _read_part)
    app.connect("autodoc-skip-member", reference.skip_member)
    app.connect("autodoc-process-signature", reference.process_signature)
    app.connect("autodoc-process-docstring", reference.process_docstring)
    app.connect("missing-reference", reference.link_by_last_name)
    sources = sorted(Path(__file__).parent.glob("*.py"))
    own = zlib.crc32(b"".join(path.read_bytes() for path in sources))  # a change of it makes every page anew
    return {"env_version": own, "parallel_read_safe": True, "parallel_write_safe": True}


def _prepare(app: Any, config: Any) -> None:
    """Writes the generated pages, and the tables to download. Notebooks that were executed are shown once."""
    root = Path(app.srcdir)
    pages.write(root)
    run_tables.write(root)
    config.exclude_patterns += [f"{name}.ipynb" for name in grid_pages.executed(root)]


def _read_page(app: Any, docname: str, source: list[str]) -> None:
    """Adds to a grid's results page what the site has beside it, and makes links absolute."""
    root, name = Path(app.srcdir), Path(app.env.doc2path(docname, base=False)).as_posix()
    if name.startswith("results/"):
        source[0] = results_text.notebook(source[0]) if name.endswith(".ipynb") else results_text.plain(source[0])
    if not name.endswith(".rst"):
        source[0] = links.absolute(root, name, source[0], app.env.found_docs)
    source[0] += run_tables.link(root, docname) + grid_pages.supplement(root, docname)


def _read_part(app: Any, path: Path, parent: str, source: list[str]) -> None:
    """Makes links absolute in a file that a page includes."""
    if path.suffix == ".md":
        root = Path(app.srcdir)
        name = (root / path).resolve().relative_to(root).as_posix()
        source[0] = links.absolute(root, name, source[0], app.env.found_docs)


class Section(SphinxDirective):
    """One section of a Markdown file, without its heading: ``{section} /README.md: Speed``."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """The nodes of the section, its links made absolute."""
        name, _, title = self.arguments[0].partition(": ")
        _, file = self.env.relfn2path(name)
        self.env.note_dependency(file)
        root, path = Path(self.env.srcdir), Path(file)
        try:
            text = section(path.read_text(encoding="utf-8"), title)
        except (OSError, ValueError) as error:
            raise self.error(f"{name}: {error}") from None
        text = links.absolute(root, path.relative_to(root).as_posix(), text, self.env.found_docs)
        return self.parse_text_to_nodes(text)
