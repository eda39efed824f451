"""Committed fingerprints of data, so that results everywhere are on the same text; ``pin.py`` writes them."""

import json
from pathlib import Path
from typing import Any

from lightning_modules.config import ConfigError
from lightning_modules.files import write_atomically


class DataMismatch(ConfigError):
    """The data differ from the pinned ones."""


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The entries of a file of pins, by name."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def write(path: Path, entries: dict[str, dict[str, Any]]) -> None:
    """Replaces the entries of a file of pins."""
    content = json.dumps(dict(sorted(entries.items())), indent=2) + "\n"
    write_atomically(path, lambda file: file.write(content.encode()))


def compare(what: str, actual: Any, expected: Any, advice: str, state: str = "pinned") -> None:
    """Compares the fingerprint of data, a dataclass of a digest and sizes, with the expected one.

    Raises:
        DataMismatch: Naming both.
    """
    if actual != expected:
        old, new = (f"sha256 {part.sha256[:16]}, {_sizes(part)}" for part in (expected, actual))
        raise DataMismatch([f"{what} are not the {state} ones: {new} instead of {old}. {advice}"])


def _sizes(part: Any) -> str:
    return ", ".join(f"{size:,} {unit}" for unit, size in vars(part).items() if unit != "sha256")
