"""Where the files of scales lie, and the knobs of several."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ablations.core import strict_yaml
from ablations.schema.scale import ScaleFile
from lightning_modules.places import own

FOLDER = Path(__file__).parents[1] / "scales"


def available() -> dict[str, Path]:
    """Scale name -> file: the project's scales, then the user's own.

    Raises:
        ConfigError: If two files have the same name.
    """
    return strict_yaml.named("scales", [FOLDER, *own("scales")])


def merged(files: Sequence[ScaleFile], pinned: bool = True) -> dict[str, Any]:
    """The knobs that some files set and pin; earlier files win, and within all of them ``set`` over ``pins``."""
    pins = {path: value for file in reversed(files) for path, value in file.pins.items()} if pinned else {}
    return pins | {path: value for file in reversed(files) for path, value in file.set.items()}
