"""Pinned fingerprints of tasks, so that scores everywhere are on the same examples; compare ``data.pins``.

``pins.json`` holds, for each task of ``TASKS``, the SHA-256 and the size of its splits as ``Task.examples``
returns them, and the definition of its row. Planning and tables read the pins and open no data.

A fingerprint is of the examples and of what a row says beside them (`definition`). Rows that came with their pin are
identified by the examples alone while their definition is the one in ``pins.json``.
"""

import functools
import hashlib
import inspect
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, BinaryIO

from lightning_modules import cached
from lightning_modules.config import identity
from lightning_modules.data.pins import DataMismatch
from lightning_modules.files import version, write_atomically
from lightning_modules.places import cache
from lightning_modules.tasks.shapes.shape import Examples
from lightning_modules.tasks.table import task_named
from lightning_modules.tasks.task import SPLITS, Split, Task

_PINS = Path(__file__).with_name("pins.json")
_ROW = "row"  # the definition, in the entry of a task


@dataclass(frozen=True)
class Part:
    """The digest and the size of one split."""

    sha256: str
    examples: int
    words: int

    @classmethod
    def of(cls, examples: Examples) -> "Part":
        """The fingerprint of some examples: texts, labels and their order."""
        digest = hashlib.sha256(json.dumps(examples.items_for_pin()).encode()).hexdigest()
        return cls(digest, len(examples), examples.words())


def measured(task: Task) -> dict[str, Part]:
    """Reads a task and returns the fingerprints of its two splits."""
    return {split: Part.of(task.examples(split)) for split in SPLITS}


def pinned() -> dict[str, dict[str, Part]]:
    """The committed pins: task -> split -> fingerprint."""
    parts = {name: {split: entry[split] for split in SPLITS if split in entry} for name, entry in _entries().items()}
    return {name: {split: Part(**part) for split, part in found.items()} for name, found in parts.items() if found}


def _entries() -> dict[str, dict[str, Any]]:
    return json.loads(_PINS.read_text(encoding="utf-8")) if _PINS.is_file() else {}


def pin(names: Iterable[str]) -> None:
    """Reads tasks and writes their pins into ``pins.json``."""
    entries = _entries()
    for name in names:
        parts = measured(task_named(name))
        entries[name] = entries.get(name, {}) | {split: asdict(part) for split, part in parts.items()}
    content = json.dumps(dict(sorted(entries.items())), indent=2) + "\n"
    write_atomically(_PINS, lambda file: file.write(content.encode()))


def definition(task: Task) -> dict[str, Any]:
    """What a row says that acts on numbers and is in no example: its shape, and metrics that records cannot give.

    Fields of the shape at their default are left out, so that a new one changes no fingerprint. The settings of a row
    are settings of its fine-tunings.
    """
    shape: Any = task.shape
    given = {field.name: getattr(shape, field.name) for field in fields(shape)}
    changed = {field.name: given[field.name] for field in fields(shape) if given[field.name] != field.default}
    said = {"shape": type(shape).__name__, **{name: described(value) for name, value in changed.items()}}
    return said if task.shape.keeps_answers else said | {"metrics": sorted(task.metrics)}


def described(value: Any) -> Any:
    """A value as JSON-ready data, the same in every process: objects as class and fields, functions as their name."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): described(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [described(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if isinstance(value, functools.partial):
        return ["partial", *(described(part) for part in (value.func, value.args, value.keywords))]
    if inspect.isfunction(value):
        held = [cell.cell_contents for cell in value.__closure__ or ()]
        return [f"{value.__module__}.{value.__qualname__}", *map(described, (value.__defaults__, held))]
    if inspect.isclass(value) or not hasattr(value, "__dict__"):
        return f"{value.__module__}.{value.__qualname__}" if inspect.isclass(value) else repr(value)
    names = [field.name for field in fields(value)] if is_dataclass(value) else vars(value)
    parts = {name: described(getattr(value, name)) for name in names}
    return [f"{type(value).__module__}.{type(value).__qualname__}", parts]


def expected(name: str) -> dict[str, Part]:
    """The fingerprints of a task's splits: its pins, or, for a task without a pin, measured and cached."""
    return pinned().get(name) or found(task_named(name))


def found(task: Task) -> dict[str, Part]:
    """The fingerprints of a task's splits as its data are now, computed once and cached."""
    if task.origin is None:
        return measured(task)

    def measure(file: BinaryIO) -> None:
        cached.put_json(file, {split: asdict(part) for split, part in measured(task).items()})

    return {split: Part(**part) for split, part in cached.kept(_kept(task), measure, cached.get_json).items()}


def at_hand(name: str) -> bool:
    """Whether the fingerprint of a task is available: it is pinned, was measured before, or its files exist."""
    task = task_named(name)
    if name in pinned() or task.origin is None or cached.is_sound(_kept(task)):
        return True
    return all(task.origin.find(split) for split in SPLITS)


def _kept(task: Task) -> Path:
    """Where the fingerprint of a task without a pin is cached."""
    return cache() / "fingerprints" / f"task-{identity(_state(task))[:24]}.json"


def _state(task: Task) -> list:
    """What shows, without reading it, that a data set has changed: its row, code that reads it, `version` of files."""
    origin = task.origin
    files = [path for split in SPLITS for path in origin.find(split)] if origin else []
    code = _code(task.rows.__module__)
    versions = [[str(path), *version(path)] for path in files]
    return [task.name, described(task.rows), described(task.shape), code, versions]


@functools.cache
def _code(module: str) -> str:
    """A digest of the code that reads tasks: this package with the modules of data sets, and the reader's own."""
    file, digest = getattr(sys.modules.get(module), "__file__", None), hashlib.sha256()
    own = [Path(file)] if file else []
    for path in [*sorted(Path(__file__).parent.rglob("*.py")), *own]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def fingerprint(name: str) -> str:
    """The fingerprint of a task; the data of pinned tasks are not opened.

    Raises:
        ConfigError: For an unknown task.
    """
    return identified(task_named(name), expected(name), _entries().get(name, {}))


def identified(task: Task, parts: Mapping[str, Part], entry: Mapping[str, Any]) -> str:
    """The fingerprint of a task from those of its splits, and from its definition if its pin has another or none."""
    row, examples = definition(task), {split: part.sha256 for split, part in parts.items()}
    return identity(examples if row == entry.get(_ROW) else {**examples, _ROW: row})


def checked(name: str, split: Split) -> Examples:
    """The examples of a split, checked against their pin.

    Raises:
        DataMismatch: When they differ from the pin, naming both.
        ConfigError: When they are missing.
    """
    examples = task_named(name).examples(split)
    actual, before = Part.of(examples), expected(name)[split]
    if actual == before:
        return examples
    is_pinned = name in pinned()
    advice = (
        "Scores on another version of the data set do not compare with those recorded. To pin these examples: "
        f"python -m lightning_modules.tasks.pin {name}"
        if is_pinned
        else "They changed after the run was planned: plan it again"
    )
    raise DataMismatch(
        [
            f"the examples of '{name}' ({split}) are not the {'pinned' if is_pinned else 'planned'} ones: sha256 "
            f"{actual.sha256[:16]}, {actual.examples:,} examples, {actual.words:,} words instead of "
            f"{before.sha256[:16]}, {before.examples:,} examples, {before.words:,} words. {advice}"
        ]
    )
