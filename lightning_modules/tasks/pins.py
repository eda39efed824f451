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
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, cast

from lightning_modules import cached, pins
from lightning_modules.config import ConfigError, canonical, identity
from lightning_modules.files import version
from lightning_modules.pins import ROW, Part, Parts, restored, stored
from lightning_modules.places import cache, note_elsewhere
from lightning_modules.tasks import readers, shapes
from lightning_modules.tasks.shapes.shape import Examples
from lightning_modules.tasks.table import task_named
from lightning_modules.tasks.task import SPLITS, Split, Task


def part_of(examples: Examples) -> Part:
    """The fingerprint of some examples: texts, labels and their order."""
    digest = hashlib.sha256(json.dumps(examples.items_for_pin()).encode()).hexdigest()
    return Part(digest, examples=len(examples), words=examples.words())


def measured(task: Task) -> Parts:
    """Reads a task and returns the fingerprints of its two splits."""
    return {split: part_of(task.examples(split)) for split in SPLITS}


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


# id -> row, which keeps its id from being that of another; the versions of its files; the fingerprints
_read: dict[int, tuple[Task, list[list[str | int]], dict[str, Part]]] = {}
# split -> row, versions of its files, fingerprint, examples
_latest: dict[Split, tuple[Task, list[list[str | int]] | None, Part, Examples]] = {}


class Pins(pins.Pins):
    """The pins of a table of tasks."""

    def expected(self, name: str) -> Parts:
        """The fingerprints of a task's splits: its pins, or, for a task without a pin, measured and cached."""
        return self.pinned().get(name) or self.found(self.named(name))

    def found(self, task: Task) -> Parts:
        """The fingerprints of a task's splits as its data are now, kept while what they follow from is the same.

        Files in the cache are of rows whose reader and shape are this package's. A reader of one's own may read
        anything: its examples are read once a process, and again where its files or its examples change.
        """
        kept = self._kept(task) if task.origin else None
        if not kept:
            note_elsewhere(task.name)
        if task.origin is None:
            return measured(task)
        if kept:
            return restored(cached.kept_json(kept, lambda: stored(measured(task))))
        known = _read.get(id(task))
        if known is None or known[1] != _versions(task):
            known = _read[id(task)] = (task, _versions(task), measured(task))
        return known[2]

    def _row(self, name: str) -> Any:
        """The definition that the pin of a task has."""
        return self.entries().get(name, {}).get(ROW)

    def _forget(self, task: Task) -> None:
        """Forgets what `found` keeps of a task."""
        _read.pop(id(task), None)
        if kept := self._kept(task):
            cached.remove(kept)

    def at_hand(self, name: str) -> bool:
        """Whether the fingerprint of a task is available: it is pinned, was measured before, or its files exist."""
        task = self.named(name)
        if name in self.pinned() or task.origin is None or ((kept := self._kept(task)) and cached.is_sound(kept)):
            return True
        return all(task.origin.find(split) for split in SPLITS)

    def _kept(self, task: Task) -> Path | None:
        """Where the fingerprint of a task is cached; None where only reading shows whether its examples changed."""
        reader: Any = task.rows
        is_known = definition(task) == self._row(task.name)
        ours = zip((type(reader), type(task.shape)), (readers, shapes), strict=True)
        if not is_known and not all(kind.__module__.startswith(f"{package.__name__}.") for kind, package in ours):
            return None
        try:
            read = f"{reader.__module__}.{reader.__qualname__}" if inspect.isfunction(reader) else described(reader)
        except Opaque:
            return None
        state = [task.name, read, definition(task), _code(), _versions(task)]
        return cache() / "fingerprints" / f"task-{identity(state)[:24]}.json"

    def fingerprint(self, name: str) -> str:
        """The fingerprint of a task; the data of pinned tasks are not opened.

        Raises:
            ConfigError: For an unknown task.
        """
        row = definition(self.named(name))
        examples = {split: part.sha256 for split, part in self.expected(name).items()}
        return identity(examples if row == self._row(name) else {**examples, ROW: row})

    def checked(self, name: str, split: Split) -> Examples:
        """The examples of a split, checked against their pin; of the latest task once, while its files stay the same.

        Raises:
            DataMismatch: When they differ from the pin, naming both.
            ConfigError: When they are missing.
        """
        task, before = self.named(name), self.expected(name)[split]
        state = _versions(task) if self._kept(task) else None
        if state is not None and (known := _latest.get(split)) and known[0] is task and known[1:3] == (state, before):
            return known[3]
        examples = task.examples(split)
        actual = part_of(examples)
        planned, advice = "planned", "They changed after the run was planned: plan it again"
        if name in self.pinned():
            planned, advice = "pinned", "Scores on another version of the data set do not compare with those recorded."
            advice += f" To pin these examples: {self.how(name)}"
        elif actual != before:
            self._forget(task)
        pins.compare(f"the examples of '{name}' ({split})", actual, before, advice, planned)
        _latest[split] = task, state, before, examples
        return examples


TASK_PINS = Pins("task", Path(__file__).with_name("pins.json"), task_named, measured)
expected, found, at_hand = TASK_PINS.expected, TASK_PINS.found, TASK_PINS.at_hand
fingerprint, checked = TASK_PINS.fingerprint, TASK_PINS.checked
