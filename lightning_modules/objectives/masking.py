"""Masking: which tokens are predicted, and what replaces them in the input.

Devlin et al. (2019), section 3.1 and appendix A.1; the mixtures of its Table 8; RoBERTa's dynamic masking
(Liu et al. 2019, section 4.1); the rates of Wettig et al. (2023).
"""

from dataclasses import replace
from typing import Literal, Self

import numpy as np
import torch
from pydantic import model_validator

from lightning_modules.batch import Tokens, Vocabulary
from lightning_modules.config import Settings, knob
from lightning_modules.draws import Draws


class Masking(Settings):
    """The positions to predict, and the corruption of the input at them.

    Worked example at ``rate=0.25`` with eight positions (two special, so six candidates)::

        ids       [CLS]  the  cat  sat  on   the  mat  [SEP]
        uniform     -    .71  .08  .55  .93  .31  .20    -
        chosen      0     0    1    0    0    0    1     0     round(0.25 * 8) = 2 smallest
        replaced    -     -  [MASK] -    -    -   dog    -     by a second uniform: 80 / 10 / 10

    Special tokens and padding are never chosen, and every sequence has at least one prediction. With the same seed, a
    lower rate chooses a subset of the positions of a higher rate.
    """

    rate: float = knob(0.15, "Share of positions that are predicted.", gt=0, le=1)
    mask: float = knob(0.8, "Share of predicted positions replaced by [MASK].", ge=0, le=1)
    same: float = knob(0.1, "Share of predicted positions left unchanged.", ge=0, le=1)
    random: float = knob(
        0.1, "Share of predicted positions replaced by a random token, uniform over the vocabulary.", ge=0, le=1
    )
    count: Literal["round", "stochastic_round", "bernoulli"] = knob(
        "round",
        "How many of n real positions (including special tokens, as in BERT) are predicted: round is round(rate n); "
        "stochastic_round is int(rate n + u) with u uniform (RoBERTa); bernoulli draws each position independently.",
    )
    cap: int | None = knob(
        None, "Maximum predictions per sequence (BERT: 20 at 128 positions); by default no limit.", neutral=None, ge=1
    )
    copies: int = knob(
        0, "0 for dynamic masking, a new mask at each presentation; K for K fixed masks used in turn.", neutral=0, ge=0
    )

    @model_validator(mode="after")
    def _shares_add_up(self) -> Self:
        total = self.mask + self.same + self.random
        if abs(total - 1) > 1e-9:
            raise ValueError(
                f"mask + same + random must be 1, not {self.mask} + {self.same} + {self.random} = {total:.6g}"
            )
        return self

    def choose(self, tokens: Tokens, draws: Draws) -> np.ndarray:
        """The positions to predict, a bool array ``[b t]``."""
        candidates = (tokens.real & ~tokens.special).numpy()
        count = self._count(tokens.real.numpy().sum(1), draws)
        uniform = np.where(candidates, draws.uniform("choose", candidates.shape[1]), 2.0)  # 2 is never chosen
        available = candidates.sum(1)
        if self.count == "bernoulli":
            count = (uniform < self.rate).sum(1)
        limit = available if self.cap is None else np.minimum(available, self.cap)
        count = np.minimum(np.maximum(count, 1), limit)
        # the k smallest draws of each row: rank by sorting, then compare with the k-th value
        order = np.sort(uniform, axis=1)
        threshold = np.take_along_axis(order, np.maximum(count - 1, 0)[:, None], axis=1)
        return candidates & (uniform <= threshold) & (count > 0)[:, None]

    def _count(self, real: np.ndarray, draws: Draws) -> np.ndarray:
        if self.count == "stochastic_round":
            return np.floor(self.rate * real + draws.uniform("count", 1)[:, 0]).astype(np.int64)
        return np.rint(self.rate * real).astype(np.int64)  # halves to even, as Python's round in BERT's code

    def hide(self, tokens: Tokens, chosen: np.ndarray, vocabulary: Vocabulary, draws: Draws) -> Tokens:
        """The input of the model: a copy of the tokens with the chosen positions replaced."""
        columns = chosen.shape[1]
        fate = draws.uniform("replace", columns)
        ids = tokens.ids.numpy()
        ids = np.where(chosen & (fate < self.mask), vocabulary.mask, ids)
        if self.random:
            swapped = chosen & (fate >= self.mask) & (fate < self.mask + self.random)
            ids = np.where(swapped, draws.integers("random word", columns, vocabulary.size), ids)
        return replace(tokens, ids=torch.from_numpy(ids))

    def expected_predictions(self, length: int) -> float:
        """Expected predictions of a full sequence of ``length`` positions, for FLOPs.

        ``bernoulli`` never draws the few special positions, but they are included here.
        """
        predicted = max(1.0, float(np.rint(self.rate * length)) if self.count == "round" else self.rate * length)
        return predicted if self.cap is None else min(predicted, float(self.cap))
