"""Public checkpoints, evaluated as the models of a grid are: shown on its page, judged by nothing."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ablations.core import store
from ablations.core.formatting import Entry, Sheet, fixed, markdown, markdown_code, places, quantity
from ablations.schema.grid import Grid
from lightning_modules import files
from lightning_modules.config import ConfigError
from lightning_modules.zero_shot.table import ZERO_SHOT

NAME = "checkpoints.json"


def keep(folder: Path, found: Mapping[str, Any]) -> Path:
    """Adds a checkpoint to those of a page, in place of one of its name; returns the file."""
    store.check_inside(folder, folder.parents[1])
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
    try:
        rows = json.loads(files.read(path, within=folder.parents[1]))
        whole = [row["parameters"] + row["positions"] > 0 and row["name"] + "" and {**row["metrics"]} for row in rows]
        if not isinstance(rows, list) or not all(isinstance(metrics, dict) for metrics in whole):
            raise ValueError("another form")
    except FileNotFoundError:
        return []
    except files.Refused as error:
        raise ConfigError([str(error)]) from None
    except (OSError, ValueError, TypeError, LookupError) as error:
        text = f"{path} is not as `ablations evaluate` writes it ({type(error).__name__}). Remove it, evaluate again."
        raise ConfigError([text]) from None
    return rows


def part(grid: Grid, scale: str, folder: Path, tasks: Collection[str]) -> list[str]:
    """The paragraphs of a page about public checkpoints.

    Args:
        tasks: What the grid asks at this scale.

    Returns:
        Nothing for a grid whose measurements all need a run's own text. A model alone has no such text.
    """
    asked = [metric for metric in grid.metrics if _task(metric.name) in ZERO_SHOT]
    askable = [name for metric in asked if not ZERO_SHOT[name := _task(metric.name)].of_run]
    if not askable:
        return []
    rows = read(folder)
    if not rows:
        more = "" if {*askable} & {*tasks} else f" --task {askable[0]}"
        command = f"ablations evaluate FOLDER --beside {grid.name} --scale {scale}{more}"
        return [
            "## Public checkpoints",
            f"None was available. {markdown_code(command)} evaluates a folder of GPT-2 in the same way.",
        ]
    known = [metric for metric in asked if any(metric.name in row["metrics"] for row in rows)]
    note = (
        "Evaluated in the same way as the models above, each with its own tokenizer. Cased pieces and longer windows "
        "make its numbers another quantity in part. No verdict reads them."
    )
    sheet = Sheet(
        ["checkpoint", "parameters", "positions", *(metric.label or metric.name for metric in known)],
        [_row(row, [metric.name for metric in known]) for row in rows],
        left=1,
        notes=[note],
    )
    return ["## Public checkpoints", markdown(sheet).rstrip("\n"), f"As a file: [json]({NAME})."]


def _task(metric: str) -> str:
    return metric.partition(".")[0]


def _row(row: Mapping[str, Any], names: Sequence[str]) -> list[Entry]:
    scores = [
        fixed(row["metrics"][name], places(None, row["metrics"][name])) if name in row["metrics"] else ""
        for name in names
    ]
    return [row["name"], quantity(row["parameters"]), row["positions"], *scores]
