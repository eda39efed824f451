"""Probes with labels of others: large data sets, read with parts that no task is scored on.

Where a set's test part is read, it is for probes alone: no model is chosen by it and no fine-tuning is scored on it.
Training parts are fixed samples, the same for every run: a ridge regression needs no more.
"""

from dataclasses import replace

import numpy as np

from lightning_modules.config import identity
from lightning_modules.data.settings import Data
from lightning_modules.draws import permutation
from lightning_modules.probing.parts import Parts, Probe, kept
from lightning_modules.probing.sets import PINS, SETS
from lightning_modules.tasks.shapes.texts import TextExamples, Texts
from lightning_modules.tasks.task import SPLITS, Split

MOST = {  # examples of a part; all where nothing is said
    ("imdb", "train"): 4_000,
    ("imdb", "dev"): 10_000,
    ("qnli", "train"): 4_000,
    ("sst2", "train"): 5_000,
}
LAST_WORDS = {"imdb": 30}  # of long texts: models and word counts then read the same


class Labelled(Probe):
    """A probe with the labels of a data set, whose dev examples are those of its test part."""

    def fingerprint(self) -> str:
        sizes = [MOST.get((self.name, split)) for split in SPLITS]
        return identity([PINS.fingerprint(self.name), *sizes, LAST_WORDS.get(self.name)])

    def examples(self, data: Data) -> Parts:
        return kept(self.name, self.fingerprint(), lambda: Parts(self._part("train"), self._part("dev")))

    def _part(self, split: Split) -> TextExamples:
        examples, most = PINS.checked(self.name, split), MOST.get((self.name, split))
        assert isinstance(examples, TextExamples)
        if most is not None and most < len(examples):
            examples = examples.take(np.sort(permutation(0, f"probe {self.name} {split}", 0, len(examples))[:most]))
        if words := LAST_WORDS.get(self.name):
            examples = replace(examples, first=[" ".join(text.split()[-words:]) for text in examples.first])
        return examples


LABELLED = [
    Labelled(task.name, task.title, task.main, task.shape) for task in SETS.values() if isinstance(task.shape, Texts)
]
