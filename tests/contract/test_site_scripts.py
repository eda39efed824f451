"""The site as a real browser shows it: no text that somebody else wrote into a file runs a script."""

import importlib.util
import json
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from lightning_modules.places import project
from site_extension import results_text
from tests.contract.test_site_tables import BROWSER
from tests.unit.synthetic import make_plan, make_study, publish_page

NEEDED = ("sphinx", "myst_nb", "pydata_sphinx_theme")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome"),
    pytest.mark.skipif(not all(map(importlib.util.find_spec, NEEDED)), reason="needs the extra 'docs'"),
]

RUN = 'document.title="run"'
HTML = f"<svg onload='{RUN}'></svg><script>{RUN}</script><img src=x onerror='{RUN}'>"
DIRECTIVES = f"```{{raw}} html\n{HTML}\n```\n\n```{{eval-rst}}\n.. raw:: html\n\n   {HTML}\n```\n"
COMMITS = [" `<svg x=' ", f"' onload='{RUN}'", "`|1//", "~'>", f"`{HTML}`"]


class Active(HTMLParser):
    """Lists what runs a script in the text of a page, or would."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        handlers = [name for name, value in attributes if name.startswith("on") or "javascript:" in (value or "")]
        self.found += [tag] * (tag in ("script", "svg", "iframe", "object")) + handlers


def built(folder, pages, extensions="myst_nb"):
    """The document that a browser makes of each page, by name; the settings of Markdown are the project's."""
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    own = {"extensions": extensions, "include_patterns": ",".join(pages), "root_doc": "page", "html_theme": "basic"}
    options = [f"-D{name}={value}" for name, value in own.items()]
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-c", str(project() / "docs"), *options]
    subprocess.run([*command, str(folder), str(folder / "site")], check=True, timeout=300)
    return {name: document(folder, f"{name.partition('.')[0]}.html") for name in pages}


def document(folder, name):
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    address = (folder / "site" / name).as_uri()
    ended = subprocess.run([*command, "--dump-dom", address], capture_output=True, text=True, timeout=120, check=True)
    return ended.stdout


def notebook():
    """A notebook whose cells and outputs hold HTML."""
    outputs = [
        {"output_type": "display_data", "metadata": {}, "data": {kind: content, "text/plain": ["as text"]}}
        for kind, content in (
            ("text/html", HTML), ("application/javascript", RUN), ("text/markdown", HTML), ("image/svg+xml", HTML),
        )
    ]  # fmt: skip
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": f"# Notebook\n\n{HTML}"},
        {"cell_type": "code", "metadata": {}, "source": "1", "execution_count": 1, "outputs": outputs},
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def test_neither_records_nor_html_in_pages_and_notebooks_run_scripts(tmp_path):
    grid, cells, records = make_study()
    for (run, record), commit in zip(list(records.items()), COMMITS * len(records), strict=False):
        records[run] = record.but(provenance={"device": HTML, "commit": commit})
    written = publish_page(make_plan(grid, cells), records, tmp_path)
    pages = {
        name: written[made].read_text() for name, made in {"page.md": "README.md", "details.md": "details.md"}.items()
    }
    pages |= {"raw.md": f"# Raw\n\n{HTML}\n\nAn <b onclick='{RUN}'>inline</b> one.\n\n{DIRECTIVES}"}
    documents = built(tmp_path, pages | {"notebook.ipynb": notebook()})
    for name, text in documents.items():
        assert "<title>run" not in text, name
        own = text.partition('role="main"')[2].partition('<div class="sphinxsidebar"')[0]  # the rest is the theme's
        assert own, name
        assert Active(own).found == [], name
    assert "&lt;script&gt;" in documents["raw.md"], "HTML is shown as text"


def test_pages_and_notebooks_of_results_include_no_file_and_import_no_code(tmp_path):
    (tmp_path / "secret.txt").write_text("a secret of mine")
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w').close()")
    reads = ["```{literalinclude} secret.txt\n```", "* ```{include} secret.txt\n  ```", "~~~ {include} secret.txt\n~~~",
             ":::{include} secret.txt\n:::", "{download}`secret.txt`", "[x](path:secret.txt)",
             "[x]\n\n[x]: path:secret.txt",
             "```{automodule} evil\n```\n\n```{eval-rst}\n.. include:: secret.txt\n```"]  # fmt: skip
    text = "---\nmyst:\n  disable_syntax: []\n---\n\n# Page\n\n" + "\n\n".join(reads) + "\n\nThe end.\n"
    output = {"output_type": "display_data", "metadata": {}, "data": {"text/markdown": [text]}}
    code = f"open({str(tmp_path / 'executed')!r}, 'w').close()"
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": text.partition("---\n\n")[2]},
        {"cell_type": "code", "metadata": {}, "source": code, "execution_count": None, "outputs": [output]},
    ]
    forced = {"mystnb": {"execution_mode": "force"}}
    book = json.dumps({"cells": cells, "metadata": forced, "nbformat": 4, "nbformat_minor": 5})
    pages = {"page.md": results_text.plain(text), "book.ipynb": results_text.notebook(book)}
    for name, found in built(tmp_path, pages, "myst_nb,sphinx.ext.autodoc").items():
        assert "The end." in found, name
        assert "a secret of mine" not in found, name
    assert not (tmp_path / "executed").exists()
    assert not list((tmp_path / "site").rglob("secret.txt"))


def test_other_markdown_of_results_stays():
    text = (
        "# Page\n\n`{mask}` and [a file](../../x.csv), a (b) c: d.\n\n```python\nx = {1}\n```\n\n| a | b |\n|---|---|\n"
    )
    assert results_text.plain(text) == text
