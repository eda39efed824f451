"""The next word from the two before it, and from what the text said before: trigrams with a cache.

Interpolated Kneser-Ney smoothing (Kneser and Ney, ICASSP 1995, 181-184; Chen and Goodman, Computer Speech and Language
13, 1999, 359-393, section 3): of each context the counts less a discount D, and with what that leaves the next shorter
context. Shorter contexts count after how many different words a word follows, not how often:

    P(w | u v) = max(c(u v w) - D, 0) / c(u v)  +  D kinds(u v) / c(u v)  P(w | v)
    P(w | v)   = max(n(v w) - D, 0) / n(v)      +  D kinds(v) / n(v)      P(w)
    P(w)       = max(n(w) - D, 0) / n           +  D kinds / n            1 / V

D of each is n1 / (n1 + 2 n2), of counts that are 1 and 2. The cache (Kuhn and De Mori, IEEE PAMI 12, 1990, 570-583) is
the share of the word among those before it, and has one weight, fitted on other text than is judged.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightning_modules.batch import STEP, Example
from lightning_modules.data.baselines.ngrams import Counted, Places

_USUAL = 0.5  # the discount where no count is 1, or none is 2
_ROUNDS = 50  # of expectation maximisation


@dataclass(frozen=True, eq=False)
class Lines:
    """Words that are predicted, each with what is read before it.

    Attributes:
        words: The words ``[n]``.
        before: The last of those before it and the one before that, -1 where there is none ``[n 2]``.
        again: How often the word is among all those before it ``[n]``.
        length: How many these are ``[n]``.
    """

    words: np.ndarray
    before: np.ndarray
    again: np.ndarray
    length: np.ndarray

    @classmethod
    def of(cls, examples: Iterable[Example], target: str, joined: bool = False) -> "Lines":
        """The words that examples ask for, of one direction of reading.

        Args:
            target: ``next`` or ``previous``.
            joined: Whether the rows of each example go on from those of the one before, and all of it is read.
        """
        rows = [_rows(example, target) for example in examples]
        if joined:
            rows = [_joined(rows)]
        words, before, again, length = (
            np.concatenate(part) for part in zip(*(_asked(*row) for row in rows), strict=True)
        )
        return cls(words, before, again, length)

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, some: Any) -> "Lines":
        return Lines(self.words[some], self.before[some], self.again[some], self.length[some])


def _rows(example: Example, target: str) -> tuple[np.ndarray, np.ndarray]:
    """The words of each row as they are read, -1 where there is none, and which are predicted ``[b t+1]``."""
    inputs, step = example.inputs, STEP[target]
    is_known = inputs.real & ~inputs.special
    if inputs.ends is not None:
        is_known = is_known | inputs.ends
    words = np.where(is_known.numpy(), inputs.ids.numpy(), -1)
    rows, length = words.shape
    after = np.full(rows, -1) if inputs.following is None else inputs.following.numpy()
    words = np.column_stack([words, after]).astype(np.int64)
    row, column = np.divmod(example.targets[target].where.numpy(), length)
    asked = np.zeros(words.shape, dtype=bool)
    asked[row, column + step] = True
    return (words, asked) if step > 0 else (words[:, ::-1], asked[:, ::-1])


def _joined(rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Rows that go on from each other, as one; what follows a part is the first of the next."""
    words = [part[:, :-1] for part, _ in rows] + [rows[-1][0][:, -1:]]
    asked = np.concatenate([part[:, :-1] for _, part in rows] + [rows[-1][1][:, -1:]], axis=1)
    ends = np.cumsum([part.shape[1] - 1 for part, _ in rows])
    for end, (_, part) in zip(ends, rows, strict=True):
        asked[:, end] |= part[:, -1]
    return np.concatenate(words, axis=1), asked


def _asked(words: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The fields of `Lines` for the words that are predicted."""
    is_known = words >= 0
    length = np.cumsum(is_known, axis=1) - is_known
    row = np.arange(len(words))[:, None]
    flat = np.where(is_known, row * (words.max(initial=0) + 1) + words, -1).ravel()
    order = np.argsort(flat, kind="stable")  # equal words of a row are together, in order
    ordered = flat[order]
    begins = np.append(True, ordered[1:] != ordered[:-1])
    number = np.arange(len(flat))
    again = np.empty(len(flat), dtype=np.int64)
    again[order] = number - np.maximum.accumulate(np.where(begins, number, 0))
    padded = np.pad(words, ((0, 0), (2, 0)), constant_values=-1)
    before = np.stack([padded[:, 1:-1][asked], padded[:, :-2][asked]], axis=1)
    return words[asked], before, again.reshape(words.shape)[asked], length[asked]


@dataclass(frozen=True, eq=False)
class _Level:
    """The counts of words in contexts of one length.

    Attributes:
        keys: Contexts and words, as one number, ascending ``[n]``.
        counts: How often, or after how many different words ``[n]``.
        contexts: The contexts, ascending ``[k]``.
        totals: The sum of each one's counts ``[k]``.
        kinds: How many words it has ``[k]``.
        discount: What is taken off each count.
    """

    keys: np.ndarray
    counts: np.ndarray
    contexts: np.ndarray
    totals: np.ndarray
    kinds: np.ndarray
    discount: float

    @classmethod
    def of(cls, numbers: np.ndarray, size: int) -> "_Level":
        """The counts of numbers, each a context times ``size`` plus a word."""
        keys, counts = np.unique(numbers, return_counts=True)
        contexts, first = np.unique(keys // size, return_index=True)
        totals = np.add.reduceat(counts, first) if len(first) else counts
        once, twice = ((counts == n).sum() for n in (1, 2))
        discount = float(once / (once + 2 * twice)) if once and twice else _USUAL
        return cls(keys, counts, contexts, totals, np.diff(np.append(first, len(keys))), discount)

    def chances(self, context: np.ndarray, key: np.ndarray, shorter: np.ndarray) -> np.ndarray:
        """The probability of words, given that in the next shorter context; that alone in a context never seen."""
        place, found = Places(self.contexts).of(context), Places(self.keys).of(key)
        if not len(self.keys):
            return shorter
        count = np.where(found >= 0, self.counts[found], 0)
        kept = np.maximum(count - self.discount, 0) + self.discount * self.kinds[place] * shorter
        return np.where(place >= 0, kept / self.totals[place], shorter)


class KneserNey:
    """Trigrams of a text."""

    def __init__(self, text: Counted) -> None:
        size = self.size = text.size
        threes = np.concatenate([context * size + word for context, word in text.beside((-2, -1))])
        self._three = _Level.of(threes, size)
        self._two = _Level.of(self._three.keys % size**2, size)
        twos = np.concatenate([context * size + word for context, word in text.beside((-1,))])
        self._one = _Level.of(np.unique(twos) % size, size)

    def chances(self, lines: Lines) -> np.ndarray:
        """The probability of each word after the two before it, without a cache ``[n]``."""
        words, last, earlier = lines.words, *lines.before.T
        one = self._one.chances(np.zeros_like(words), words, np.full(len(words), 1 / self.size))
        two = np.where(last < 0, one, self._two.chances(last, last * self.size + words, one))
        both = earlier * self.size + last
        three = self._three.chances(both, both * self.size + words, two)
        return np.where((last < 0) | (earlier < 0), two, three)

    def fitted(self, lines: Lines) -> float:
        """The weight of the cache at which the words of some lines are most probable."""
        there = lines[lines.length > 0]
        if not len(there):
            return 0.0
        usual, cached, weight = self.chances(there), there.again / there.length, 0.1
        for _ in range(_ROUNDS):
            share = weight * cached
            weight = float((share / (share + (1 - weight) * usual)).mean())
        return round(weight, 4)

    def nats(self, lines: Lines, weight: float) -> float:
        """The summed loss, with this weight of the cache."""
        weights = np.where(lines.length > 0, weight, 0.0)
        cached = lines.again / np.maximum(lines.length, 1)
        return float(-np.log(weights * cached + (1 - weights) * self.chances(lines)).sum())


class NGrams:
    """The same of any order and without a cache, for whole texts: 5-grams are the usual bar of language models.

    Contexts have the numbers of their ranks, so that n-grams of a large vocabulary are numbers too.

    Args:
        order: Words of the longest n-grams, the last of which is predicted.
    """

    def __init__(self, text: Counted, order: int) -> None:
        self.size, goes_on = text.size, ~text.fresh
        number, known = text.ids.astype(np.int64), np.ones(len(text.ids), dtype=bool)
        numbers, valid, self._ranks = [number], [known], [Places(np.arange(text.size))]
        for _ in range(order - 1):
            before = np.append(-1, self._ranks[-1].of(np.where(known, number, -1))[:-1])
            known = (before >= 0) & goes_on
            number = before * self.size + text.ids
            numbers.append(number)
            valid.append(known)
            self._ranks.append(Places(np.unique(number[known])))
        counted = [numbers[-1][valid[-1]]]  # the longest as often as they are there
        for length in range(order - 1, 0, -1):  # shorter ones after how many different words
            _, first = np.unique(numbers[length][valid[length]], return_index=True)
            counted.insert(0, numbers[length - 1][valid[length]][first])
        self._levels = [_Level.of(each, self.size) for each in counted]

    def nats(self, row: Sequence[int]) -> np.ndarray:
        """Minus the log-probability of each word of a text after those before it ``[n]``."""
        words = np.asarray(row, dtype=np.int64)
        number, context = words, np.zeros(len(words), dtype=np.int64)
        chance = np.full(len(words), 1 / self.size)
        for level, ranks in zip(self._levels, self._ranks, strict=True):
            chance = np.where(context < 0, chance, level.chances(context, number, chance))
            context = np.append(-1, ranks.of(number)[:-1])
            number = np.where(context < 0, -1, context * self.size + words)
        return -np.log(chance)
