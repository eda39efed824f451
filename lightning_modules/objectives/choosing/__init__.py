"""Who is hidden: one module a scheme. What is hidden together is a group, which replacement and objectives see."""

from typing import Annotated

from lightning_modules.config import ByKind
from lightning_modules.objectives.choosing.ngrams import NGrams
from lightning_modules.objectives.choosing.pieces import Pieces, smallest
from lightning_modules.objectives.choosing.spans import Spans
from lightning_modules.objectives.choosing.spread_spans import SpreadSpans
from lightning_modules.objectives.choosing.tagged import Tagged
from lightning_modules.objectives.choosing.text import Text
from lightning_modules.objectives.choosing.units import Units
from lightning_modules.objectives.choosing.whole_words import Bionic, WholeWords

__all__ = ["AnyUnits", "Bionic", "NGrams", "Pieces", "Spans", "SpreadSpans", "Tagged", "Text", "Units",
           "WholeWords", "smallest"]  # fmt: skip

AnyUnits = Annotated[Pieces | WholeWords | NGrams | Spans | SpreadSpans | Tagged | Bionic, ByKind()]
