"""The pins of the data sets of probes; ``python -m lightning_modules.probing.pins`` rewrites them all."""

import functools
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lightning_modules.data.pins import DataMismatch
from lightning_modules.files import write_atomically
from lightning_modules.places import checkout
from lightning_modules.probing.sets import SETS, set_named
from lightning_modules.tasks.pins import Part, definition, found, identified, measured
from lightning_modules.tasks.shapes.texts import TextExamples
from lightning_modules.tasks.task import SPLITS, Split

_PINS = Path(__file__).with_name("pins.json")
_COMMAND = "python -m lightning_modules.probing.pins"


@functools.cache
def _entries() -> dict[str, dict[str, Any]]:
    return json.loads(_PINS.read_text(encoding="utf-8")) if _PINS.is_file() else {}


def expected(name: str) -> dict[str, Part]:
    """The fingerprints of a set's two parts: its pins, or, for a set without a pin, measured and cached."""
    entry = _entries().get(name)
    return {split: Part(**entry[split]) for split in SPLITS} if entry else found(set_named(name))


def fingerprint(name: str) -> str:
    """The fingerprint of a set; pinned sets are not opened."""
    return identified(set_named(name), expected(name), _entries().get(name, {}))


def checked(name: str, split: Split) -> TextExamples:
    """The examples of a part, checked against their pin.

    Raises:
        DataMismatch: When they differ from the pin, naming both.
        ConfigError: When they are missing.
    """
    examples = set_named(name).examples(split)
    actual, pinned = Part.of(examples), expected(name)[split]
    if actual != pinned:
        raise DataMismatch(
            [
                f"the examples of the probe '{name}' ({split}) are not the pinned ones: sha256 {actual.sha256[:16]}, "
                f"{actual.examples:,} examples instead of {pinned.sha256[:16]}, {pinned.examples:,} examples. Scores "
                f"on another version of the data set do not compare with those recorded. To pin these: {_COMMAND}"
            ]
        )
    return examples


def pin() -> None:
    """Reads every set and writes the pins of all."""
    content = {
        name: {"row": definition(task), **{split: asdict(part) for split, part in measured(task).items()}}
        for name, task in sorted(SETS.items())
    }
    write_atomically(_PINS, lambda file: file.write(json.dumps(content, indent=2).encode() + b"\n"))


if __name__ == "__main__":
    if checkout() is None:
        sys.exit("pins are part of the project's source. Run this in a checkout.")
    pin()
