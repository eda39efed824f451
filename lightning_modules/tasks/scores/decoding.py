"""From logits of starts and ends to texts, as in BERT's ``run_squad.py``."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lightning_modules.tasks.reading.windows import SpanInputs


class SpanAnswers(NamedTuple):
    """The best answers to the questions of a split.

    Attributes:
        texts: The best span of each passage, "" without candidates ``[n]``.
        nulls: Null scores: the smallest start + end logit of the first position over the question's windows, minus
            the start + end logit of the best span ``[n]``.
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
        inputs: The windows.
        n_best: How many starts and ends of a row are considered.
        max_answer: Maximum pieces of an answer.
    """
    texts, nulls = [], np.zeros(len(inputs.examples))
    for number in range(len(inputs.examples)):
        windows = slice(*inputs.bounds[number : number + 2].tolist())
        central = most_central(inputs.begins[windows], inputs.ends[windows])
        best, chosen, null = -np.inf, None, np.inf
        for window, is_central in enumerate(central, windows.start):
            logits = outputs[window]
            null = min(null, float(logits[0, 0] + logits[0, 1]))
            score, first, last = _best(logits, int(inputs.offsets[window]), is_central, n_best, max_answer)
            if score > best:
                begin = int(inputs.begins[window])
                best, chosen = score, (begin + first, begin + last)
        texts.append(inputs.text(number, *chosen) if chosen else "")
        nulls[number] = null - best
    return SpanAnswers(texts, nulls)


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
    starts, ends = np.argsort(-logits[: offset + len(central) + 1], axis=0, kind="stable")[:n_best].T - offset
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
