"""Exact match and F1 of answers in words, as the evaluation scripts of SQuAD 1.1 and 2.0 measure them.

Rajpurkar et al. 2016, section 6.1, and 2018, section 5.1. Shares from 0 to 1 here, percentages there.
"""

import hashlib
import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """Lower-cased, without ASCII punctuation and articles, words separated by single spaces.

    >>> normalised("The  Duke's (1990)")
    'dukes 1990'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def word_f1(answer: str, gold: str) -> float:
    """The harmonic mean of precision and recall of words of two normalised texts, repetitions counted.

    Without words on either side 1 if both have none, as in the script of 2.0; that of 1.1 gives 0.
    """
    found, wanted = answer.split(), gold.split()
    if not found or not wanted:
        return float(found == wanted)
    same = sum((Counter(found) & Counter(wanted)).values())
    return 2 * same / (len(found) + len(wanted))


def best_of(answer: str, golds: Sequence[str], unanswerable: bool) -> tuple[float, float]:
    """Exact match and F1 of an answer with the marked answer that it is most like.

    Args:
        answer: The answer; "" says that there is none.
        golds: The marked answers; none where the passage holds no answer.
        unanswerable: Whether that may be, as in 2.0: then marked answers that are empty once they are normalised do
            not count, and without others "" is right.
    """
    said, wanted = normalised(answer), [normalised(gold) for gold in golds]
    if unanswerable:
        wanted = [gold for gold in wanted if gold] or [""]
    exact = max(float(said == gold) for gold in wanted)
    if not said and not unanswerable:
        return exact, 0.0
    return exact, max(word_f1(said, gold) for gold in wanted)


def best_threshold(nulls: np.ndarray, given: np.ndarray, withheld: np.ndarray) -> float:
    """The threshold that scores best: questions with a null score above it are answered with "".

    As ``find_best_thresh`` of the script of 2.0, but questions with the same null score stay together.

    Args:
        nulls: How much speaks for there being no answer ``[n]``.
        given: The score of each question if it is answered ``[n]``.
        withheld: The same if it is answered with "" ``[n]``.

    Returns:
        The null score of the last question that is answered; minus infinity if none had better be, 0 without any.
    """
    if not len(nulls):
        return 0.0
    order = np.argsort(nulls, kind="stable")
    ranked, gain = nulls[order], np.cumsum((given - withheld)[order])
    last = np.append(ranked[1:] != ranked[:-1], True)
    if gain[last].max() <= 0:
        return -np.inf
    return float(ranked[last][gain[last].argmax()])


def halves(ids: Sequence[str]) -> np.ndarray:
    """In which of two halves each question is, by a hash of its id ``[n]``."""
    return np.array([hashlib.sha256(name.encode()).digest()[0] % 2 == 1 for name in ids], dtype=bool)
