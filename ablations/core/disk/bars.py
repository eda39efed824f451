"""Bars: what methods without a network reach on a held-out text, kept with the records.

``bars/<id of the held-out text>.json`` of the results folder holds the best of them and how it was computed. Records
name the text by that id (``text`` of `Records.sums`).
"""

import json
from pathlib import Path
from typing import Any

from lightning_modules.config import ConfigError, Settings, knob, required
from lightning_modules.files import read, write_atomically

FOLDER = "bars"
_MOST = 1 << 20  # bytes


class Bar(Settings):
    """The best score of a method without a network."""

    metric: str = required("The metric that it is a score of.")
    value: float = required("The score, in the metric's unit.")
    method: str = required("The name of the method, for a sentence.", min_length=1)
    recipe: dict[str, Any] = knob({}, "How the score was computed: script, text, parameters.")


def are_kept(results: Path) -> bool:
    """Whether a results folder has any."""
    return (results / FOLDER).is_dir()


def bar(results: Path, text: str) -> Bar | None:
    """The bar of a held-out text; None if none is kept, or its file is no bar."""
    try:
        return Bar.read(json.loads(read(results / FOLDER / f"{text}.json", _MOST, within=results)))
    except (OSError, ValueError, RecursionError, TypeError, ConfigError):
        return None


def write(results: Path, text: str, found: Bar) -> Path:
    """Keeps the bar of a held-out text.

    Returns:
        Its file.
    """
    path = results / FOLDER / f"{text}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = json.dumps(found.to_dict(), indent=1) + "\n"
    write_atomically(path, lambda file: file.write(content.encode()))
    return path
