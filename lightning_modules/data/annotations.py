"""Annotations of a token store, and the bytes behind its tokens: made once by reading its corpora again, and kept.

A store holds no text, so that the sentences are read again, annotated, and aligned with their pieces by letters. For
each piece there is 0 outside of spans, 1 where a span begins and 2 inside.
"""

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from lightning_modules import cached
from lightning_modules.batch import Annotation
from lightning_modules.config import identity
from lightning_modules.data.corpora.sources import Split
from lightning_modules.data.settings import Data
from lightning_modules.data.store import Progress, TokenStore, batches, open_store, tokenizer_file
from lightning_modules.data.text.annotators import Annotator, annotator
from lightning_modules.data.text.encode import Encoder, piece_bytes

RECIPE = 1  # raise when the same annotator would give other marks
_RECIPE_OF_BYTES = 1  # raise when the same text would give other bytes
BEGINS, INSIDE = 1, 2


def open_annotated(data: Data, split: Split, reads: Iterable[Annotation]) -> TokenStore:
    """The token store of a split with annotations, those that are missing made first.

    Args:
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
    parts = []
    encoder = Encoder(tokenizer_file(data), data.tokenizer.kind)
    progress, words = Progress(f"annotation of {' + '.join(data.corpora)} ({split}): {title}"), 0
    for _, sentences, _ in batches(data, split):
        parts.append(marked(encoder, sentences, by))
        words += sum(sentence.count(" ") + 1 for sentence in sentences)
        progress(words)
    progress.done()
    marks = np.concatenate(parts)
    if len(marks) != len(store.ids):
        raise ValueError(f"{store.folder} has {len(store.ids)} pieces, and its text {len(marks)}")
    return marks


def marked(encoder: Encoder, sentences: list[str], by: Annotator) -> np.ndarray:
    """The marks of the pieces of some sentences ``[n]``: 0 outside of spans, 1 where a span begins, 2 inside."""
    places = functools.cache(lambda word: encoder.fast.encode(word, add_special_tokens=False).offsets)
    ids, starts, texts = encoder.by_word(sentences)
    marks = np.zeros(len(ids), dtype=np.uint8)
    for sentence, spans, first in zip(sentences, by.spans(sentences), texts[:-1].tolist(), strict=True):
        for span in spans:
            _mark(marks, starts[first:], sentence, span, places)
    return marks


def _mark(
    marks: np.ndarray, starts: np.ndarray, sentence: str, span: tuple[int, int], places: Callable[[str], list]
) -> None:
    """Marks the pieces that have letters of a span, in place.

    Args:
        marks: The marks of a batch.
        starts: The first piece of each word of the sentence.
        sentence: Words separated by single spaces.
        span: First letter of the span, and the letter after its last.
        places: Word -> the letters of each of its pieces.
    """
    start, end = span
    at, mark = sentence.rfind(" ", 0, start + 1) + 1, BEGINS
    for number in range(sentence.count(" ", 0, at), sentence.count(" ", 0, end) + 1):
        word = sentence[at:].partition(" ")[0]
        for piece, (first, last) in enumerate(places(word), start=int(starts[number])):
            if at + first < end and at + last > start:
                marks[piece], mark = mark, INSIDE
        at += len(word) + 1


def token_bytes(data: Data, split: Split, store: TokenStore) -> np.ndarray:
    """The bytes behind each token of a store ``[n]``, kept next to it: `piece_bytes` of its text."""

    def compute() -> np.ndarray:
        encoder = Encoder(tokenizer_file(data), data.tokenizer.kind)
        found = np.concatenate([piece_bytes(encoder, sentences) for _, sentences, _ in batches(data, split)])
        assert len(found) == len(store.ids), "the same text in the same pieces"
        return found.astype(np.min_scalar_type(int(found.max(initial=0))))

    return cached.kept_array(store.folder / f"bytes-{_RECIPE_OF_BYTES}.npy", compute)
