"""Reads YAML strictly: no silent conversions, and every problem with its line.

PyYAML's safe loader reads ``1e-5`` as text, ``no`` as False, ``012`` as 10, and silently lets the last of two equal
keys win. Here its parser builds the tree, and our own rules (YAML 1.2's core schema, and stricter) give the values.
"""

import contextlib
import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lightning_modules.files import read, read_text
from lightning_modules.problems import ConfigError, Problem, did_you_mean, nearest

_LARGEST_FILE = 1 << 20  # bytes; a grid has a few thousand
_MOST_NODES = 20_000  # values of a file with its aliases expanded
_MOST_LEVELS = 100  # of lists and mappings within each other
_OPENING, _DEEP = "[{-?", 10_000  # what can begin a level, and how often without a risk: in C, too many end the process
_WORDS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NOTHING = ("", "~", "null", "Null", "NULL")
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_REAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_TAG = "tag:yaml.org,2002:"

ALSO = " Also in line"  # before the other lines of a file that have the same slip
Path_ = tuple[str | int, ...]
State = str


@dataclass
class Document:
    """The data of a file, its problems, and the line of each of its parts.

    After a problem the data may be mended, so that the rest is checked as well: a wrong word is read as the nearest
    allowed one (`mend`), or a part is left out (`drop`). Places are always given as the file has them.

    Attributes:
        file: The file.
        data: Its data.
        lines: Path of keys -> line, from 1.
        problems: Line and problem, in the order in which they were found.
        slips: Words that are not mended yet: path, whether it is a key, nearest allowed word.
        repeated: A word and the nearest allowed one -> the number of its problem, and the other lines with that word.
        kept: Path of a list that lost items -> the indices of the others in the file.
    """

    file: Path
    data: Any = None
    lines: dict[Path_, int] = field(default_factory=dict)
    problems: list[tuple[float, Problem]] = field(default_factory=list)
    slips: list[tuple[Path_, bool, str | None]] = field(default_factory=list)
    repeated: dict[tuple[str, str], tuple[int, list[int]]] = field(default_factory=dict)
    kept: dict[Path_, list[int]] = field(default_factory=dict)

    def line(self, path: Path_) -> int:
        """The line of a part, or of the nearest part around it that has one."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def rename(self, path: Path_, old: str, new: str) -> None:
        """Reads the key ``old`` of a mapping as ``new``, which must not be there as well."""
        part = self.part(path)
        if not isinstance(part, dict) or old not in part:
            return
        if new in part:
            self.complain((*path, old), f"is another word for '{new}', which is given too. Leave one of them out.")
        part[new] = part.pop(old)
        path = self.written(path)
        before, place = (*path, old), len(path)
        self.lines = {
            (*path, new, *where[place + 1 :]) if where[: place + 1] == before else where: line
            for where, line in self.lines.items()
        }

    def complain(self, path: Path_, message: str, line: int | None = None) -> None:
        """Adds a problem as ``file:line: path: message``."""
        path = self.written(path)
        at = line or self.line(path)
        dotted = ".".join(map(str, path))
        self.problems.append((at, Problem(f"{self.file.name}:{at}" + (f": {dotted}" if dotted else ""), message)))

    def slip(self, path: Path_, message: str, allowed: Iterable[str], value: str | None = None) -> None:
        """Adds a problem with a word that is not allowed, with the nearest allowed one.

        `mend` then reads the nearest in its place; without a similar word it leaves the key or the value out. The same
        slip at another place is no further problem: the first one lists its line.

        Args:
            value: The word, if it is the value at ``path``; by default it is the last key of ``path``.
        """
        names, word = list(allowed), str(path[-1]) if value is None else value
        near = nearest(word, names)
        if near is not None and (word, near) in self.repeated:
            self.repeated[word, near][1].append(self.line(self.written(path)))
        else:
            self.complain(path, message + did_you_mean(word, names))
            if near is not None:
                self.repeated[word, near] = (len(self.problems) - 1, [])
        self.slips.append((path, value is None, near))

    def mend(self) -> bool:
        """Mends all slips so far; returns whether there were any."""
        slips, self.slips = self.slips, []
        for path, is_key, near in reversed(slips):  # parts before what holds them, later items before earlier ones
            around = self.part(path[:-1])
            if near is None or (is_key and near in around):
                self.drop(path)
            elif is_key:
                self.rename(path[:-1], str(path[-1]), near)
            else:
                around[path[-1]] = near
        return bool(slips)

    def drop(self, path: Path_) -> None:
        """Leaves out a key of a mapping or an item of a list."""
        around, last = self.part(path[:-1]), path[-1]
        if isinstance(around, list) and isinstance(last, int):
            indices = self.kept.setdefault(self.written(path[:-1]), list(range(len(around))))
            del around[last], indices[last]
        elif isinstance(around, dict):
            around.pop(last, None)

    def part(self, path: Path_) -> Any:
        """The data at a path; None if there are none."""
        part = self.data
        for key in path:
            if isinstance(part, dict):
                part = part.get(key)
            elif isinstance(part, list) and isinstance(key, int) and key < len(part):
                part = part[key]
            else:
                return None
        return part

    def written(self, path: Path_) -> Path_:
        """A path of the data as the file has it, where lists have all their items."""
        parts: Path_ = ()
        for part in path:
            parts = (*parts, self.kept[parts][part] if isinstance(part, int) and parts in self.kept else part)
        return parts

    def check(self) -> None:
        """Raises all problems so far, in the order of the file, each once: scales may share one.

        Raises:
            ConfigError: If there is one.
        """
        if self.problems:
            found = list(self.problems)
            for number, lines in self.repeated.values():
                line, problem = found[number]
                if others := ", ".join(map(str, sorted({*lines} - {line}))):
                    also = f"{ALSO}{'s' * (',' in others)} {others}."
                    found[number] = (line, Problem(problem.path, problem.message + also))
            raise ConfigError(dict.fromkeys(problem for _, problem in sorted(found, key=lambda item: item[0])))


class _Parser(yaml.SafeLoader):
    """PyYAML's scanner and composer without implicit types: every plain scalar stays text."""

    yaml_implicit_resolvers: Mapping = {}


# The same over libyaml, where PyYAML was built with it: eight times faster, with other words for an error.
_Fast: Any = type("_Fast", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {"yaml_implicit_resolvers": {}})


def named(what: str, folders: Iterable[Path]) -> dict[str, Path]:
    """Name -> file: the YAML files of some folders, in order.

    Args:
        what: What the files are, in the plural, for the error.
        folders: The folders; those that do not exist hold nothing.

    Raises:
        ConfigError: If two files have the same name.
    """
    files: dict[str, Path] = {}
    for folder in folders:
        for file in sorted(folder.glob("*.yaml")):
            if file.stem in files and not file.samefile(files[file.stem]):
                raise ConfigError([f"two {what} are called '{file.stem}': {files[file.stem]} and {file}. Rename one."])
            files[file.stem] = file
    return files


def state(file: Path) -> State:
    """Identifies the content of a file, for what is kept of it; empty for one that cannot be read.

    Size and time do not: a copy or an editor may keep both.
    """
    try:
        return hashlib.sha256(read(file, _LARGEST_FILE)).hexdigest()
    except OSError:
        return ""


def load(file: Path) -> Document:
    """Reads a YAML file. Syntax problems go to ``Document.problems``; ``check`` raises them.

    Raises:
        ConfigError: If the file cannot be read at all.
    """
    document = Document(Path(file))
    try:
        size = document.file.stat().st_size
        if size > _LARGEST_FILE:
            raise yaml.YAMLError(f"it has {size:,} bytes. At most {_LARGEST_FILE:,} are allowed.")
        node = _composed(read_text(document.file, _LARGEST_FILE))
        document.data = None if node is None else _Reader(document).value(node, ())
        if node is None:
            document.complain((), "is empty")
    except yaml.MarkedYAMLError as error:
        _syntax(document, error)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        document.complain((), f"is not valid YAML: {' '.join(str(error).split())}")
    except RecursionError:
        document.complain((), "is nested too deeply")
    except OSError as error:
        raise ConfigError([f"{document.file}: cannot be read: {error.strerror}"]) from None
    return document


def value(text: str) -> Any:
    """Reads one value as in a file: ``0.4`` is a number, ``true`` a boolean, ``[1, 2]`` a list.

    Raises:
        ConfigError: If ``text`` is not YAML, or nested too deeply.
    """
    document = Document(Path("value"))
    try:
        node = _composed(text)
        read = None if node is None else _Reader(document).value(node, ())
    except RecursionError:
        raise ConfigError([f"{text[:40]!r} ... is nested too deeply"]) from None
    except yaml.MarkedYAMLError as error:
        raise ConfigError([f"{text!r} is not valid YAML: {error.problem or error.context}"]) from None
    except yaml.YAMLError as error:
        raise ConfigError([f"{text!r} is not valid YAML: {' '.join(str(error).split())}"]) from None
    if document.problems:
        raise ConfigError(f"{text!r}: {problem.message}" for _, problem in document.problems)
    return read


def _composed(text: str) -> yaml.Node | None:
    if sum(map(text.count, _OPENING)) < _DEEP:
        with contextlib.suppress(yaml.YAMLError):
            return yaml.compose(text, Loader=_Fast)
    return yaml.compose(text, Loader=_Parser)  # the one whose errors we report


def _syntax(document: Document, error: yaml.MarkedYAMLError) -> None:
    mark = error.problem_mark or error.context_mark
    message = error.problem or error.context or "cannot be parsed"
    if "'\\t'" in message or "tab" in message:
        message = "a tab is not allowed here. Indent with spaces."
    elif mark is not None:
        message = f"{message} (column {mark.column + 1})"
    document.complain((), message, line=mark.line + 1 if mark else 1)


class _Reader:
    """Turns composed nodes into values and expands aliases up to a limit."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.seen = 0
        self.open: set[int] = set()

    def value(self, node: yaml.Node, path: Path_, line: int | None = None) -> Any:
        if len(path) > _MOST_LEVELS:
            raise RecursionError
        self.seen += 1
        self.document.lines.setdefault(path, line or node.start_mark.line + 1)
        if self.seen > _MOST_NODES or id(node) in self.open:
            if self.seen <= _MOST_NODES + 1:
                self.document.complain(path, f"aliases (*name) expand to more than {_MOST_NODES:,} values")
            self.seen = _MOST_NODES + 2
            return None
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        self.open.add(id(node))
        inner = self._list(node, path) if isinstance(node, yaml.SequenceNode) else self._mapping(node, path)
        self.open.discard(id(node))
        return inner

    def _list(self, node: yaml.Node, path: Path_) -> list[Any]:
        self._plain_tag(node, path, "seq")
        items = []
        for index, item in enumerate(node.value):
            items.append(self.value(item, (*path, index)))
            if self.seen > _MOST_NODES:
                break
        return items

    def _mapping(self, node: yaml.Node, path: Path_) -> dict[str, Any]:
        self._plain_tag(node, path, "map")
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._scalar(key_node, path) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                self.document.complain(path, "a key must be text. Put it in quotes.", line)
            elif key in mapping:
                first = self.document.lines[(*path, key)]
                self.document.complain((*path, key), f"is written twice (first on line {first})", line)
            else:
                mapping[key] = self.value(value_node, (*path, key), line)
            if self.seen > _MOST_NODES:
                break
        return mapping

    def _plain_tag(self, node: yaml.Node, path: Path_, kind: str) -> None:
        if node.tag not in (_TAG + kind, "!"):
            self.document.complain(path, f"the tag {node.tag} is not allowed", node.start_mark.line + 1)

    def _scalar(self, node: yaml.ScalarNode, path: Path_) -> Any:
        text = node.value
        self._plain_tag(node, path, "str")
        if node.style:  # quoted or block text is text; libyaml leaves plain text an empty style, Python none
            return text
        if text in _NOTHING:
            return None
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.fullmatch(text):
            return int(text) if len(text) < 20 else self._unclear(node, path, "is too large a number")
        if _LEADING_ZERO.fullmatch(text):
            return self._unclear(node, path, "could be octal. Drop the leading zero, or quote it.")
        if _REAL.fullmatch(text):
            number = float(text)
            return number if math.isfinite(number) else self._unclear(node, path, "is too large a number")
        return text

    def _unclear(self, node: yaml.ScalarNode, path: Path_, why: str) -> None:
        self.document.complain(path, f"{node.value} {why}", node.start_mark.line + 1)
