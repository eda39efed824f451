"""Masking: which tokens are predicted, and what replaces them in the input.

Devlin et al. (2019), section 3.1 and appendix A.1; the mixtures of its Table 8; RoBERTa's dynamic masking
(Liu et al. 2019, section 4.1); the rates of Wettig et al. (2023). What is hidden together: `choosing`.
"""

from dataclasses import replace
from typing import Literal, Self

import numpy as np
import torch
from pydantic import model_validator

from lightning_modules.batch import Tokens, Unsupported, Vocabulary
from lightning_modules.config import Settings, knob
from lightning_modules.draws import Draws
from lightning_modules.objectives.choosing import AnyUnits, Pieces, Text, smallest


class Masking(Settings):
    """The positions to predict, and the corruption of the input at them.

    Worked example at ``rate=0.25`` with eight positions (two special, so six candidates)::

        ids       [CLS]  the  cat  sat  on   the  mat  [SEP]
        uniform     -    .71  .08  .55  .93  .31  .20    -
        chosen      0     0    1    0    0    0    1     0     round(0.25 * 8) = 2 smallest
        replaced    -     -  [MASK] -    -    -   dog    -     by a second uniform: 80 / 10 / 10

    Special tokens and padding are never chosen. Of single pieces every sequence has at least one prediction, and with
    the same seed, a lower rate chooses a subset of the positions of a higher rate.
    """

    rate: float = knob(0.15, "Share of positions that are hidden.", gt=0, le=1)
    predicted: float | None = knob(
        None,
        "Share of positions that are predicted, by default all that are hidden. Fewer are some of the hidden ones. "
        "More must be a multiple of rate: each sequence is presented so many times, with other positions hidden. Each "
        "presentation costs a forward and a backward pass (Wettig et al. 2023, Table 3).",
        neutral=None,
        gt=0,
        le=1,
    )
    units: AnyUnits = knob(Pieces(), "What is hidden as a whole.", neutral=Pieces())
    mask: float = knob(0.8, "Share of predicted positions replaced by [MASK].", ge=0, le=1)
    same: float = knob(0.1, "Share of predicted positions left unchanged.", ge=0, le=1)
    random: float = knob(0.1, "Share of predicted positions replaced by a random token.", ge=0, le=1)
    replacement: Literal["piece", "group"] = knob(
        "piece",
        "Whether [MASK], the same or a random token is drawn for each piece or once for a group. Each piece of a "
        "group still has a random token of its own (SpanBERT).",
        neutral="piece",
    )
    random_words: Literal["uniform", "ordinary", "frequency"] = knob(
        "uniform",
        "What random tokens are drawn from: uniform is the vocabulary, special and unused pieces included (BERT). "
        "With ordinary it is the pieces that are not special (RoBERTa). With frequency it is the text, so that "
        "frequent pieces come often (SpanBERT).",
        neutral="uniform",
    )
    count: Literal["round", "stochastic_round", "ceil", "bernoulli"] = knob(
        "round",
        "How many of n real positions are hidden: round is round(rate n), special tokens counted (BERT, ALBERT). With "
        "stochastic_round it is int(rate n + u) with u uniform (RoBERTa, Wettig et al.). With ceil it is rate n "
        "rounded up, special tokens not counted (SpanBERT). With bernoulli each position is drawn independently "
        "(Hugging Face, Cramming).",
    )
    cap: int | None = knob(
        None, "Maximum predictions per sequence (BERT: 20 at 128 positions). By default no limit.", neutral=None, ge=1
    )
    copies: int = knob(
        0, "0 for dynamic masking, a new mask at each presentation. K for K fixed masks used in turn.", neutral=0, ge=0
    )

    @model_validator(mode="after")
    def _shares_add_up(self) -> Self:
        total = self.mask + self.same + self.random
        if abs(total - 1) > 1e-9:
            raise ValueError(
                f"mask + same + random must be 1, not {self.mask} + {self.same} + {self.random} = {total:.6g}"
            )
        return self

    @model_validator(mode="after")
    def _whole_presentations(self) -> Self:
        times = (self.predicted or self.rate) / self.rate
        if times > 1 and abs(times - round(times)) > 1e-9:
            near = " or ".join(f"{count * self.rate:.6g}" for count in (int(times), int(times) + 1))
            raise ValueError(
                f"predicted {self.predicted} is more than rate {self.rate} and no multiple of it: set it to {near}"
            )
        return self

    def resolved(self) -> Self:
        """The settings in full; predicting all that is hidden is the default."""
        full = super().resolved()
        return full.model_copy(update={"predicted": None}) if full.predicted == full.rate else full

    @property
    def presentations(self) -> int:
        """How many times each sequence is presented in a step, with other positions hidden."""
        return max(1, round((self.predicted or self.rate) / self.rate))

    def choose(self, tokens: Tokens, draws: Draws, vocabulary: Vocabulary) -> np.ndarray:
        """What is hidden: the first position of each hidden position's group ``[b t]``, -1 elsewhere."""
        text = Text(tokens, vocabulary)
        rate = self.rate * self.presentations
        return self.units.choose(text, self._budget(text, draws, rate), draws)

    def ask(self, tokens: Tokens, groups: np.ndarray, draws: Draws, vocabulary: Vocabulary) -> np.ndarray:
        """The hidden positions that are predicted, a bool array ``[b t]``."""
        hidden = groups >= 0
        if self.predicted is None or self.predicted >= self.rate:
            return hidden
        count = np.minimum(self._budget(Text(tokens, vocabulary), draws, self.predicted), hidden.sum(1))
        return smallest(hidden, draws.uniform("choose", hidden.shape[1]), count)

    def _budget(self, text: Text, draws: Draws, rate: float) -> np.ndarray:
        """How many positions of each row are hidden, at most ``[b]``."""
        available = text.candidates.sum(1)
        if self.count == "bernoulli":
            count = (text.candidates & (draws.uniform("choose", text.candidates.shape[1]) < rate)).sum(1)
        elif self.count == "stochastic_round":
            real = text.tokens.real.numpy().sum(1)
            count = np.floor(rate * real + draws.uniform("count", 1)[:, 0]).astype(np.int64)
        elif self.count == "ceil":
            count = np.ceil(np.round(rate * available, 9)).astype(np.int64)  # 0.15 x 20 is a little more than 3
        else:  # halves to even, as Python's round in BERT's code
            count = np.rint(rate * text.tokens.real.numpy().sum(1)).astype(np.int64)
        limit = available if self.cap is None else np.minimum(available, self.cap)
        return np.minimum(np.maximum(count, 1), limit)

    def hide(self, tokens: Tokens, groups: np.ndarray, vocabulary: Vocabulary, draws: Draws) -> Tokens:
        """The input of the model: a copy of the tokens with the hidden positions replaced."""
        columns = groups.shape[1]
        hidden, fate = groups >= 0, draws.uniform("replace", columns)
        if self.replacement == "group":
            fate = np.take_along_axis(fate, np.maximum(groups, 0), axis=1)
        ids = tokens.ids.numpy()
        ids = np.where(hidden & (fate < self.mask), vocabulary.mask, ids)
        if self.random:
            swapped = hidden & (fate >= self.mask) & (fate < self.mask + self.random)
            ids = np.where(swapped, self._random(columns, vocabulary, draws), ids)
        return replace(tokens, ids=torch.from_numpy(ids))

    def _random(self, columns: int, vocabulary: Vocabulary, draws: Draws) -> np.ndarray:
        """A random token for every position ``[b t]``."""
        if self.random_words == "uniform":
            return draws.integers("random word", columns, vocabulary.size)
        source = vocabulary.ordinary if self.random_words == "ordinary" else vocabulary.text
        if source is None:
            raise Unsupported("random_words: frequency draws words from a text, and this vocabulary comes without one")
        return source[draws.integers("random word", columns, len(source))].astype(np.int64)

    def expected_predictions(self, length: int) -> float:
        """Expected predictions of a full sequence of ``length`` positions in one presentation, for FLOPs.

        Special positions are included, although ``bernoulli`` and ``ceil`` do not count them; so are words that do not
        fit what is left of the budget, and ends of words that are too few.
        """
        rate = min(self.rate, self.predicted or self.rate)
        predicted = max(1.0, float(np.rint(rate * length)) if self.count == "round" else rate * length)
        return predicted if self.cap is None else min(predicted, float(self.cap))


def dealt(groups: np.ndarray, draws: Draws, hands: int) -> np.ndarray:
    """Hidden groups dealt out among as many copies of each row, in random order ``[b * hands t]``."""
    columns = np.arange(groups.shape[1])
    first = groups == columns
    uniform = np.where(first, draws.uniform("choose", len(columns)), 2.0)
    rank = np.argsort(np.argsort(uniform, axis=1), axis=1)
    hand = np.take_along_axis(rank, np.maximum(groups, 0), axis=1) % hands
    mine = (groups >= 0)[:, None] & (hand[:, None] == np.arange(hands)[:, None])
    return np.where(mine, groups[:, None], -1).reshape(-1, len(columns))
