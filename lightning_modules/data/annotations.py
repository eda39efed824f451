"""Annotations of a token store: made once by reading its corpora again, and kept beside its tokens.

A store holds no text, so that the sentences are read anew, annotated, and aligned with their pieces by letters. For
each piece there is 0 outside of spans, 1 where a span begins and 2 inside.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from lightning_modules import cached
from lightning_modules.batch import Annotation
from lightning_modules.config import identity
from lightning_modules.data.corpora.registry import Split
from lightning_modules.data.settings import Data
from lightning_modules.data.store import Progress, TokenStore, batches, open_store, tokenizer_file
from lightning_modules.data.text.annotators import Annotator, Spans, annotator
from lightning_modules.data.text.encode import Encoder

RECIPE = 1  # raise when the same annotator would give other marks
BEGINS, INSIDE = 1, 2


def open_annotated(data: Data, split: Split, reads: Iterable[Annotation]) -> TokenStore:
    """The token store of a split with annotations, those that are missing made first.

    Args:
        data: Corpora and tokenizer.
        split: The split.
        reads: Annotator and kind of tags of each annotation.

    Raises:
        ConfigError: When an annotator is not installed.
    """
    store = open_store(data, split)
    files = {}
    for name, tags in sorted(reads):
        by = annotator(name, tags)
        path = store.folder / f"marks-{identity([name, tags, by.version, RECIPE])[:12]}.npy"
        title = f"{tags} by {name}"
        cached.kept(path, lambda file: cached.put_array(file, _marks(store, data, split, by, title)), lambda path: path)  # noqa: B023
        files[name, tags] = path
    return replace(store, mark_files=files)


def _marks(store: TokenStore, data: Data, split: Split, by: Annotator, title: str) -> np.ndarray:
    marks = np.zeros(len(store.ids), dtype=np.uint8)
    letters = _Letters(Encoder(tokenizer_file(data), data.tokenizer.kind))
    progress = Progress(f"annotation of {' + '.join(data.corpora)} ({split}): {title}")
    number = words = 0
    for _, sentences, _ in batches(data, split):
        for sentence, spans in zip(sentences, by.spans(sentences), strict=True):
            start, end = store.sentences[number : number + 2]
            letters.mark(marks[start:end], sentence, spans)
            words += sentence.count(" ") + 1
            number += 1
        progress(words)
    progress.done()
    return marks


class _Letters:
    """Which letters of a word each of its pieces stands for."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._known: dict[str, Sequence[tuple[int, int]]] = {}

    def mark(self, marks: np.ndarray, sentence: str, spans: Spans) -> None:
        """Marks the pieces of a sentence that have letters of a span, in place.

        Raises:
            ValueError: When the sentence has another number of pieces than marks.
        """
        if not spans:
            return
        place, ends = [], []  # of pieces, in letters of the sentence
        at = 0
        for word in sentence.split(" "):
            for first, last in self._pieces(word):
                place.append(at + first)
                ends.append(at + last)
            at += len(word) + 1
        if len(place) != len(marks):
            raise ValueError(f"a sentence of {len(marks)} pieces has {len(place)} now: {sentence[:60]!r}")
        first, last = np.array(place), np.array(ends)
        for start, end in spans:
            (inside,) = np.nonzero((first < end) & (last > start))
            marks[inside] = INSIDE
            marks[inside[:1]] = BEGINS

    def _pieces(self, word: str) -> Sequence[tuple[int, int]]:
        """First letter of each piece of a word, and the letter after its last."""
        if word not in self._known:
            self._known[word] = self._encoder.fast.encode(word, add_special_tokens=False).offsets
        return self._known[word]
