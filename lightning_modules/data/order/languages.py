"""The order of a text of several languages: each step has one of them, drawn by its share of the tokens to a power.

A language with n_i tokens is drawn with the probability n_i^a / sum_j n_j^a (Conneau and Lample 2019, section 3.1, of
sentences and with a = 0.5). The released code draws a language for each step, too. Where there are pairs as well, steps
take turns: one of running text, one of pairs, as the released code does.

Each language has an order of its own, that of a training on it alone, from which its steps take what comes next.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lightning_modules.data.formats.by_language import Group
from lightning_modules.data.order.shuffled import BySequences
from lightning_modules.draws import Draws

_APART = 1 << 40  # between the keys of noise of two groups


def probabilities(tokens: Sequence[float] | np.ndarray, exponent: float) -> np.ndarray:
    """The probability of each language ``[n]``.

    >>> probabilities([900, 100], 0.5).round(2).tolist()
    [0.75, 0.25]
    """
    powers = (np.asarray(tokens, dtype=np.float64) / np.sum(tokens)) ** exponent
    return powers / powers.sum()


@dataclass(frozen=True, eq=False)
class ByLanguage(BySequences):
    """The order in which steps of one group of sequences each show a text.

    Attributes:
        turns: The groups of each turn; step s has one of turn s modulo their number.
        orders: The order of each group, all turns in a row.
        exponent: The power of the share of tokens.
        most: Steps for which groups are needed.
    """

    turns: tuple[tuple[Group, ...], ...] = ()
    orders: tuple[BySequences, ...] = ()
    exponent: float = 1.0
    most: int = 0

    @property
    def groups(self) -> list[Group]:
        """The groups of all turns."""
        return [group for turn in self.turns for group in turn]

    @functools.cached_property
    def drawn(self) -> np.ndarray:
        """The group of each step ``[most]``."""
        step = np.arange(self.most, dtype=np.int64)
        noise = Draws(self.seed, step, step, np.zeros_like(step)).uniform("language", 1)[:, 0]
        found, before = np.empty_like(step), 0
        for number, turn in enumerate(self.turns):
            tokens = [int(self.sizes[group.first : group.end].sum()) for group in turn]
            chances = probabilities(tokens, self.exponent).cumsum()[:-1]
            own = slice(number, None, len(self.turns))
            found[own] = before + np.searchsorted(chances, noise[own], side="right")
            before += len(turn)
        return found

    @functools.cached_property
    def _visits(self) -> np.ndarray:
        """How many steps before each one have its group ``[most]``."""
        visits = np.empty_like(self.drawn)
        for number in range(len(self.orders)):
            own = self.drawn == number
            visits[own] = np.arange(own.sum())
        return visits

    def steps(self, steps: int) -> np.ndarray:
        """How many of the first steps have each group ``[groups]``."""
        return np.bincount(self.drawn[:steps], minlength=len(self.orders))

    def first(self, step: int) -> int:
        """The presentation with which a step begins."""
        return sum(order.first(int(count)) for order, count in zip(self.orders, self.steps(step), strict=True))

    def presented(self, step: int) -> Draws:
        """The next sequences of the group of a step."""
        number = int(self.drawn[step])
        own = self.orders[number].presented(int(self._visits[step]))
        return Draws(self.seed, own.rows + number * _APART, own.sample + self.groups[number].first, own.epoch)

    def total(self, steps: int, values: np.ndarray) -> np.ndarray:
        """See `BySequences.total`."""
        counts = zip(self.groups, self.orders, self.steps(steps), strict=True)
        return sum(
            (order.total(int(count), values[group.first : group.end]) for group, order, count in counts),
            np.zeros(values.shape[1:], dtype=values.dtype),
        )

    def lengths(self, steps: int) -> np.ndarray:
        """How many sequences of each number of real positions the first steps present ``[longest + 1]``."""
        counts = np.zeros(int(self.sizes.max()) + 1, dtype=np.int64)
        for order, visits in zip(self.orders, self.steps(steps), strict=True):
            own = order.lengths(int(visits))
            counts[: len(own)] += own
        return counts
