"""How variants are compared: grids, plans, runs, records, statistics, tables.

>>> import ablations
>>> study = ablations.open("masking_ratio", scale="laptop")
>>> study.grid.question
'How much of a text should a masked language model hide?'
>>> study.run(); study.table()  # doctest: +SKIP
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_modules.speed import environment

if TYPE_CHECKING:
    from ablations.study import Study

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
