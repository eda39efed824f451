"""Two masked words at once: what a masked model says of each alone, against what it says of both together.

A masked model predicts hidden words independently of each other (Yang et al. 2019, section 2.1): "[MASK] [MASK] is a
city" gives New to the first, and York and Angeles to the second, so that New Angeles is as probable as New York. Filled
one after the other, the second word is predicted with the first in its place: p(a, b) = p(a) p(b | a), or p(b) p(a | b)
from the right. For the joint distribution of a text both would be equal; those of a masked model need not be.
"""

from typing import NamedTuple

import numpy as np
import torch

from lightning_modules.analysis.probes import MASK, masked
from lightning_modules.batch import Example, Target, Tokens
from lightning_modules.config import ConfigError
from lightning_modules.data.text.encode import Encoder
from lightning_modules.objectives.objective import own_heads
from lightning_modules.training.module import Pretrain

_BATCH = 64  # rows of a forward pass
_MOST = 2048  # words that are tried in one place


class Pair(NamedTuple):
    """Two pieces for two masks, and their probability.

    Attributes:
        first: The piece on the left.
        second: The piece on the right.
        independent: The product of what is predicted for each while both are hidden.
        left_first: The left one while both are hidden, times the right one after it is filled in.
        right_first: The right one while both are hidden, times the left one after it is filled in.
    """

    first: str
    second: str
    independent: float
    left_first: float
    right_first: float


def fill_jointly(module: Pretrain, encoder: Encoder, text: str, count: int = 5) -> list[Pair]:
    """The most probable pairs of pieces for the two masks of a text, in each of the three ways.

    Args:
        module: A masked model in evaluation mode.
        count: Pairs of each way; the list holds all of them, by the mean of both orders. Of more than 2,048 pieces only
            the most probable ones are tried as the word that is filled in first.

    Raises:
        ConfigError: For a text without exactly two masks or too long, and for a model without the objective 'mlm'.
    """
    if module.objectives.mlm is None:
        raise ConfigError(["this model has no objective 'mlm' and cannot fill masks. Choose one trained with it."])
    asked = _TwoMasks(module, encoder, text)
    alone = [asked.predicted(side, [None])[0] for side in (0, 1)]
    likely = [np.argsort(-chances, kind="stable") for chances in alone]
    best = {(a, b) for a in likely[0][:count] for b in likely[1][:count]}
    best = set(sorted(best, key=lambda pair: (-alone[0][pair[0]] * alone[1][pair[1]], pair))[:count])
    for side in (0, 1):
        best |= {pair if side == 0 else pair[::-1] for pair in _best(asked, side, alone[side], likely[side], count)}
    after = [asked.after(side, {pair[side] for pair in best}) for side in (0, 1)]
    pieces = encoder.vocabulary.pieces
    pairs = [
        Pair(
            pieces[a],
            pieces[b],
            float(alone[0][a] * alone[1][b]),
            float(alone[0][a] * after[0][a][b]),
            float(alone[1][b] * after[1][b][a]),
        )
        for a, b in best
    ]
    return sorted(pairs, key=lambda pair: (-pair.left_first - pair.right_first, pair))


def _best(asked: "_TwoMasks", side: int, alone: np.ndarray, likely: np.ndarray, count: int) -> list[tuple[int, int]]:
    """The most probable pairs, one word of which is filled in first: that word, and the other.

    No pair is more probable than its first word, so that the search ends where the words left are less probable than
    the pairs found.
    """
    found: list[tuple[float, int, int]] = []
    for begin in range(0, min(len(likely), _MOST), _BATCH):
        if len(found) == count and alone[likely[begin]] <= found[-1][0]:
            break
        tried = [int(word) for word in likely[begin : begin + _BATCH]]
        for word, chances in asked.after(side, set(tried)).items():
            others = np.argsort(-chances, kind="stable")[:count]
            found += [(float(alone[word] * chances[other]), word, int(other)) for other in others]
        found = sorted(found, key=lambda pair: (-pair[0], pair[1:]))[:count]
    return [(word, other) for _, word, other in found]


class _TwoMasks:
    """A text with two masks, and what a model predicts for one of them with the other hidden or filled in."""

    def __init__(self, module: Pretrain, encoder: Encoder, text: str) -> None:
        self.module, vocabulary = module, encoder.vocabulary
        self.row = [vocabulary.cls, *masked(text, encoder), vocabulary.sep]
        self.places = [place for place, token in enumerate(self.row) if token == vocabulary.mask]
        if len(self.places) != 2:
            raise ConfigError([f"the text has {len(self.places)} times {MASK}: {text!r}. Write it exactly twice."])

    def after(self, side: int, words: set[int]) -> dict[int, np.ndarray]:
        """Word in one place -> probabilities of the words in the other ``[v]``."""
        ordered = sorted(words)
        return dict(zip(ordered, self.predicted(1 - side, list(ordered)), strict=True))

    @torch.no_grad()
    def predicted(self, side: int, others: list[int | None]) -> np.ndarray:
        """Probabilities of the words in one place ``[n v]``, with each of some words, or the mask, in the other."""
        here, there = self.places[side], self.places[1 - side]
        objective, parts = self.module.objectives.mlm, []
        assert objective is not None
        for begin in range(0, len(others), _BATCH):
            some = others[begin : begin + _BATCH]
            ids = torch.tensor(self.row).repeat(len(some), 1)
            for row, other in enumerate(some):
                if other is not None:
                    ids[row, there] = other
            special = torch.zeros_like(ids, dtype=torch.bool)
            special[:, [0, -1]] = True
            where = torch.arange(len(some)) * len(self.row) + here
            example = Example.of(Tokens(ids, special, torch.ones_like(special), torch.arange(len(some))))
            example.targets["mlm"] = Target(where, torch.zeros_like(where))
            try:
                encoded = self.module(example)
            except ValueError as error:  # the position table is too short
                raise ConfigError([f"the text is too long: {error}"]) from None
            logits = objective.logits(own_heads(self.module.heads, "mlm"), encoded, example)
            parts.append(torch.softmax(logits.double(), 1))
        return torch.cat(parts).numpy()
