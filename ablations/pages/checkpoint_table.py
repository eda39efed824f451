"""Public checkpoints that were asked as the models of a grid are: shown on its page, judged by nothing."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ablations.core import store
from ablations.core.formatting import Entry, Sheet, markdown, quantity
from ablations.schema.grid import Grid
from lightning_modules.config import ConfigError
from lightning_modules.zero_shot.table import ZERO_SHOT

NAME = "checkpoints.json"


def keep(folder: Path, found: Mapping[str, Any]) -> Path:
    """Adds a checkpoint to those of a page, in place of one of its name; returns the file."""
    path = folder / NAME
    others = [known for known in read(folder) if known["name"] != found["name"]]
    rows = sorted([*others, dict(found)], key=lambda row: (row["parameters"], row["name"]))
    store.write(path, (json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())
    return path


def read(folder: Path) -> list[dict[str, Any]]:
    """The checkpoints of a page, small ones first.

    Raises:
        ConfigError: If the file is not as `keep` writes it.
    """
    path = folder / NAME
    if not path.is_file():
        return []
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        whole = [row["parameters"] + row["positions"] > 0 and row["name"] + "" and {**row["metrics"]} for row in rows]
        if not isinstance(rows, list) or not all(isinstance(metrics, dict) for metrics in whole):
            raise ValueError("another form")
    except (OSError, ValueError, TypeError, LookupError) as error:
        text = f"{path} is not as `ablations measure` writes it ({type(error).__name__}); remove it and measure again"
        raise ConfigError([text]) from None
    return rows


def part(grid: Grid, scale: str, folder: Path) -> list[str]:
    """The paragraphs of a page about public checkpoints; none for a grid that asks nothing."""
    asked = [metric for metric in grid.metrics if metric.name.partition(".")[0] in ZERO_SHOT]
    if not asked:
        return []
    rows = read(folder)
    if not rows:
        command = f"ablations measure FOLDER --beside {grid.name} --scale {scale}"
        return [
            "## Public checkpoints",
            f"None was at hand. A folder of GPT-2 is asked in the same way by `{command}`.",
        ]
    known = [metric for metric in asked if any(metric.name in row["metrics"] for row in rows)]
    note = (
        "Asked in the same way as the models above, each with its own tokenizer: cased pieces and longer windows make "
        "its numbers another quantity in part. No verdict reads them."
    )
    sheet = Sheet(
        ["checkpoint", "parameters", "positions", *(metric.label or metric.name for metric in known)],
        [_row(row, [metric.name for metric in known]) for row in rows],
        left=1,
        notes=[note],
    )
    return ["## Public checkpoints", markdown(sheet).rstrip("\n"), f"As a file: [json]({NAME})."]


def _row(row: Mapping[str, Any], names: Sequence[str]) -> list[Entry]:
    scores = [f"{row['metrics'][name]:.3f}" if name in row["metrics"] else "" for name in names]
    return [row["name"], quantity(row["parameters"]), row["positions"], *scores]
