"""Bars: what methods without a network reach on a held-out text, kept with the records.

``bars/<id of the held-out text>.json`` of the results folder holds their scores and how they were computed. Records
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
    """The scores of methods without a network on one text."""

    metric: str = required("The metric that they are scores of.")
    scores: dict[str, float] = required("Name of a method, as tables show it -> its score, in the metric's unit.")
    recipe: dict[str, Any] = knob({}, "How the scores were computed: script, text, parameters.")


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
