"""A probe made from the held-out text of a run's corpora."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lightning_modules.config import identity
from lightning_modules.data.corpora.registry import corpus
from lightning_modules.data.pins import fingerprints
from lightning_modules.data.settings import Data
from lightning_modules.probing.made import order, words
from lightning_modules.probing.made.sentences import Example, Sentence, kept_sentences
from lightning_modules.probing.parts import Parts, Probe, TooFewExamples, kept
from lightning_modules.tasks.shapes.texts import Row

TRAIN, TEST = 4_000, 20_000  # most examples; the standard error of a share of 20,000 is .35 points
_LEAST = 20  # examples of a part
_EVERY = 3  # every third document is for training, the others are for testing
_RECIPE = 1  # raise when the same text would give other examples


@dataclass(frozen=True, kw_only=True)
class Made(Probe):
    """A probe made by a rule: class 0 is text as it is or the first choice, class 1 the other.

    Attributes:
        make: Sentences, most examples and name of the draw -> examples.
    """

    make: Callable[[Sequence[Sentence], int, str], list[Example]]

    def fingerprint(self) -> str:
        """The generation of the rule; the text has a fingerprint of its own."""
        return identity([self.name, _RECIPE, TRAIN, TEST])

    def examples(self, data: Data) -> Parts:
        """The examples from the held-out text of some corpora; no document gives both training and test examples.

        Raises:
            ConfigError: When a corpus is missing.
            TooFewExamples: When the held-out text gives fewer than 20 examples of a part.
        """
        return kept(self.name, [self.fingerprint(), fingerprints(data)], lambda: self._made(data))

    def _made(self, data: Data) -> Parts:
        made, places = [], []
        for part, sentences, most in zip(
            ("train", "test"), _sentences(tuple(fingerprints(data).items())), (TRAIN, TEST), strict=True
        ):
            examples = self.make(sentences, most, f"{self.name} {part}")
            if len(examples) < _LEAST:
                raise TooFewExamples(
                    [
                        f"the probe '{self.name}' finds {len(examples)} examples for its {part} part in the held-out "
                        f"text of {', '.join(data.corpora)}, and needs {_LEAST}. Leave it out of evaluation.probes."
                    ]
                )
            rows = (Row(" ".join(example.words), None, str(example.label)) for example in examples)
            made.append(self.shape.read(rows, self.name))
            places.append(np.array([example.place for example in examples]))
        is_read = all((found >= 0).all() for found in places)
        return Parts(*made, *(places if is_read else (None, None)))


@functools.lru_cache(maxsize=1)
def _sentences(corpora: tuple[tuple[str, str], ...]) -> tuple[list[Sentence], list[Sentence]]:
    """The sentences of the training and of the test documents; a sentence of both counts as training.

    Args:
        corpora: Names and fingerprints; one process may see two states of a text.
    """
    parts: tuple[list[list[str]], list[list[str]]] = ([], [])
    for name, _ in corpora:
        for number, document in enumerate(corpus(name).documents("heldout")):
            parts[number % _EVERY > 0].append(document)
    known = {sentence for document in parts[0] for sentence in document}
    return kept_sentences(parts[0]), kept_sentences(parts[1], known)


MADE = (
    Made("word_order", "Word order: were two neighbouring words swapped?", make=order.word_order),
    Made("far_order", "Far order: were two words exchanged that are apart?", make=order.far_order),
    Made("coordination", "Coordination: were the parts around a conjunction exchanged?", make=order.coordination),
    Made("distance", "Distance: is a word repeated at once, or four places away?", make=order.distance),
    Made("agreement", "Agreement: has the verb the wrong number?", make=words.agreement),
    Made("pronoun_case", "Case: has the pronoun the wrong case?", make=words.pronoun_case),
    Made("odd_word", "Odd word: was a word exchanged for one of another sentence?", make=words.odd_word),
    Made("word_class", "Word class: is the word a noun or a verb?", make=words.word_class, by_layer=True),
)
