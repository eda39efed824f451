"""Bigram shift, a task that needs no download: were two neighbouring words of the sentence swapped?

One of the probing tasks of Conneau et al. (2018, section 2), made from the articles of ``wikipedia-mini``: training
sentences from its train part, dev sentences from its held-out part. Half the sentences are swapped; no sentence
occurs twice. Unlike the paper, whose text is tokenised, it swaps only words made of letters, so that no comma moves,
and never the first word, whose capital would give the swap away.
"""

import itertools
from collections.abc import Iterator

from lightning_modules import cached
from lightning_modules.config import identity
from lightning_modules.data.corpora.registry import corpus
from lightning_modules.data.pins import digest, expected
from lightning_modules.draws import permutation
from lightning_modules.places import cache
from lightning_modules.tasks.shapes.texts import Row, Texts
from lightning_modules.tasks.task import Split, Task

_CORPUS = "wikipedia-mini"
_SIZES = {"train": 4000, "dev": 500}
_WORDS = range(5, 29)  # of a sentence, as in the paper


def rows(split: Split) -> Iterator[Row]:
    """The examples of a split, cached because making them takes seconds."""
    key = identity([digest(expected(_CORPUS)), _SIZES[split], list(_WORDS)])[:16]
    path = cache() / "tasks" / f"bigram_shift-{split}-{key}.json"
    held = cached.kept_json(path, lambda: list(_made(split)))
    return (Row(*row) for row in held)


def _made(split: Split) -> Iterator[Row]:
    """A fixed sample of sentences, every second one with a swap at a fixed place."""
    documents = corpus(_CORPUS).documents("train" if split == "train" else "heldout")
    sentences = {sentence: None for document in documents for sentence in document}
    candidates = [(words, places) for words in map(str.split, sentences) if (places := swappable(words))]
    for number, chosen in enumerate(
        permutation(0, f"bigram shift {split}", 0, len(candidates))[: _SIZES[split]].tolist()
    ):
        words, places = candidates[chosen]
        if number % 2:
            place = places[permutation(0, f"bigram shift place {split}", chosen, len(places))[0]]
            words[place : place + 2] = words[place + 1], words[place]
        yield Row(" ".join(words), None, str(number % 2))


def swappable(words: list[str]) -> list[int]:
    """Where a word may be swapped with the next: both made of letters, different, and not the first of the sentence."""
    if len(words) not in _WORDS:
        return []
    pairs = enumerate(itertools.pairwise(words[1:]), 1)
    return [
        i
        for i, (word, following) in pairs
        if word.isalpha() and following.isalpha() and word.lower() != following.lower()
    ]


ROWS = (
    Task(
        name="bigram_shift",
        title="Bigram shift: are two neighbouring words of the sentence swapped?",
        source="after Conneau et al. 2018, What you can cram into a single vector, made from wikipedia-mini",
        shape=Texts(labels=("original", "swapped")),
        rows=rows,
        licence="CC BY-SA 3.0, like the Wikipedia articles it is made from",
        own_split="a sample of our own, whose sentences are not the paper's",
    ),
)
