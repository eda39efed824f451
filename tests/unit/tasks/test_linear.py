"""The linear model of words: a penalty that is chosen by its own labels."""

import numpy as np
import pytest

from lightning_modules.tasks.baselines import linear as module
from lightning_modules.tasks.baselines.linear import linear
from lightning_modules.tasks.shapes.texts import TextExamples, Texts

NEUTRAL = [f"word{n}" for n in range(30)]


def texts(count, seed, clear=0.6):
    """A few words that say the label among many that do not, as in long reviews."""
    noise = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    rows = []
    for label in labels:
        words = list(noise.choice(NEUTRAL, 12))
        if noise.random() < clear:
            words.append(("awful", "superb")[label])
        rows.append(" ".join(words))
    return TextExamples(rows, None, labels.astype(np.int64))


def test_a_tuned_penalty_is_one_of_those_and_is_chosen_without_what_is_scored(monkeypatch):
    train, dev = texts(60, 0), texts(200, 1)
    found = {}
    for penalty in module.PENALTIES:
        monkeypatch.setattr(module, "PENALTIES", (penalty,))
        found[penalty] = linear(train, dev, tuned=True).tolist()
    assert len({tuple(answers) for answers in found.values()}) > 1
    monkeypatch.undo()
    chosen = linear(train, dev, tuned=True).tolist()
    assert chosen in found.values()
    turned = TextExamples(dev.first, None, 1 - dev.labels)
    assert linear(train, turned, tuned=True).tolist() == chosen


def test_a_class_with_too_few_examples_has_the_default_penalty():
    few = texts(60, 0).take(np.array([0, 1, 2, 4, 6, 8]))  # one of the second class
    dev = texts(50, 1)
    assert linear(few, dev, tuned=True).tolist() == linear(few, dev).tolist()


@pytest.mark.parametrize("tuned", [True, False])
def test_tables_say_whether_it_is_tuned(tuned):
    shape = Texts(labels=("no", "yes"), tuned=tuned)
    assert ("tuned" in shape.methods["tfidf"]) == tuned
    train, dev = texts(60, 0), texts(50, 1)
    assert shape.baselines(train, dev)["tfidf"].tolist() == linear(train, dev, tuned=tuned).tolist()
