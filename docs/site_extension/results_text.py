"""Pages and notebooks of results are shown as Markdown: whatever wrote them, no directive or role in them acts.

A results folder may be somebody else's. MyST's directives include files and import code when the site is built.
"""

import json
import re
from typing import Any

_FENCE = re.compile(r"^([\s\d.)>*+-]*(?:`{3,}|~{3,}))(?=[ \t]*\{)", re.MULTILINE)
_COLONS = re.compile(r"^([\s\d.)>*+-]*)(?=:{3,})", re.MULTILINE)
_METADATA = {"kernelspec", "language_info"}  # others may tell MyST-NB to execute the notebook
_ROLE = re.compile(r"(?<!`)\{(?=[\w:+-]{1,36}\}`[^`\n])")
_AWAY = re.compile(  # in links and their definitions: out of the repository, and what MyST resolves
    r"(?:(?<=\]\()|(?<=\]:))(?=[^()\n]*\.\./\.\./\.\./\.\.|\s*<?(?:path|file|inv|project):|\s*<?/)"
)


def plain(text: str) -> str:
    """Markdown in which nothing acts but Markdown: fences have no directive, and links lead to no file elsewhere."""
    text = _FENCE.sub(r"\1text ", text)
    text = _COLONS.sub(r"\1\\", text)
    text = _ROLE.sub(r"\\{", text)
    text = _AWAY.sub("#", text)
    return f"\n{text}" if text.startswith("---") else text  # options of MyST, which turn on what is off


def notebook(text: str) -> str:
    """A notebook whose Markdown, in cells and in outputs, is `plain`; one that is none is shown as it is."""
    try:
        data = json.loads(text)
        for cell in data["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = plain(_joined(cell["source"]))
            for output in cell.get("outputs", ()):
                shown = output.get("data", {})
                shown |= {kind: plain(_joined(shown[kind])) for kind in ("text/markdown",) if kind in shown}
            cell["metadata"] = {}  # MyST-NB takes options from it
        data["metadata"] = {name: data["metadata"][name] for name in _METADATA & data["metadata"].keys()}
    except (ValueError, LookupError, TypeError, AttributeError):
        return text
    return json.dumps(data)


def _joined(source: Any) -> str:
    return source if isinstance(source, str) else "".join(source)
