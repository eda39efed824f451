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


def frame(
    *grids: str | Path, scale: str | None = None, curves: bool = False, results_dir: str | Path | None = None
) -> "pd.DataFrame":
    """Every measurement of several grids, one a row; ``docs/records.md`` has the columns.

    A run that several grids share has its rows once for each of them. It warns of named grids without a finished run.

    Args:
        *grids: Names from ``ablations list``, or paths of YAML files; by default all that have a page.
        scale: The scale of all; by default each at which a grid has a page.
        curves: Measurements during pretrainings, with columns ``step`` and ``tokens``, in place of those at their end.
        results_dir: As in `open`.

    Raises:
        ConfigError: For an unknown grid, with the nearest name; as `study.Study`; and where nothing has a page.
    """
    import pandas as pd

    from ablations.planning import grids as known
    from ablations.planning import scales
    from lightning_modules.config import ConfigError
    from lightning_modules.places import results

    for grid in grids:
        known.locate(grid)

    def folder(grid: str | Path, size: str) -> Path:
        return results(results_dir) if results_dir or not grids else known.results_dir(str(grid), size)

    pages = [
        (grid, size)
        for grid in grids or known.available()
        for size in ([scale] if scale else scales.available())
        if (grids and scale) or (folder(grid, size) / Path(grid).stem / size).is_dir()
    ]
    if not pages:
        what = " or ".join(map(str, grids)) or "any grid"
        raise ConfigError(
            [f"{results(results_dir)} has no page of {what}. `ablations run GRID --scale SCALE` trains and publishes."]
        )
    frames = {page: open(*page, results_dir=results_dir).frame(curves=curves) for page in pages}
    for grid, size in (page for page, found in frames.items() if grids and found.empty):
        text = f"{grid} has no finished run at scale '{size}': ablations run {grid} --scale {size}"
        warnings.warn(text, NoRunsWarning, stacklevel=2)
    return pd.concat(list(frames.values()), ignore_index=True)


def check_parameters() -> None:
    """Stops a notebook whose parameters by ``papermill -p`` it does not declare; first line of every notebook.

    Raises:
        ConfigError: With each such parameter and the nearest declared one.
    """
    from ablations.core import notebooks

    notebooks.check_parameters()
