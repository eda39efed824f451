"""Lines of data files, each with its number and its fault, if it has one.

No line is dropped silently: a malformed line is yielded with its fault, and `made`, or else the shape's ``read``,
reports all malformed lines of a file together.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from lightning_modules import files
from lightning_modules.config import ConfigError
from lightning_modules.problems import nearest
from lightning_modules.tasks.reading.separators import wrong_count, wrong_headings

LONGEST = 1 << 20  # bytes of a line; a hundred times the longest example of any data set here
_LONGEST_READ = 1 << 30  # bytes of a line that are counted
MOST_NAMED = 12  # faults of a file that an error lists
_FEW = 3  # lines that it names of each
_MOST_FAULTS = 10_000  # after which a file is read no further
_MARK = b"\xef\xbb\xbf"  # of the byte order
_Made = TypeVar("_Made")


class Line(NamedTuple):
    """One line of a file.

    Attributes:
        number: From 1.
        fields: The requested columns, the whole line, or an example with its number.
        fault: What is wrong, worded to follow the place in a message; empty for a valid line.
        short: Whether the fault is that it has too few fields.
    """

    number: int
    fields: list[Any]
    fault: str = ""
    short: bool = False


class Fault(Exception):
    """What is wrong with a line, worded to follow the place in a message."""


def made(source: object, lines: Iterable[Line], make: Callable[..., _Made], kind: str = "line") -> Iterator[_Made]:
    """What ``make`` makes of the fields of each line.

    A fault that many lines have is said once, with the first lines and how many there are.

    Args:
        source: The file that holds the lines.
        lines: From `numbered`, `table` ...
        make: Takes the fields; raises `Fault` if they are malformed.
        kind: What a line is called in errors.

    Raises:
        ConfigError: After the last line, with the faults of all; after thousands of faults at once.
    """
    faults: dict[str, list[int]] = {}
    found = 0
    for line in lines:
        try:
            if line.fault:
                raise Fault(line.fault)
            yield make(*line.fields)
        except Fault as fault:
            faults.setdefault(str(fault), []).append(line.number)
            found += 1
            if found == _MOST_FAULTS:
                break
    if not faults:
        return
    named = dict(list(faults.items())[:MOST_NAMED])
    problems = [f"{source}, {_places(kind, numbers)}: {fault}." for fault, numbers in named.items()]
    if further := found - sum(map(len, named.values())):
        problems.append(f"{further:,} more {kind}s are wrong.")
    if found == _MOST_FAULTS:
        problems.append(f"{source} was read no further.")
    raise ConfigError(problems)


def _places(kind: str, numbers: Sequence[int]) -> str:
    """``line 3``, ``lines 3, 4``, or ``lines 1, 2, 3 and 591 more``."""
    first = ", ".join(map(str, numbers[:_FEW]))
    if len(numbers) == 1:
        return f"{kind} {first}"
    return f"{kind}s {first}" + (f" and {len(numbers) - _FEW:,} more" if len(numbers) > _FEW else "")


def refused(faults: Sequence[str], what: str = "examples are wrong") -> ConfigError:
    """The error that names the first dozen faults and says how many more were found."""
    least = "At least " if len(faults) >= _MOST_FAULTS else ""
    more = [f"{least}{len(faults) - MOST_NAMED} more {what}."] if len(faults) > MOST_NAMED else []
    return ConfigError([f"{fault}." for fault in faults[:MOST_NAMED]] + more)


def numbered(path: Path, blank: bool = False) -> Iterator[Line]:
    r"""The lines of a UTF-8 text file without line ends (\n or \r\n) and byte order mark.

    A line that is too long, not UTF-8 or contains NUL is a fault, and so is an empty one unless ``blank``; empty lines
    at the end of the file are ignored.

    Raises:
        ConfigError: For a folder, an unreadable file and an empty file.
    """
    if path.is_dir():
        raise ConfigError([f"{path} is a folder. It must be a file."])
    empty, number = [], 0
    try:
        with files.open_plain(path) as file:
            for number, (raw, size) in enumerate(_read(file), 1):
                if number == 1 and raw.startswith(_MARK):
                    raw, size = raw.removeprefix(_MARK), size - len(_MARK)
                raw = raw.rstrip(b"\r\n")
                if not raw and not blank:
                    empty.append(number)
                    continue
                yield from (Line(n, [""], "is empty") for n in empty)
                empty = []
                yield _decoded(number, raw, size)
    except OSError as error:
        raise ConfigError([f"{path} cannot be read: {error.strerror or error}."]) from None
    if number == len(empty):
        raise ConfigError([f"{path} is empty."])


def _read(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Each line, no more of it than shows that it is too long, and the bytes that it has without its end.

    A line of more than `_LONGEST_READ` bytes is the last.
    """
    size = 0
    while size <= _LONGEST_READ and (raw := file.readline(LONGEST + len(_MARK) + 2)):
        size, part = len(raw.rstrip(b"\r\n")), raw
        while size <= _LONGEST_READ and not part.endswith(b"\n") and (part := file.readline(LONGEST)):
            size += len(part.rstrip(b"\r\n"))
        yield raw, size


def _decoded(number: int, raw: bytes, size: int) -> Line:
    if size > LONGEST:
        return Line(number, [""], f"has {size:,} bytes. At most {LONGEST:,} are allowed")
    if b"\0" in raw:
        return Line(number, [""], f"contains NUL (byte {raw.index(0) + 1})")
    try:
        return Line(number, [raw.decode()])
    except UnicodeDecodeError as error:
        return Line(number, [""], f"is not UTF-8 text (byte {error.start + 1})")


def table(path: Path, columns: Sequence[str | int], delimiter: str = "\t", quoted: bool = False) -> Iterator[Line]:
    """Columns of a file whose fields are separated by tabs, or another delimiter.

    A column is a heading of the first line, or a number from 0 in files without headings. A line with too few fields is
    a fault; below headings it must have as many fields as there are headings, since a tab inside a text shifts the
    others. Quote characters are ordinary text, unless fields may be ``quoted`` as in CSV: then a quote that is not
    closed on its line is a fault.

    Raises:
        ConfigError: When a heading is missing or repeated, or nothing follows the headings; and as `numbered`.
    """
    lines = numbered(path)
    headings, width = [name for name in columns if isinstance(name, str)], None
    places = [place for place in columns if isinstance(place, int)]
    if headings:
        places, width = _placed(path, next(lines), headings, delimiter, quoted)
    needed, has_lines = width or max(places) + 1, False
    for whole in lines:
        line = _split(whole, delimiter, quoted)
        has_lines, count = True, len(line.fields)
        if line.fault:
            yield line
        elif count < needed or (width and count > width):
            fault = wrong_count(whole.fields[0], count, needed, delimiter, least=not width)
            yield line._replace(fault=fault, short=count < needed)
        else:
            yield line._replace(fields=[line.fields[place] for place in places])
    if not has_lines:
        raise ConfigError([f"{path} has headings but no examples."])


def _split(line: Line, delimiter: str, quoted: bool) -> Line:
    if line.fault or not quoted:
        return line._replace(fields=line.fields[0].split(delimiter))
    try:
        return line._replace(fields=next(csv.reader(line.fields, delimiter=delimiter, strict=True)))
    except csv.Error as error:
        return line._replace(fault=str(error))


def _placed(path: Path, first: Line, columns: Sequence[str], delimiter: str, quoted: bool) -> tuple[list[int], int]:
    heading = _split(first, delimiter, quoted)
    names = heading.fields
    if heading.fault:
        raise ConfigError([f"{path}, line 1: {heading.fault}."])
    if absent := [name for name in columns if name not in names]:
        shown, hint = ", ".join(names)[:200], wrong_headings(first.fields[0], delimiter, columns)
        raise ConfigError([f"{path} has no column {', '.join(absent)}. It has {shown}.{hint}"])
    if repeated := [name for name in columns if names.count(name) > 1]:
        raise ConfigError([f"{path} has the column {', '.join(repeated)} more than once."])
    return [names.index(name) for name in columns], len(names)


def objects(path: Path, texts: Sequence[str], label: str) -> Iterator[Line]:
    """The values of some keys of JSON objects, one object a line, in the order ``texts``, ``label``.

    A text is a string, a label a string or a whole number. Other values, absent keys and repeated keys are faults.

    Raises:
        ConfigError: As `numbered`.
    """
    for line in numbered(path):
        try:
            yield line if line.fault else line._replace(fields=_values(line.fields[0], texts, label))
        except Fault as fault:
            yield line._replace(fields=[], fault=str(fault))


def json_object(text: str, keys: Sequence[str]) -> dict[str, Any]:
    """The JSON object of a text.

    Raises:
        Fault: For invalid JSON, another value than an object, a key that is missing, null or repeated.
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        expected = f"Each line must be one object with {', '.join(keys)}"
        raise Fault(f"is not valid JSON ({error}). {expected}") from None
    if not isinstance(value, dict):
        raise Fault(f"is JSON but not an object: {json.dumps(value)[:40]}")
    if absent := [key for key in keys if key not in value]:
        slips = {key: near for key in absent if (near := nearest(key, value.keys() - set(keys)))}
        hint = "".join(f". Rename '{near}' to '{key}'" for key, near in slips.items())
        raise Fault(f"has no {', '.join(absent)}. It has {', '.join(value)[:200]}{hint}")
    if null := [key for key in keys if value[key] is None]:
        cause = "pandas reads NA, None, null and empty cells as missing. It keeps them with keep_default_na=False"
        raise Fault(f"{', '.join(null)} must not be null. {cause}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} occurs twice")
    return values


def _values(text: str, texts: Sequence[str], label: str) -> list[str]:
    values = json_object(text, [*texts, label])
    for key in (*texts, label):
        if type(values[key]) is not str and (key in texts or type(values[key]) is not int):
            kind = "a string" if key in texts else "a string or a whole number"
            raise Fault(f"{key} is {json.dumps(values[key])[:40]} instead of {kind}")
    if any("\0" in values[key] for key in texts):
        raise Fault("contains NUL")
    try:
        "".join(values[key] for key in texts).encode()
    except UnicodeEncodeError:
        raise Fault("contains half of a surrogate pair") from None
    return [str(values[key]) for key in (*texts, label)]
