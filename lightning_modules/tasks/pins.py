"""Pinned fingerprints of tasks, so that scores everywhere are on the same examples; compare ``data.pins``.

``pins.json`` holds, for each task of ``TASKS``, the SHA-256 and the size of its splits as ``Task.examples``
returns them. Planning and tables read the pins and open no data.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from lightning_modules import cached
from lightning_modules.config import identity
from lightning_modules.data.pins import DataMismatch
from lightning_modules.files import write_atomically
from lightning_modules.places import cache
from lightning_modules.tasks.shapes.shape import Examples
from lightning_modules.tasks.table import task_named
from lightning_modules.tasks.task import SPLITS, Split, Task

_PINS = Path(__file__).with_name("pins.json")


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


def measured(name: str) -> dict[str, Part]:
    """Reads a task and returns the fingerprints of its two splits."""
    return {split: Part.of(task_named(name).examples(split)) for split in SPLITS}


def pinned() -> dict[str, dict[str, Part]]:
    """The committed pins: task -> split -> fingerprint."""
    stored = json.loads(_PINS.read_text(encoding="utf-8")) if _PINS.is_file() else {}
    return {name: {split: Part(**part) for split, part in parts.items()} for name, parts in stored.items()}


def pin(names: Iterable[str]) -> None:
    """Measures tasks and writes their pins into ``pins.json``."""
    pins = pinned() | {name: measured(name) for name in names}
    content = {n: {split: asdict(part) for split, part in pins[n].items()} for n in sorted(pins)}
    write_atomically(_PINS, lambda file: file.write(json.dumps(content, indent=2).encode() + b"\n"))


def expected(name: str) -> dict[str, Part]:
    """The fingerprints of a task's splits: its pins, or, for a task without a pin, measured once and cached."""
    task = task_named(name)
    pins = pinned()
    if name in pins:
        return pins[name]
    if task.origin is None:
        return measured(name)

    def measure(file: BinaryIO) -> None:
        cached.put_json(file, {split: asdict(part) for split, part in measured(name).items()})

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
    """What shows, without reading it, that a data set has changed: file sizes and times, its name on the hub."""
    origin = task.origin
    files = [path for split in SPLITS for path in origin.find(split)] if origin else []
    stats = [(path, path.stat()) for path in files]
    return [
        task.name,
        str(origin and origin.hub),
        [[str(path), stat.st_size, stat.st_mtime_ns] for path, stat in stats],
    ]


def fingerprint(name: str) -> str:
    """The fingerprint of a task's examples; pinned tasks are not opened.

    Raises:
        ConfigError: For an unknown task.
    """
    return identity({split: part.sha256 for split, part in expected(name).items()})


def checked(name: str, split: Split) -> Examples:
    """The examples of a split, checked against their pin.

    Raises:
        DataMismatch: When they differ from the pin, naming both.
        ConfigError: When they are missing.
    """
    examples = task_named(name).examples(split)
    actual, pinned_part = Part.of(examples), expected(name)[split]
    if actual != pinned_part:
        raise DataMismatch(
            [
                f"the examples of '{name}' ({split}) are not the pinned ones: sha256 {actual.sha256[:16]}, "
                f"{actual.examples:,} examples, {actual.words:,} words instead of {pinned_part.sha256[:16]}, "
                f"{pinned_part.examples:,} examples, {pinned_part.words:,} words. Scores on another version of the "
                "data set do not compare with those recorded. To pin these examples: "
                f"python -m lightning_modules.tasks.pin {name}"
            ]
        )
    return examples
