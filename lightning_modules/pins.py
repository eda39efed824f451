"""Committed fingerprints of data, so that results everywhere are on the same text; ``pin.py`` writes them.

Each kind of data has a file ``pins.json``: name -> part, such as train -> SHA-256 and sizes.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning_modules.config import ConfigError
from lightning_modules.files import write_atomically

ROW = "row"  # a definition, in the entry of a task


class DataMismatch(ConfigError):
    """The data differ from the pinned ones."""


@dataclass(frozen=True)
class Part:
    """The digest of a part of some data, and how many it has of what it consists of."""

    sha256: str
    documents: int = 0
    sentences: int = 0
    examples: int = 0
    texts: int = 0
    words: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The digest and the sizes that are not 0."""
        return {name: value for name, value in vars(self).items() if value}

    def __str__(self) -> str:
        sizes = (f"{size:,} {unit}" for unit, size in self.to_dict().items() if unit != "sha256")
        return f"sha256 {self.sha256[:16]}, {', '.join(sizes)}"


Parts = dict[str, Part]


def stored(parts: Parts) -> dict[str, dict[str, Any]]:
    """Fingerprints of parts, ready for JSON."""
    return {name: part.to_dict() for name, part in parts.items()}


def restored(entry: dict[str, dict[str, Any]]) -> Parts:
    """Fingerprints of parts, from JSON."""
    return {name: Part(**part) for name, part in entry.items() if name != ROW}


@dataclass(frozen=True)
class Pins:
    """The pins of a kind of data.

    Attributes:
        kind: What ``python -m lightning_modules.pin`` calls it.
        path: Their file.
        named: Name -> data.
        measure: Data -> its fingerprints.
    """

    kind: str
    path: Path
    named: Callable[[str], Any]
    measure: Callable[[Any], Parts]

    def entries(self) -> dict[str, dict[str, Any]]:
        """The content of the file."""
        return json.loads(self.path.read_text(encoding="utf-8")) if self.path.is_file() else {}

    def pinned(self) -> dict[str, Parts]:
        """The committed pins: name -> part -> fingerprint."""
        return {name: parts for name, entry in self.entries().items() if (parts := restored(entry))}

    def pin(self, names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
        """Reads data and writes their pins; returns their entries.

        Raises:
            ConfigError: For an unknown name, or where data are missing.
        """
        known = self.entries()
        found = {name: known.get(name, {}) | stored(self.measure(self.named(name))) for name in names}
        content = json.dumps(dict(sorted((known | found).items())), indent=2) + "\n"
        write_atomically(self.path, lambda file: file.write(content.encode()))
        return found

    def how(self, name: str) -> str:
        """The command that pins some data."""
        return f"python -m lightning_modules.pin {self.kind} {name}"


def compare(what: str, actual: Part, expected: Part, advice: str, state: str = "pinned") -> None:
    """Compares the fingerprint of data with the expected one.

    Raises:
        DataMismatch: Naming both.
    """
    if actual != expected:
        raise DataMismatch([f"{what} are not the {state} ones: {actual} instead of {expected}. {advice}"])
