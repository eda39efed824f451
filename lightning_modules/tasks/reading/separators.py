"""What separates the fields of a line: what was expected, how many were found, and what seems to separate them."""

import csv
import re
from collections.abc import Callable, Sequence

_NAMES = {"\t": "tabs", ",": "commas", " ": "spaces or tabs"}  # in the plural, by the expected separator
_SINGLE = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "vertical bar"}


def wrong_count(text: str, found: int, expected: int, separator: str, least: bool = False, what: str = "field") -> str:
    r"""A fault: how many fields were found and expected, and, where no separator was found, what is there instead.

    Args:
        separator: A tab, a comma, or a space for runs of white space.
        least: Whether more are allowed.
        what: What a field is called.

    >>> wrong_count("0,It rains.,It is wet.,1", 1, 4, "\t")
    '1 field instead of 4 separated by tabs. It looks comma-separated'
    """
    plural = "" if found == 1 else "s"
    number = f"at least {expected}" if least else str(expected)
    seen = looks(text, separator, lambda fields: len(fields) >= expected if least else len(fields) == expected)
    return f"{found} {what}{plural} instead of {number} separated by {_NAMES[separator]}" + (
        f". It looks {seen}" if found == 1 and seen else ""
    )


def wrong_headings(text: str, separator: str, columns: Sequence[str]) -> str:
    """The end of an error on missing headings that another separator would provide; empty if none would."""
    seen = looks(text, separator, lambda fields: set(columns) <= set(fields))
    return f" Its headings must be separated by {_NAMES[separator]}. They look {seen}." if seen else ""


def looks(text: str, separator: str, fits: Callable[[list[str]], bool]) -> str:
    """What seems to separate the fields of a line instead of ``separator``, as an adjective; empty if nothing does.

    Args:
        fits: Whether fields are what the line should consist of.
    """
    if text.lstrip().startswith("{") and text.rstrip().endswith("}"):
        return "like JSON lines"
    for other, name in _SINGLE.items():
        if other not in (separator, "\t" if separator == " " else "") and fits(_split(text, other)):
            return f"{name}-separated"
    return "space-separated" if separator != " " and fits(re.split(" +", text.strip(" "))) else ""


def _split(text: str, separator: str) -> list[str]:
    try:
        return next(csv.reader([text], delimiter=separator))
    except csv.Error:  # a field longer than the module allows
        return []
