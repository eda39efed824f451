"""One section of a Markdown file."""

import re

_HEADING = re.compile(r"^(#+) +(.*?) *$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def section(text: str, title: str) -> str:
    """The text below a heading, up to the next one of its level or above.

    Raises:
        ValueError: If no heading, or more than one, has this title.
    """
    fences = [match.span() for match in _FENCED.finditer(text)]
    headings = [m for m in _HEADING.finditer(text) if not any(start < m.start() < end for start, end in fences)]
    chosen = [heading for heading in headings if heading[2] == title]
    if len(chosen) != 1:
        titles = ", ".join(heading[2] for heading in headings)
        raise ValueError(f"{len(chosen)} sections are called '{title}'; there are: {titles}")
    (start,) = chosen
    later = (h.start() for h in headings if h.start() > start.start() and len(h[1]) <= len(start[1]))
    return text[start.end() : next(later, len(text))].strip() + "\n"
