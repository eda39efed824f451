"""A cloze made from held-out text, after the Children's Book Test (Hill et al. 2016): which word stood here?

In a stretch of some twenty sentences one content word is left out that occurs earlier in the stretch. The other options
are content words of the stretch before it, written as the answer is, with a capital or without. An option's text is the
word and the rest of its sentence. Own construction: compare nothing with scores that are printed for that test.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lightning_modules.config import ConfigError
from lightning_modules.draws import Draws
from lightning_modules.zero_shot import stretches
from lightning_modules.zero_shot.function_words import is_content, words_of
from lightning_modules.zero_shot.options import Choice, Options
from lightning_modules.zero_shot.task import Asking, OfRun

_RECIPE = 1  # raise when the same text would give other questions
_OPTIONS = 10
_TAIL = re.compile(r"[^.!?]*[.!?]?")  # the rest of a sentence
_PLAIN = re.compile(r"[^\W\d_]+(?=[,;:.!?]?$)")  # a word without signs before it
_TOKENS = 300.0  # of a question with an option, the estimate of plans


@dataclass(frozen=True)
class Cloze(OfRun, Options):
    """Words left out of held-out text."""

    source: str = "made from the held-out text of a run, after Hill et al. 2016, The Goldilocks Principle"
    recipe = (_RECIPE, stretches.RECIPE, stretches.MOST, _OPTIONS)
    own_split: str = "made from the run's own held-out text"

    metrics = {"accuracy": Options.metrics["accuracy"]}
    methods = {
        "chance": "chance",
        "majority": "majority class",
        "frequent": "most frequent option of the passage",
    }
    rule = "sum"

    def size(self) -> tuple[int, int, float]:
        return stretches.MOST, _OPTIONS, _TOKENS

    def questions(self, asking: Asking) -> list[Choice]:
        if asking.data is None:
            return []
        found = [question for n, (text, _) in enumerate(stretches.chosen(asking.data)) if (question := made(text, n))]
        if len(found) < 2:
            raise ConfigError(
                [f"the held-out text of {' and '.join(asking.data.corpora)} gives no two cloze questions"]
            )
        return found

    def simple(self, questions: Sequence[Choice]) -> dict[str, float]:
        chance = float(np.mean([1 / len(question.options) for question in questions]))
        return {**super().simple(questions), "chance": chance}


def made(text: str, number: int) -> Choice | None:
    """The question of a stretch: its last word that can be left out; None if there is none.

    >>> text = "Anna met Peter near the river. Bruno saw Clara there. Then Anna waved and left."
    >>> question = made(text, 0)
    >>> question.prompts[0].endswith("there. Then"), question.options[question.label]
    (True, 'Anna waved and left.')
    """
    words = text.split(" ")
    plain = [found[0] if (found := _PLAIN.match(word)) and is_content(found[0]) else "" for word in words]
    for place in range(len(words) - 1, 0, -1):
        answer, before = plain[place], plain[:place]
        if not answer or answer not in before or words[place - 1][-1:] in ".!?\"'”’":  # it begins a sentence
            continue
        capital, bare = answer[0].isupper(), answer.lower()
        others = [
            word
            for word in dict.fromkeys(reversed(before))
            if word and word.lower() != bare and word[0].isupper() == capital
        ]
        if others:
            return _choice(words, place, answer, others, number)
    return None


def _choice(words: Sequence[str], place: int, answer: str, others: list[str], number: int) -> Choice:
    sample = np.array([number])
    noise = Draws(0, rows=sample, sample=sample, epoch=np.zeros_like(sample)).uniform("cloze", len(others) + 1)[0]
    chosen = [others[n] for n in np.argsort(noise[:-1])[: _OPTIONS - 1]]
    label = int(noise[-1] * (len(chosen) + 1))
    rest = " ".join(words[place:])[len(answer) :]
    tail = _TAIL.match(rest)
    options = [*chosen[:label], answer, *chosen[label:]]
    passage = " ".join(words[:place])
    guesses = {"frequent": _most_frequent(passage, options)}
    return Choice((passage,), tuple(word + (tail[0] if tail else "") for word in options), label, guesses)


def _most_frequent(passage: str, options: Sequence[str]) -> int:
    """The option that the passage has most often, the last one on ties."""
    seen = words_of(passage)
    counts, last = Counter(seen), {word: place for place, word in enumerate(seen)}
    return max(range(len(options)), key=lambda n: (counts[options[n]], last.get(options[n], -1)))
