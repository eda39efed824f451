"""Two neighbouring hidden tokens together: what a model says of both at once, by its own objective.

A masked model predicts hidden tokens independently of each other, so that of both it says the product of what it says
of each. One of permuted prediction predicts them in a random order, the second given the first (Yang et al. 2019,
sections 2.1 and 2.6). In nats the second is less by as much as two neighbours tell of each other, given the rest.
"""

import numpy as np

from lightning_modules.batch import Tokens, Vocabulary
from lightning_modules.draws import Draws
from lightning_modules.objectives.choosing import Text, smallest
from lightning_modules.objectives.masked_lm import MaskedLM
from lightning_modules.objectives.masking import Masking


class TwoNeighbours(Masking):
    """Two neighbouring tokens of each row, drawn at random; a row without any has none."""

    def choose(self, tokens: Tokens, draws: Draws, vocabulary: Vocabulary) -> np.ndarray:
        """Both as one group."""
        candidates = Text(tokens, vocabulary).candidates
        column = np.arange(candidates.shape[1])
        pairs = candidates[:, :-1] & candidates[:, 1:]
        first = smallest(pairs, draws.uniform("choose", len(column) - 1), np.ones(len(pairs), dtype=np.int64))
        groups = np.full(candidates.shape, -1)
        groups[:, :-1] = np.where(first, column[:-1], -1)
        groups[:, 1:] = np.where(first, column[:-1], groups[:, 1:])
        return groups


def asked() -> MaskedLM:
    """Masked language modelling of two neighbours, both behind [MASK]."""
    return MaskedLM(masking=TwoNeighbours(mask=1.0, same=0.0, random=0.0))
