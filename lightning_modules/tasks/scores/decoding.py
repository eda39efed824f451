"""From logits of starts and ends to texts, as in BERT's ``run_squad.py``, or from a beam, as in XLNet's."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from lightning_modules.tasks.reading.windows import SpanInputs

_BEFORE_BEAM = 3  # columns of a beam's outputs before those of its starts
# outputs of a window, place of its first piece, which of its pieces count -> score of the best span, its two ends
_Best = Callable[[np.ndarray, int, np.ndarray], tuple[float, int, int]]


class SpanAnswers(NamedTuple):
    """The best answers to the questions of a split.

    Attributes:
        texts: The best span of each passage, "" without candidates ``[n]``.
        nulls: Null scores, above 0 where no answer is the better one: the smallest start + end logit of [CLS] over the
            question's windows, minus the start + end logit of the best span; of a beam the smallest
            logit of no answer ``[n]``.
    """

    texts: list[str]
    nulls: np.ndarray


def decoded(outputs: Sequence[np.ndarray], inputs: SpanInputs, n_best: int, max_answer: int) -> SpanAnswers:
    """The best answer to each question over its windows.

    A span is a candidate if its start is among the ``n_best`` best starts of a row and its end among the best ends,
    both lie in the window, no other window has more context around the start (the end is not checked, as in the
    released code), and it has at most ``max_answer`` pieces. Without candidates the answer is "", where the released
    code answers "empty", or fails on SQuAD 2.0.

    Args:
        outputs: The logits of each window ``[t 2]``.
        n_best: How many starts and ends of a row are considered.
        max_answer: Maximum pieces of an answer.
    """
    best = functools.partial(_best, n_best=n_best, most=max_answer)
    texts, scores, nulls = _over_windows(outputs, inputs, best, lambda cls: float(cls[0] + cls[1]))
    return SpanAnswers(texts, nulls - scores)


def decoded_beam(outputs: Sequence[np.ndarray], inputs: SpanInputs, max_answer: int) -> SpanAnswers:
    """The best answer to each question over its windows, of the starts and ends in a beam (`SpanBeamHead`).

    A span's score is the log-probability of its start plus that of its end given the start. Candidates are as in
    `decoded`, and the null score is that of no answer alone: it does not depend on the best span.

    Args:
        outputs: Of each window the logits of starts, two columns of training, the logit of no answer at every
            position, and a column of log-probabilities of ends for each start of the beam, best first ``[t k]``.
        max_answer: Maximum pieces of an answer.
    """
    best = functools.partial(_best_of_beam, most=max_answer)
    texts, _, nulls = _over_windows(outputs, inputs, best, lambda cls: float(cls[_BEFORE_BEAM - 1]))
    return SpanAnswers(texts, nulls)


def _over_windows(
    outputs: Sequence[np.ndarray], inputs: SpanInputs, find: _Best, null_of: Callable[[np.ndarray], float]
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The best text of each question, its score, and the smallest null of its windows, from what [CLS] puts out."""
    texts, scores, nulls = [], np.zeros(len(inputs.examples)), np.zeros(len(inputs.examples))
    for number in range(len(inputs.examples)):
        windows = slice(*inputs.bounds[number : number + 2].tolist())
        central = most_central(inputs.begins[windows], inputs.ends[windows])
        best, chosen, null = -np.inf, None, np.inf
        for window, is_central in enumerate(central, windows.start):
            logits = outputs[window]
            null = min(null, null_of(logits[inputs.nulls[window]]))
            score, first, last = find(logits, int(inputs.offsets[window]), is_central)
            if score > best:
                begin = int(inputs.begins[window])
                best, chosen = score, (begin + first, begin + last)
        texts.append(inputs.text(number, *chosen) if chosen else "")
        scores[number], nulls[number] = best, null
    return texts, scores, nulls


def most_central(begins: np.ndarray, ends: np.ndarray) -> list[np.ndarray]:
    """For each window of a passage, whether each of its pieces has more context in it than in any other window.

    The context is min(pieces to the left, pieces to the right) + 0.01 x pieces of the window; ties go to the first.

    >>> [central.tolist() for central in most_central(np.array([0, 2]), np.array([4, 6]))]
    [[True, True, True, False], [False, True, True, True]]
    """
    if len(begins) == 1:
        return [np.ones(ends[0] - begins[0], dtype=bool)]
    place = np.arange(begins[0], ends[-1])
    left, right = place - begins[:, None], ends[:, None] - 1 - place
    room = np.minimum(left, right) + 0.01 * (ends - begins)[:, None]
    best = np.where((left >= 0) & (right >= 0), room, -np.inf).argmax(0)
    return [best[b - begins[0] : e - begins[0]] == n for n, (b, e) in enumerate(zip(begins, ends, strict=True))]


def _best(logits: np.ndarray, offset: int, central: np.ndarray, n_best: int, most: int) -> tuple[float, int, int]:
    """The score of the best candidate of a window and its first and last piece in it; -inf without candidates."""
    starts, ends = np.argsort(-logits, axis=0, kind="stable")[:n_best].T - offset
    starts = starts[(starts >= 0) & (starts < len(central))]
    starts = starts[central[starts]]
    ends = ends[(ends >= 0) & (ends < len(central))]
    if not len(starts) or not len(ends):
        return -np.inf, 0, 0
    long = ends - starts[:, None]
    score = logits[starts + offset, 0][:, None] + logits[ends + offset, 1]
    score = np.where((long >= 0) & (long < most), score, -np.inf)
    start, end = np.unravel_index(score.argmax(), score.shape)
    return float(score[start, end]), int(starts[start]), int(ends[end])


def _best_of_beam(columns: np.ndarray, offset: int, central: np.ndarray, most: int) -> tuple[float, int, int]:
    """As `_best`, of the starts in a beam and the ends that it kept for each."""
    count, beam = len(central), columns[:, _BEFORE_BEAM:]
    starts = np.argsort(-columns[:, 0], kind="stable")[: beam.shape[1]]
    log_starts = columns[starts, 0] - np.logaddexp.reduce(columns[:, 0])
    score = log_starts[:, None] + beam[offset : offset + count, : len(starts)].T
    place = starts[:, None] - offset
    inside = (place >= 0) & (place < count) & central[np.clip(place, 0, count - 1)]
    long = np.arange(count) - place
    score = np.where(inside & (long >= 0) & (long < most), score, -np.inf)
    start, end = np.unravel_index(score.argmax(), score.shape)
    return float(score[start, end]), int(place[start, 0]), int(end)
