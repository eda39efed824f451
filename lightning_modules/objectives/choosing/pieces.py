"""Single pieces, as in BERT's first release and in RoBERTa."""

from typing import Literal

import numpy as np

from lightning_modules.config import knob
from lightning_modules.draws import Draws
from lightning_modules.objectives.choosing.text import Text
from lightning_modules.objectives.choosing.units import Units


class Pieces(Units):
    """Single pieces, at random: the k smallest of one uniform number a position."""

    kind: Literal["pieces"] = knob("pieces", "", neutral="pieces")

    def choose(self, text: Text, budget: np.ndarray, draws: Draws) -> np.ndarray:
        """Each hidden position, a group of its own; lower budgets choose subsets."""
        columns = text.candidates.shape[1]
        return np.where(smallest(text.candidates, draws.uniform("choose", columns), budget), np.arange(columns), -1)


def smallest(candidates: np.ndarray, uniform: np.ndarray, count: np.ndarray) -> np.ndarray:
    """The candidates with the smallest numbers, so many of each row ``[b t]``."""
    uniform = np.where(candidates, uniform, 2.0)  # 2 is never chosen
    # rank by sorting, then compare with the k-th value
    order = np.sort(uniform, axis=1)
    threshold = np.take_along_axis(order, np.maximum(count - 1, 0)[:, None], axis=1)
    return candidates & (uniform <= threshold) & (count > 0)[:, None]
