"""The sliding-window baseline of reading comprehension: the candidate nearest to the question's words.

After Richardson et al. (2013, section 4), which Rajpurkar et al. (2016, section 5.1) use on SQuAD. It differs from
both in two ways: candidates are runs of words that start with a capital or a digit, not constituents of a parse; and
a word's weight falls with its distance from the candidate, where theirs is the same throughout the window.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np

from lightning_modules.tasks.reading.passages import SpanExamples
from lightning_modules.tasks.scores.squad_scores import normalised

_LONGEST = 6  # words of a candidate
_CLOSING = ",.;:!?)]\"'”"


class _Passage(NamedTuple):
    text: str
    words: list[tuple[int, int]]  # start and end of each
    places: dict[str, np.ndarray]  # normalised word -> its word numbers
    candidates: np.ndarray  # first word, and the one after the last [k 2]


def nearest(dev: SpanExamples) -> tuple[list[str], np.ndarray]:
    """For each question, the candidate nearest to the question's rare words.

    Returns:
        The answers and their scores: sums of a word's weight / (1 + words in between) ``[n]``.
    """
    bounds, passages = dev.bounds, []
    for number, text in enumerate(dev.contexts):
        part = slice(bounds.texts[number], bounds.texts[number + 1])
        passages.append(
            _passage(text, list(zip(bounds.starts[part].tolist(), bounds.ends[part].tolist(), strict=True)))
        )
    counts = Counter(word for passage in passages for word in passage.places)
    answers, scores = [], np.zeros(len(dev))
    for number, (question, where) in enumerate(zip(dev.questions, dev.where.tolist(), strict=True)):
        question_words = set(normalised(question).split())
        weights = {word: np.log(1 + len(passages) / counts[word]) for word in question_words if word in counts}
        answer, scores[number] = _best(passages[where], question_words, weights)
        answers.append(answer)
    return answers, scores


def _passage(text: str, words: list[tuple[int, int]]) -> _Passage:
    shown = [text[start:end] for start, end in words]
    places: dict[str, list[int]] = {}
    for n, word in enumerate(shown):
        places.setdefault(normalised(word), []).append(n)
    places.pop("", None)
    runs: list[list[int]] = []
    open_ = False
    for n, word in enumerate(shown):
        letters = word.lstrip("(\"'“[$£€")
        if letters[:1].isupper() or letters[:1].isdigit():
            if open_ and n + 1 - runs[-1][0] <= _LONGEST:
                runs[-1][1] = n + 1
            else:
                runs.append([n, n + 1])
            open_ = word[-1] not in _CLOSING
        else:
            open_ = False
    runs = runs or [[n, n + 1] for n in range(len(words))]
    return _Passage(text, words, {word: np.array(numbers) for word, numbers in places.items()}, np.array(runs))


def _best(passage: _Passage, question_words: set[str], weights: dict[str, float]) -> tuple[str, float]:
    first, stop = passage.candidates.T
    scores = np.zeros(len(first))
    for word, weight in weights.items():
        places = passage.places.get(word)
        if places is not None:
            apart = np.maximum(first[:, None] - places, places - stop[:, None] + 1)
            scores += weight / (1 + np.maximum(apart, 0).min(1))
    texts = [passage.text[passage.words[a][0] : passage.words[b - 1][1]] for a, b in passage.candidates.tolist()]
    new = np.array([not set(normalised(text).split()) <= question_words for text in texts])
    chosen = int(np.where(new, scores, -1.0).argmax())
    return texts[chosen].strip(_CLOSING + "(\"'“["), float(scores[chosen])
