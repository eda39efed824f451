"""How variants are compared: grids, plans, runs, records, statistics, tables.

>>> import ablations
>>> study = ablations.open("masking_ratio", scale="laptop")
>>> study.grid.question
'How much of a text should a masked language model hide?'
>>> study.run(); study.table()  # doctest: +SKIP
"""

from typing import Any

from lightning_modules.speed import environment

environment()  # OpenMP and tokenizers read it when torch is first imported, which is after this line


def open(grid: str, scale: str, **options: Any) -> "Any":
    """A `study.Study`: the object a notebook holds. See there for the options."""
    from ablations.study import Study  # imports torch and pandas, which `ablations --help` does without

    return Study(grid, scale, **options)
