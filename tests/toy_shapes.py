"""A task of each further shape that a tiny model learns in seconds, of the words of the corpus ``text_file``."""

import numpy as np

from lightning_modules.tasks import Task
from lightning_modules.tasks.choice import Choice, Question
from lightning_modules.tasks.coreference import Coreference, Mentioned
from lightning_modules.tasks.tagging import Sentence, Tagging

COUNTS = {"train": 96, "dev": 32}


def _words(noise, low, high, most=5):
    return [f"w{number:02d}" for number in noise.integers(low, high, int(noise.integers(1, most)))]


def _noise(split):
    return np.random.default_rng([len(split), 7])


def names(split):
    """A word from w30 on is a name, of type X from w45 on; documents have four sentences."""
    noise = _noise(split)
    for number in range(COUNTS[split]):
        words = _words(noise, 0, 59, most=9)
        tags = ["O" if word < "w30" else "B-X" if word >= "w45" else "B-Y" for word in words]
        yield Sentence(tuple(words), tuple(tags), number // 4)


def options(split):
    """The option whose words are high is right."""
    noise = _noise(split)
    for _ in range(COUNTS[split]):
        label = int(noise.integers(3))
        found = [" ".join(_words(noise, 30, 59) if n == label else _words(noise, 0, 30)) for n in range(3)]
        yield Question(" ".join(_words(noise, 0, 59)), "w00", tuple(found), label)


def mentions(split):
    """The pronoun means the name that is high, and neither if both are low."""
    noise = _noise(split)
    for number in range(COUNTS[split]):
        label = int(noise.integers(3))
        places = [(30, 59) if n == label else (0, 30) for n in range(2)]
        parts = [_words(noise, *place, most=2)[0] for place in places]
        pronoun = "his" if noise.random() < 0.5 else "her"
        text, spans = "w01", []
        for part in (*parts, pronoun):
            text += " w02 "
            spans.append((len(text), len(text) + len(part)))
            text += part
        yield Mentioned(f"text-{number}", text, (spans[2], *spans[:2]), label)


def _task(name, shape, metrics, rows):
    return Task(name, f"{name}?", "made here", shape, metrics, rows)


TOYS = {
    "toy_names": _task("toy_names", Tagging(("X", "Y")), ("entity_f1", "precision", "recall", "accuracy"), names),
    "toy_context": _task("toy_context", Tagging(("X", "Y"), context=True), ("entity_f1", "accuracy"), names),
    "toy_options": _task("toy_options", Choice(3, last=6), ("accuracy",), options),
    "toy_alone": _task("toy_alone", Choice(3, context=False), ("accuracy",), options),
    "toy_mentions": _task("toy_mentions", Coreference(), ("f1", "masculine_f1", "feminine_f1", "accuracy"), mentions),
}
