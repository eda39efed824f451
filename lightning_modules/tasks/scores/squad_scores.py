"""Exact match and word F1 of answers, as in the evaluation scripts of SQuAD 1.1 and 2.0.

Rajpurkar et al. 2016, section 6.1, and 2018, section 5.1. Here they are shares from 0 to 1, there percentages.
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
    """The harmonic mean of word precision and recall of two normalised texts; repeated words count.

    If either text has no words, it is 1 if both have none (script of 2.0; that of 1.1 gives 0), else 0.
    """
    predicted, marked = answer.split(), gold.split()
    if not predicted or not marked:
        return float(predicted == marked)
    same = sum((Counter(predicted) & Counter(marked)).values())
    return 2 * same / (len(predicted) + len(marked))


def best_of(answer: str, golds: Sequence[str], unanswerable: bool) -> tuple[float, float]:
    """The best exact match and F1 of an answer over the marked answers.

    Args:
        answer: The answer; "" means "no answer".
        golds: The marked answers; empty if the passage has no answer.
        unanswerable: Whether passages may lack an answer, as in 2.0: then marked answers that are empty after
            normalisation do not count, and if no others remain, "" is right.
    """
    predicted, marked = normalised(answer), [normalised(gold) for gold in golds]
    if unanswerable:
        marked = [gold for gold in marked if gold] or [""]
    exact = max(float(predicted == gold) for gold in marked)
    if not predicted and not unanswerable:
        return exact, 0.0
    return exact, max(word_f1(predicted, gold) for gold in marked)


def best_threshold(nulls: np.ndarray, answered: np.ndarray, withheld: np.ndarray) -> float:
    """The best threshold of the null score, above which a question is answered with "".

    Like ``find_best_thresh`` of the script of 2.0, but questions with equal null scores stay together.

    Args:
        nulls: Null scores ``[n]``.
        answered: The score of each question with its answer ``[n]``.
        withheld: The score of each question with "" ``[n]``.

    Returns:
        The null score of the last question that is answered; minus infinity if none should be, 0 without questions.
    """
    if not len(nulls):
        return 0.0
    order = np.argsort(nulls, kind="stable")
    ranked, gain = nulls[order], np.cumsum((answered - withheld)[order])
    last = np.append(ranked[1:] != ranked[:-1], True)
    if gain[last].max() <= 0:
        return -np.inf
    return float(ranked[last][gain[last].argmax()])


def halves(ids: Sequence[str]) -> np.ndarray:
    """Which of two halves each question belongs to, by a hash of its id ``[n]``."""
    return np.array([hashlib.sha256(name.encode()).digest()[0] % 2 == 1 for name in ids], dtype=bool)
