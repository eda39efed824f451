"""Two neighbouring hidden tokens together: what a model says of both at once, by its own objective.

A masked model predicts hidden tokens independently of each other, so that of both it says the product of what it says
of each. One of permuted prediction predicts them in a random order, the second given the first (Yang et al. 2019,
sections 2.1 and 2.6). In nats the second is less by as much as two neighbours reveal of each other, given the rest.

Both are of different words. Of two pieces of one word the first reveals most of the second to any model. This is no
question of phrases such as New York.
"""

from typing import Literal

import numpy as np

from lightning_modules.batch import Tokens, Vocabulary
from lightning_modules.draws import Draws
from lightning_modules.objectives.choosing import Text, smallest
from lightning_modules.objectives.masked_lm import MaskedLM
from lightning_modules.objectives.masking import Masking

Hidden = Literal["both", "left", "right"]


class TwoNeighbours(Masking):
    """Two neighbouring tokens of each row, drawn at random, of which both or one are hidden; a row may have none."""

    hidden: Hidden = "both"

    def choose(self, tokens: Tokens, draws: Draws, vocabulary: Vocabulary) -> np.ndarray:
        """Both as one group."""
        text = Text(tokens, vocabulary)
        candidates, begins = text.candidates, text.begins
        column = np.arange(candidates.shape[1])
        pairs = candidates[:, :-1] & candidates[:, 1:] & begins[:, 1:]
        left = smallest(pairs, draws.uniform("choose", len(column) - 1), np.ones(len(pairs), dtype=np.int64))
        groups = np.full(candidates.shape, -1)
        if self.hidden != "right":
            groups[:, :-1] = np.where(left, column[:-1], -1)
        if self.hidden != "left":
            groups[:, 1:] = np.where(left, column[:-1], groups[:, 1:])
        return groups


def asked(hidden: Hidden) -> MaskedLM:
    """Masked language modelling of two neighbours, or of one of them with the other shown; hidden is behind [MASK]."""
    return MaskedLM(masking=TwoNeighbours(mask=1.0, same=0.0, random=0.0, hidden=hidden))
