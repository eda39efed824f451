"""A hidden word from the product of counts: what is next to it is multiplied, not mixed.

    P(w) proportional to  P(w | context)^e  for each context, times  P(w)^e

over the whole vocabulary, which for the words on the left and on the right is P(w | left) P(w | right) / P(w) if their
exponents are 1, 1 and -1: a product of experts (Hinton, Neural Computation 14, 2002, 1771-1800), or two Markov chains
that meet. Each P(w | context) is counted with absolute discounting and interpolated with P(w) (Ney, Essen and Kneser,
Computer Speech and Language 8, 1994, 1-38). A context with a piece that the question does not show is unknown, and says
nothing. Exponents and discount are fitted on other questions than those that are judged.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from lightning_modules.batch import Example
from lightning_modules.data.baselines.bigram import seen_sides
from lightning_modules.data.baselines.ngrams import Counted, Places, numbered

NEIGHBOURS = ((-1,), (1,))  # contexts, as offsets of their pieces: one piece on either side
TWO = (*NEIGHBOURS, (-2, -1), (1, 2), (-1, 1))  # two on either side, and one on both
DISCOUNTS = (0.5, 0.7, 0.9)
_OFFSETS = (-2, -1, 1, 2)
_AT_ONCE = 1 << 21  # probabilities that are computed together: questions times vocabulary
_MOST_STEPS, _ENOUGH = 20, 1e-5  # of Newton's method; nats


@dataclass(frozen=True, eq=False)
class Questions:
    """Hidden pieces and what is shown around them.

    Attributes:
        words: The hidden pieces ``[n]``.
        around: Those at offsets -2, -1, 1 and 2, -1 where none is shown ``[n 4]``.
    """

    words: np.ndarray
    around: np.ndarray

    @classmethod
    def of(cls, examples: Iterable[Example], target: str, mask: int) -> "Questions":
        """The questions of examples: what their models see, counting sees."""
        parts = [cls._of(example, target, mask) for example in examples]
        words, around = (np.concatenate(part) for part in zip(*parts, strict=True))
        return cls(words, around)

    @staticmethod
    def _of(example: Example, target: str, mask: int) -> tuple[np.ndarray, np.ndarray]:
        inputs, asked = example.inputs, example.targets[target]
        is_known = (inputs.real & ~inputs.special & (inputs.ids != mask)).numpy()
        reach = ((0, 0), (2, 2))
        pieces = np.pad(np.where(is_known, inputs.ids.numpy(), -1), reach, constant_values=-1)
        row, column = np.divmod(asked.where.numpy(), inputs.ids.shape[1])
        around = np.stack([pieces[row, column + 2 + offset] for offset in _OFFSETS], axis=1)
        for seen, shown in zip(seen_sides(target, example.visible), (around[:, :2], around[:, 2:]), strict=True):
            if not seen:
                shown[:] = -1
        if asked.queries is not None and example.queries is not None:
            visible = np.pad(example.queries.visible.flatten(0, 1)[asked.queries].numpy(), reach)
            number = np.arange(len(column))
            sees = np.stack([visible[number, column + 2 + offset] for offset in _OFFSETS], axis=1)
            around = np.where(sees, around, -1)
        return asked.ids.numpy(), around

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, some: Any) -> "Questions":
        return Questions(self.words[some], self.around[some])

    def some(self, most: int) -> "Questions":
        """At most so many, evenly spread."""
        return self[np.linspace(0, len(self) - 1, min(most, len(self))).astype(np.int64)]

    def contexts(self, offsets: Sequence[int], size: int) -> np.ndarray:
        """The number of each question's context, -1 if it is unknown ``[n]``."""
        return numbered(self.around[:, [_OFFSETS.index(offset) for offset in offsets]], size)


@dataclass(frozen=True)
class Fit:
    """What is fitted.

    Attributes:
        discount: What is taken off each count.
        exponents: Of each context, and of P(w) last.
    """

    discount: float
    exponents: tuple[float, ...]

    def rounded(self) -> "Fit":
        """As it is written down."""
        return replace(self, exponents=tuple(round(exponent, 3) for exponent in self.exponents))


class Product:
    """The counts of a text in the contexts of some questions.

    Args:
        contexts: Offsets of the pieces of each context.
        asked: All questions that are to be answered.
    """

    def __init__(self, text: Counted, contexts: Sequence[tuple[int, ...]], asked: Sequence[Questions]) -> None:
        self.contexts, self.size, single = tuple(contexts), text.size, text.single
        self.alone = (single + 1) / (single.sum() + text.size)
        self.known, self.counts = [], []
        for offsets in self.contexts:
            numbers = np.unique(np.concatenate([questions.contexts(offsets, text.size) for questions in asked]))
            self.known.append(Places(numbers[numbers >= 0]))
            self.counts.append(_counted(text, offsets, self.known[-1]))

    def fitted(self, questions: Questions, discounts: Sequence[float] = DISCOUNTS) -> Fit:
        """The discount and the exponents of the lowest loss."""
        best, lowest, start = Fit(discounts[0], ()), np.inf, np.eye(len(self.contexts) + 1)[-1]
        for discount in discounts:
            value, start = self._lowest(questions, discount, start)
            if value < lowest:
                best, lowest = _apart(discount, start), value
        return best.rounded()

    def nats(self, questions: Questions, fit: Fit) -> float:
        """The summed loss on some questions."""
        return sum(_loss(*part, _together(fit))[0] for part in self._shown(questions, fit.discount))

    def logs(self, questions: Questions, fit: Fit) -> np.ndarray:
        """The log-probability of every piece ``[n v]``."""
        parts = [np.tensordot(_together(fit), shown, 1) for shown, _ in self._shown(questions, fit.discount)]
        scores = np.concatenate(parts).astype(float)
        return scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)

    def _lowest(self, questions: Questions, discount: float, start: np.ndarray) -> tuple[float, np.ndarray]:
        """Newton's method: the loss is convex in the exponents."""
        logs, rows = self._logs(discount), self._rows(questions)

        def at(exponents: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
            values, slopes, curves = zip(
                *(_loss(*part, exponents, curved=True) for part in self._parts(questions, logs, rows)), strict=True
            )
            return sum(values) / len(questions), np.sum(slopes, 0) / len(questions), np.sum(curves, 0) / len(questions)

        exponents, (value, slope, curve) = start, at(start)
        for _ in range(_MOST_STEPS):
            step = np.linalg.lstsq(curve, slope, rcond=1e-6)[0]  # contexts that nobody sees stay at 0
            found = at(exponents - step)
            while found[0] > value and np.abs(step).max() > _ENOUGH:
                step = step / 2
                found = at(exponents - step)
            gained = value - found[0]
            if gained > 0:
                exponents, (value, slope, curve) = exponents - step, found
            if gained < _ENOUGH:
                break
        return value, exponents

    def _shown(self, questions: Questions, discount: float) -> Iterable[tuple[np.ndarray, np.ndarray]]:
        return self._parts(questions, self._logs(discount), self._rows(questions))

    def _logs(self, discount: float) -> list[sparse.csr_matrix]:
        """By how much a context raises the logarithm of each piece above that of P(w), up to a constant."""
        return [_raised(counts, discount, self.alone) for counts in self.counts]

    def _rows(self, questions: Questions) -> list[np.ndarray]:
        """The row of each question's context; the last, which is empty, if it is unknown."""
        found = [known.of(questions.contexts(offsets, self.size))
                 for known, offsets in zip(self.known, self.contexts, strict=True)]  # fmt: skip
        return [np.where(row < 0, counts.shape[0] - 1, row) for row, counts in zip(found, self.counts, strict=True)]

    def _parts(
        self, questions: Questions, logs: Sequence[sparse.csr_matrix], rows: Sequence[np.ndarray]
    ) -> Iterable[tuple[np.ndarray, np.ndarray]]:
        """What each context says of every piece, P(w) last ``[k+1 n v]``, and the hidden pieces ``[n]``."""
        alone = np.log(self.alone).astype(np.float32)
        some = max(1, _AT_ONCE // self.size)
        for start in range(0, len(questions), some):
            words = questions.words[start : start + some]
            shown = np.empty((len(logs) + 1, len(words), self.size), dtype=np.float32)
            for number, (log, row) in enumerate(zip(logs, rows, strict=True)):
                log[row[start : start + some]].toarray(out=shown[number])
            shown[-1] = alone
            yield shown, words


def _apart(discount: float, exponents: np.ndarray) -> Fit:
    """With the exponent of P(w) apart from what the contexts add to it, each of which is interpolated with P(w)."""
    *others, last = exponents.tolist()
    return Fit(discount, (*others, last - sum(others)))


def _together(fit: Fit) -> np.ndarray:
    """The inverse of `_apart`."""
    *others, last = fit.exponents
    return np.array([*others, last + sum(others)])


def _counted(text: Counted, offsets: tuple[int, ...], known: Places) -> sparse.csr_matrix:
    """How often each piece is in the contexts with these numbers ``[k+1 v]``. The last row is empty."""
    shape = (len(known.known) + 1, text.size)
    total = sparse.csr_matrix(shape, dtype=np.int32)
    for contexts, words in text.beside(offsets):
        row = known.of(contexts)
        row, words = row[row >= 0], words[row >= 0]
        total = total + sparse.coo_matrix((np.ones(len(row), np.int32), (row, words)), shape=shape).tocsr()
    return total


def _raised(counts: sparse.csr_matrix, discount: float, alone: np.ndarray) -> sparse.csr_matrix:
    """log(P(w | context) / P(w)) of pieces that are in a context, against those that do not.

    P(w | context) is (c - D + D kinds P(w)) / total, and D kinds P(w) / total for a piece that was never counted there.
    """
    kinds = np.diff(counts.indptr)
    rest = discount * np.repeat(kinds, kinds) * alone[counts.indices]
    raised = np.log1p((counts.data - discount) / rest).astype(np.float32)
    return sparse.csr_matrix((raised, counts.indices, counts.indptr), shape=counts.shape)


def _loss(
    shown: np.ndarray, words: np.ndarray, exponents: np.ndarray, curved: bool = False
) -> tuple[float, np.ndarray, np.ndarray]:
    """The summed loss of a part, and, if it is requested, its first and second derivatives by the exponents."""
    scores = np.tensordot(exponents.astype(np.float32), shown, 1)
    top = scores.max(1, keepdims=True)
    number, right = np.arange(len(words)), scores[np.arange(len(words)), words]
    chances = np.exp(scores - top)
    total = chances.sum(1, keepdims=True)
    value = float((np.log(total[:, 0]) + top[:, 0] - right).sum(dtype=np.float64))
    if not curved:
        return value, np.empty(0), np.empty(0)
    weighted = shown * (chances / total)
    means = weighted.sum(2, dtype=np.float64)
    slope = (means - shown[:, number, words]).sum(1)
    curve = weighted.reshape(len(shown), -1) @ shown.reshape(len(shown), -1).T - means @ means.T
    return value, slope, curve
