"""How variants are compared: grids, plans, runs, records, statistics, tables.

>>> import ablations
>>> study = ablations.open("masking_ratio", scale="laptop")  # doctest: +SKIP
>>> study.run(); study.table()  # doctest: +SKIP
>>> runs = ablations.frame("masking_ratio", "embedding_size", scale="laptop")  # doctest: +SKIP
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_modules.speed import environment

if TYPE_CHECKING:
    import pandas as pd

__version__ = "0.1.0"

environment()  # OpenMP and tokenizers read it when torch is first imported, which is after this line


def open(grid: str | Path, scale: str, **options: Any) -> "Any":
    """A `study.Study`: the object a notebook holds. See there for the options."""
    from ablations.study import Study  # imports torch and pandas, which `ablations --help` does without

    return Study(grid, scale, **options)


def frame(*grids: str | Path, scale: str, **options: Any) -> "pd.DataFrame":
    """Every measurement of several grids at a scale, one a row; ``docs/records.md`` has the columns.

    A run that several grids share has its rows once for each of them.

    Args:
        *grids: Names from ``ablations list``, or paths of YAML files.
        scale: The scale of all.
        **options: Options of `study.Study`, such as ``results_dir``.

    Raises:
        ConfigError: As `study.Study`, and without a grid.
    """
    import pandas as pd

    from lightning_modules.config import ConfigError

    if not grids:
        raise ConfigError(["name at least one grid, for example ablations.frame('masking_ratio', scale='laptop')"])
    return pd.concat([open(grid, scale, **options).frame() for grid in grids], ignore_index=True)
