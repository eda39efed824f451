"""How variants are compared: grids, plans, runs, records, statistics, tables.

>>> import ablations
>>> study = ablations.open("masking_ratio", scale="laptop")
>>> study.grid.question
'How much of a text should a masked language model hide?'
>>> study.run(); study.table()  # doctest: +SKIP
>>> runs = ablations.frame("masking_ratio", "embedding_size", scale="laptop")  # doctest: +SKIP
"""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_modules.speed import environment

if TYPE_CHECKING:
    import pandas as pd

    from ablations.study import Study

__version__ = "0.1.0"


class NoRunsWarning(UserWarning):
    """A grid has no finished run, so it has no rows."""


environment()  # OpenMP and tokenizers read it when torch is first imported, which is after this line


def open(
    grid: str | Path,
    scale: str,
    *,
    axes: Mapping[str, Sequence[Any] | str | None] | str | None = None,
    set: Mapping[str, Any] | str | None = None,
    seeds: int | None = None,
    filters: Mapping[str, Any] | str | None = None,
    results_dir: str | Path | None = None,
) -> "Study":
    """A grid at a scale: the object a notebook holds. `Study` says what the arguments mean.

    Raises:
        ConfigError: With all faults of the grid or the request.
    """
    from ablations.study import Study  # imports torch and pandas, which `ablations --help` does without

    return Study(grid, scale, axes=axes, set=set, seeds=seeds, filters=filters, results_dir=results_dir)


def frame(*grids: str | Path, scale: str, results_dir: str | Path | None = None) -> "pd.DataFrame":
    """Every measurement of several grids at a scale, one a row; ``docs/records.md`` has the columns.

    A run that several grids share has its rows once for each of them. It warns of grids without a finished run.

    Args:
        *grids: Names from ``ablations list``, or paths of YAML files.
        scale: The scale of all.
        results_dir: As in `open`.

    Raises:
        ConfigError: As `study.Study`, and without a grid.
    """
    import pandas as pd

    from lightning_modules.config import ConfigError

    if not grids:
        raise ConfigError(["name at least one grid, for example ablations.frame('masking_ratio', scale='laptop')"])
    frames = {grid: open(grid, scale, results_dir=results_dir).frame() for grid in grids}
    for grid in (grid for grid, found in frames.items() if found.empty):
        text = f"{grid} has no finished run at scale '{scale}': ablations run {grid} --scale {scale}"
        warnings.warn(text, NoRunsWarning, stacklevel=2)
    return pd.concat([frames[grid] for grid in grids], ignore_index=True)


def check_parameters() -> None:
    """Stops a notebook whose parameters by ``papermill -p`` it does not declare; first line of every notebook.

    Raises:
        ConfigError: With each such parameter and the nearest declared one.
    """
    from ablations.core import notebooks

    notebooks.check_parameters()
