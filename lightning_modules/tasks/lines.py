"""Lines of data files, each with its number, and what is wrong with it.

Nothing is dropped in silence: a line that cannot be read is yielded with its fault, so that the shape's ``read`` names
all faulty lines of a file together.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..config import ConfigError

LONGEST = 1 << 20  # bytes of a line: a hundred times the longest example of any data set here
MOST_NAMED = 12  # faults of a file that an error lists


class Line(NamedTuple):
    """One line of a file.

    Attributes:
        number: From 1.
        fields: The columns that were asked for, or the whole line.
        fault: What is wrong with it, as an error says it after the place; empty where nothing is.
        short: Whether the fault is that it has too few fields.
    """

    number: int
    fields: list[str]
    fault: str = ""
    short: bool = False


def refused(faults: Sequence[str], what: str = "examples are wrong") -> ConfigError:
    """The error that names the first dozen faults and says how many more there are."""
    more = [f"{len(faults) - MOST_NAMED} more {what}."] if len(faults) > MOST_NAMED else []
    return ConfigError([f"{fault}." for fault in faults[:MOST_NAMED]] + more)


def numbered(path: Path) -> Iterator[Line]:
    r"""The lines of a UTF-8 text file without their ends, which are \n or \r\n; a byte order mark is left out.

    Empty lines at the end of the file are no lines. A line that is empty, too long, not UTF-8 or holds a NUL is a
    fault.

    Raises:
        ConfigError: For a folder, a file that may not be read, and one without any line.
    """
    if path.is_dir():
        raise ConfigError([f"{path} is a folder; it must be a file."])
    empty, number = [], 0
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                raw = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
                raw = raw.rstrip(b"\r\n")
                if not raw:
                    empty.append(number)
                    continue
                yield from (Line(n, [""], "is empty") for n in empty)
                empty = []
                yield _decoded(number, raw)
    except OSError as error:
        raise ConfigError([f"{path} cannot be read: {error.strerror or error}."]) from None
    if number == len(empty):
        raise ConfigError([f"{path} is empty."])


def _decoded(number: int, raw: bytes) -> Line:
    if len(raw) > LONGEST:
        return Line(number, [""], f"has {len(raw):,} bytes; an example has {LONGEST:,} at most")
    if b"\0" in raw:
        return Line(number, [""], f"holds a NUL (byte {raw.index(0) + 1})")
    try:
        return Line(number, [raw.decode()])
    except UnicodeDecodeError as error:
        return Line(number, [""], f"is not UTF-8 text (byte {error.start + 1})")


def table(path: Path, columns: Sequence[str | int]) -> Iterator[Line]:
    """Columns of a tab-separated file, in which a quote character stands for itself.

    A column is a heading of the first line, or a number from 0 in files without headings. A line with fewer fields
    than are asked for is a fault, and under headings so is one with more fields than those: a tab in a text has moved
    what follows.

    Raises:
        ConfigError: When a heading is missing or there twice, or nothing follows the headings; and as `numbered`.
    """
    lines, places, most = numbered(path), list(columns), None
    if isinstance(columns[0], str):
        heading = next(lines)
        places, most = _placed(path, heading, columns)
    needed, some = max(places) + 1, False
    for line in lines:
        some, fields = True, line.fields[0].split("\t")
        if line.fault:
            yield line
        elif len(fields) < needed:
            yield Line(line.number, fields, f"{len(fields)} fields instead of {most or needed}", short=True)
        elif most and len(fields) > most:
            yield Line(line.number, fields, f"{len(fields)} fields instead of {most}")
        else:
            yield Line(line.number, [fields[place] for place in places])
    if not some:
        raise ConfigError([f"{path} has headings but no examples."])


def _placed(path: Path, heading: Line, columns: Sequence[str]) -> tuple[list[int], int]:
    if heading.fault:
        raise ConfigError([f"{path}, line 1: {heading.fault}."])
    names = heading.fields[0].split("\t")
    if absent := [name for name in columns if name not in names]:
        shown = ", ".join(names)[:200]
        raise ConfigError([f"{path} has no column {', '.join(absent)}; it has {shown}."])
    if twice := [name for name in columns if names.count(name) > 1]:
        raise ConfigError([f"{path} has the column {', '.join(twice)} more than once."])
    return [names.index(name) for name in columns], len(names)


def objects(path: Path, texts: Sequence[str], label: str) -> Iterator[Line]:
    """The values of some keys of JSON objects, one object a line, in the order ``texts``, ``label``.

    A text is a string, a label a string or a whole number. Other values, absent keys and keys that are there twice are
    faults.

    Raises:
        ConfigError: As `numbered`.
    """
    for line in numbered(path):
        found, fault = (None, line.fault) if line.fault else _parsed(line.fields[0])
        fault = fault or _object_fault(found, texts, label)
        yield Line(line.number, [] if fault else [str(found[key]) for key in (*texts, label)], fault)


def _parsed(text: str) -> tuple[Any, str]:
    try:
        return json.loads(text, object_pairs_hook=_once), ""
    except (ValueError, RecursionError) as error:
        return None, f"is no JSON ({error})"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _object_fault(found: Any, texts: Sequence[str], label: str) -> str:
    if not isinstance(found, dict):
        return f"is JSON, but no object: {json.dumps(found)[:40]}"
    if absent := [key for key in (*texts, label) if key not in found]:
        return f"has no {', '.join(absent)}; it has {', '.join(found)[:200]}"
    for key in (*texts, label):
        if type(found[key]) is not str and (key in texts or type(found[key]) is not int):
            kind = "a string" if key in texts else "a string or a whole number"
            return f"{key} is {json.dumps(found[key])[:40]} instead of {kind}"
    if any("\0" in found[key] for key in texts):
        return "holds a NUL"
    try:
        "".join(found[key] for key in texts).encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair"
    return ""
