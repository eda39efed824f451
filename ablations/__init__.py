"""How variants are compared: grids, plans, runs, records, statistics, tables.

>>> import ablations
>>> study = ablations.open("masking_ratio", scale="laptop")  # doctest: +SKIP
>>> study.run(); study.table()  # doctest: +SKIP
"""

from typing import Any

from lightning_modules.speed import environment

__version__ = "0.1.0"

environment()  # OpenMP and tokenizers read it when torch is first imported, which is after this line


def open(grid: str, scale: str, **options: Any) -> "Any":
    """A `study.Study`: the object a notebook holds. See there for the options."""
    from ablations.study import Study  # imports torch and pandas, which `ablations --help` does without

    return Study(grid, scale, **options)
