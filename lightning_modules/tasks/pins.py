"""Pinned fingerprints of tasks, so that scores everywhere are on the same examples; compare ``data.pins``.

``pins.json`` holds, for each task of ``TASKS``, the SHA-256 and the size of its splits as ``Task.examples``
returns them, and the definition of its row. Planning and tables read the pins and open no data.

A fingerprint is of the examples and of what a row says besides them (`definition`). Rows that came with their pin are
identified by the examples alone while their definition is the one in ``pins.json``.
"""

import functools
import hashlib
import inspect
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO, cast

from lightning_modules import cached
from lightning_modules.config import ConfigError, canonical, identity
from lightning_modules.data.pins import DataMismatch
from lightning_modules.files import version, write_atomically
from lightning_modules.places import cache, note_elsewhere
from lightning_modules.tasks import readers, shapes
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
    """What a row says that acts on numbers and is in no example: its shape, the languages of its texts, and metrics
    that records cannot give.

    Fields of the shape at their default are left out, so that a new one changes no fingerprint. The settings of a row
    are settings of its fine-tunings.

    Raises:
        ConfigError: For a shape of one's own whose settings cannot be distinguished.
    """
    shape, kind = cast(Any, task.shape), type(task.shape)
    if "__dataclass_params__" not in vars(kind):
        text = f"the shape of the task '{task.name}' is a {kind.__name__}, which must be a frozen dataclass of its own"
        raise ConfigError([f"{text}: its fields identify runs. Put @dataclass(frozen=True) above the class"])
    is_ours = kind.__module__.startswith(f"{shapes.__name__}.")
    said: dict[str, Any] = {"shape": kind.__name__ if is_ours else f"{kind.__module__}.{kind.__qualname__}"}
    for field in fields(shape):
        try:
            value = described(getattr(shape, field.name))
            if value != _default(field):
                said[field.name] = value
        except Opaque as reason:
            text = f"the field {field.name} of the shape of the task '{task.name}' holds {reason}"
            raise ConfigError([f"{text}: it identifies runs, so it must be of text, numbers and tuples"]) from None
    said |= {"languages": list(task.languages)} if task.languages else {}
    return said if task.shape.keeps_answers else said | {"metrics": sorted(task.metrics)}


def _default(field: Field[Any]) -> Any:
    """The default of a field as `described`; MISSING without one."""
    if field.default is not MISSING:
        return described(field.default)
    return MISSING if field.default_factory is MISSING else described(field.default_factory())


class Opaque(Exception):
    """A value that cannot be described in full, worded to follow what holds it."""


def described(value: Any) -> Any:
    """A value as JSON-ready data that says all of it, the same in every process: text, numbers, collections of them,
    and dataclasses.

    Raises:
        Opaque: For any other value, such as a function, an array or an object.
    """
    if value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    try:
        if isinstance(value, (list, tuple)):
            return [described(item) for item in value]
        if isinstance(value, (set, frozenset)):
            return {"set": sorted(canonical(described(item)) for item in value)}
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {key: described(item) for key, item in value.items()}
        if "__dataclass_params__" in vars(type(value)):
            parts = {field.name: described(getattr(value, field.name)) for field in fields(cast(Any, value))}
            return [f"{type(value).__module__}.{type(value).__qualname__}", parts]
    except RecursionError:
        pass
    raise Opaque(f"a {type(value).__name__}")


def expected(name: str) -> dict[str, Part]:
    """The fingerprints of a task's splits: its pins, or, for a task without a pin, measured and cached."""
    return pinned().get(name) or found(task_named(name))


def found(task: Task) -> dict[str, Part]:
    """The fingerprints of a task's splits as its data are now, computed once while nothing they follow from changes.

    Files in the cache are of rows whose reader and shape are this package's. A reader of one's own may read anything:
    its examples are read once a process, and again where its files change or its examples turn out to be others.
    """
    kept = _kept(task) if task.origin else None
    if not kept:
        note_elsewhere(task.name)
    if task.origin is None:
        return measured(task)
    if kept:

        def measure(file: BinaryIO) -> None:
            cached.put_json(file, {split: asdict(part) for split, part in measured(task).items()})

        return {split: Part(**part) for split, part in cached.kept(kept, measure, cached.get_json).items()}
    known = _read.get(id(task))
    if known is None or known[1] != _versions(task):
        known = _read[id(task)] = (task, _versions(task), measured(task))
    return known[2]


# id -> row, which keeps its id from being that of another; the versions of its files; the fingerprints
_read: dict[int, tuple[Task, list[list[str | int]], dict[str, Part]]] = {}


def _forget(task: Task) -> None:
    """Forgets what `found` keeps of a task."""
    _read.pop(id(task), None)
    if kept := _kept(task):
        cached.remove(kept)


def at_hand(name: str) -> bool:
    """Whether the fingerprint of a task is available: it is pinned, was measured before, or its files exist."""
    task = task_named(name)
    if name in pinned() or task.origin is None or ((kept := _kept(task)) and cached.is_sound(kept)):
        return True
    return all(task.origin.find(split) for split in SPLITS)


def _kept(task: Task) -> Path | None:
    """Where the fingerprint of a task is cached; None where only reading shows whether its examples have changed."""
    reader: Any = task.rows
    is_known = definition(task) == _entries().get(task.name, {}).get(_ROW)
    ours = zip((type(reader), type(task.shape)), (readers, shapes), strict=True)
    if not is_known and not all(kind.__module__.startswith(f"{package.__name__}.") for kind, package in ours):
        return None
    try:
        read = f"{reader.__module__}.{reader.__qualname__}" if inspect.isfunction(reader) else described(reader)
    except Opaque:
        return None
    state = [task.name, read, definition(task), _code(), _versions(task)]
    return cache() / "fingerprints" / f"task-{identity(state)[:24]}.json"


def _versions(task: Task) -> list[list[str | int]]:
    """`version` of the files of a task; of a folder those of all files below it."""
    places = [path for split in SPLITS for path in task.origin.find(split)] if task.origin else []
    below = [sorted(path.rglob("*")) if path.is_dir() else [path] for path in places]
    return [[str(path), *version(path)] for files in below for path in files]


@functools.cache
def _code() -> str:
    """A digest of the code that reads tasks: this package, with the modules of data sets."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
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
    if not is_pinned:
        _forget(task_named(name))
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
