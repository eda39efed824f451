"""The documentation site: `make docs` builds it.

The source folder of Sphinx is the root of the repository, so that every page is rendered where it lies: its links to
other files are right on the site and wherever the repository is browsed. Pages that are lists of what exists (grids,
claims, published tables, modules, commands) are written by ``site_extension`` into ``docs/generated/``.
"""

import sys
from importlib.metadata import version as installed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "docs"), str(ROOT)]

project = "Ablations"
author = "The Ablations maintainers"
copyright = f"{author}, Apache-2.0"
version = release = installed("ablations")
html_title = f"{project} {version}"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "site_extension.events",
]
root_doc = "docs/index"
include_patterns = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "ablations/published/README.md",
    "docs/**",
    "notebooks/*.ipynb",
    "results/README.md",
    "results/claims.md",
    "results/lectures.md",
    "results/*/*/README.md",
    "results/*/*/details.md",
    "results/*/*/notebook.ipynb",
    "results/published/parameters.md",
    "results/published/systems.md",
    "results/statistics/README.md",
]
exclude_patterns = ["docs/_*", "docs/site_extension", "docs/api_introduction.md", "**/.ipynb_checkpoints"]

# Markdown and notebooks. Prose has dollars, quotation marks and dashes that are meant as they stand.
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
# Records may come from others: HTML in a page is text, and no output of a notebook is a script.
myst_disable_syntax = ["html_block", "html_inline"]
nb_mime_priority_overrides = [
    ("html", "text/html", None),
    ("html", "application/javascript", None),
    ("html", "application/vnd.jupyter.widget-view+json", None),
]
nb_execution_mode = "off"
nb_render_markdown_format = "myst"
nb_ipywidgets_js = {}  # no script from another host
smartquotes = False
highlight_language = "text"  # of blocks that name none

autodoc_default_options = {
    "members": True,
    "member-order": "bysource",
    "ignore-module-all": True,  # what a package only passes on is described where it is defined
}
napoleon_use_ivar = True  # attributes belong to the description of their class
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
add_module_names = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 160  # counted before names are shortened
suppress_warnings = ["ref.python"]  # several classes have an attribute of one name: its first mention links to one
default_role = "py:obj"  # `name` in a docstring links to what it names, if it is on the site
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_extra_path = ["_root"]
html_css_files = ["site.css"]
html_js_files = [("tables.js", {"defer": "defer"})]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
