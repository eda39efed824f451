"""Token stores: the text of corpora as one memory-mapped array of token ids, built once and shared by all runs.

A store is a folder: ``ids.bin`` (uint16 or uint32), ``sentences.npy`` and ``documents.npy`` (offsets),
``vocabulary.json``, and ``meta.json`` with their digests, the store's place and where each corpus begins. It is built
under a file lock in a temporary folder that is renamed when complete, so a killed build never looks like a store. One
whose files are not as they were written, that has no digests, or that was built at another place, is built again.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch

from lightning_modules import cached
from lightning_modules.batch import Annotation, Tokens
from lightning_modules.config import ConfigError, identity
from lightning_modules.data import pins
from lightning_modules.data.corpora.registry import corpus
from lightning_modules.data.corpora.sources import Split
from lightning_modules.data.settings import Data
from lightning_modules.data.text import tokenizer
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.text.tokenizer import Vocabulary
from lightning_modules.files import read
from lightning_modules.places import cache

_FORMAT = 2
_BATCH_WORDS = 400_000  # words encoded at once
_FILES = ("ids.bin", "sentences.npy", "documents.npy", "vocabulary.json")
_BROKEN = (OSError, ValueError, KeyError, TypeError, RecursionError)


@dataclass(frozen=True, eq=False)
class TokenStore:
    """The tokens of one split.

    Attributes:
        ids: Token ids of the whole text, without special tokens ``[n]``.
        sentences: Start of each sentence, and the end ``[sentences + 1]``.
        documents: First sentence of each document, and the end ``[documents + 1]``.
        words: Number of space-separated words.
        corpora: First document of every corpus after the first.
        mark_files: Annotation (annotator and kind of tags) -> the file with its marks.
        made: How it is made of the store in its folder; None if it is that store.
        names: The corpora, in their order.
    """

    folder: Path
    ids: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    vocabulary: Vocabulary
    words: int
    corpora: tuple[int, ...] = ()
    mark_files: Mapping[Annotation, Path] = field(default_factory=dict)
    made: "Callable[[TokenStore], TokenStore] | None" = None
    names: tuple[str, ...] = ()

    @classmethod
    def open(cls, folder: Path, mark_files: Mapping[Annotation, Path] = MappingProxyType({})) -> "TokenStore":
        """Opens a store whose files are as they were written: 0.1 s per 100 MB the first time in a process.

        Raises:
            OSError, ValueError, KeyError: When the folder is missing, incomplete or altered.
        """
        meta = json.loads(read(folder / "meta.json"))
        if meta["format"] != _FORMAT:
            raise ValueError(f"{folder} has another format")
        if not cached.is_at(folder, meta.get("place", folder.name)):
            raise ValueError(f"{folder} was built at {meta['place']}")
        for name in _FILES:
            if cached.digest(folder / name) != meta["digests"][name]:
                raise ValueError(f"{folder / name} is not as it was written")
        listed = json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))
        vocabulary = Vocabulary.of(listed["pieces"], listed["kind"])
        ids = np.asarray(np.memmap(folder / "ids.bin", dtype=vocabulary.dtype, mode="r"))
        vocabulary = replace(vocabulary, text=ids)
        sentences = np.load(folder / "sentences.npy", mmap_mode="r")
        documents = np.load(folder / "documents.npy", mmap_mode="r")
        return cls(
            folder,
            ids,
            np.asarray(sentences),
            np.asarray(documents),
            vocabulary,
            meta["words"],
            tuple(meta["first_documents"]),
            mark_files,
            names=tuple(meta["corpora"]),
        )

    def __reduce__(self) -> tuple:
        # a loader's worker maps the files instead of receiving them
        return _opened, (self.folder, dict(self.mark_files), self.made)

    @cached_property
    def marks(self) -> dict[Annotation, np.ndarray]:
        """Annotation -> 1 where a span begins, 2 inside, else 0 ``[n]``."""
        return {name: np.load(path, mmap_mode="r") for name, path in self.mark_files.items()}

    def marks_at(self, source: np.ndarray, text: np.ndarray) -> dict[Annotation, torch.Tensor]:
        """Annotation -> its marks at some places of the text ``[b t]``, 0 where there is no text."""
        return {
            name: torch.from_numpy(np.where(text, marks[np.clip(source, 0, len(marks) - 1)], 0).astype(np.int64))
            for name, marks in self.marks.items()
        }

    def rows(
        self, indices: np.ndarray, source: np.ndarray, separator: np.ndarray, real: np.ndarray, segment: np.ndarray
    ) -> Tokens:
        """Sequences with these numbers, as rows ``[b t]`` of [CLS] and the tokens at places of the text.

        Args:
            source: The place of each position's token ``[b t]``.
            separator: Which positions are [SEP] ``[b t]``.
            real: Which are no padding ``[b t]``.
            segment: The segment of each ``[b t]``.
        """
        ids = self.ids[np.clip(source, 0, len(self.ids) - 1)].astype(np.int64)
        ids[~real], ids[separator], ids[:, 0] = self.vocabulary.pad, self.vocabulary.sep, self.vocabulary.cls
        special = separator | ~real
        special[:, 0] = True
        marks = self.marks_at(source, ~special)
        return Tokens.of(ids, special, real, indices, {"segment": segment}, marks=marks)

    @property
    def document_starts(self) -> np.ndarray:
        """Start of each document in ``ids``, and the end ``[documents + 1]``."""
        return self.sentences[self.documents]

    def text(self, start: int, end: int) -> str:
        """The pieces of a stretch of tokens, for display."""
        return " ".join(self.vocabulary.pieces[i] for i in self.ids[start:end])


def _opened(
    folder: Path, mark_files: Mapping[Annotation, Path], made: Callable[[TokenStore], TokenStore] | None
) -> TokenStore:
    store = TokenStore.open(folder, mark_files)
    return store if made is None else made(store)


def store_folder(data: Data, split: Split) -> Path:
    """Where the token store of a split is, once it is built."""
    key = {"corpora": pins.fingerprints(data), "tokenizer": tokenizer.fingerprint(tokenizer_file(data))}
    return cache() / "stores" / identity({**key, "format": _FORMAT})[:24] / split


def open_store(data: Data, split: Split) -> TokenStore:
    """The token store of a split of some corpora (corpus by corpus in the order of names).

    Opens it, or builds it first by streaming: about 10 M words in 20 s on one core.

    Raises:
        ConfigError: When a corpus is missing or too small for the vocabulary.
        DataMismatch: When the text differs from its pin.
    """
    folder = store_folder(data, split)
    try:
        return TokenStore.open(folder)
    except _BROKEN:
        pass
    with cached.locked(folder):
        try:
            return TokenStore.open(folder)  # another process has built it meanwhile
        except _BROKEN as reason:
            cached.announce(folder, f"cannot be used ({type(reason).__name__}: {reason})")
            with cached.reporting(folder):
                _place(data, split, tokenizer_file(data), folder)
    return TokenStore.open(folder)


def tokenizer_file(data: Data) -> Path:
    """The file of the tokenizer of some corpora, from the cache or trained now.

    Raises:
        ConfigError: When it has to be trained and a corpus is missing or too small for the vocabulary.
    """
    try:
        return tokenizer.trained(data.tokenizer, _learnt_from(data), _tokenizer_text(data.tokenized_by))
    except ConfigError as error:
        if not data.tokenizer.corpora:
            raise
        where = "neither in the cache nor kept with the weights of a run that this one starts from"
        text = f"the tokenizer of {', '.join(data.tokenizer.corpora)} is {where}, and cannot be trained:"
        raise type(error)([f"{text} {problem}" for problem in error.problems]) from None


def tokenizer_place(data: Data) -> Path:
    """Where `tokenizer_file` looks in the cache."""
    return tokenizer.place(data.tokenizer, _learnt_from(data))


def pieces(data: Data) -> tuple[str, ...]:
    """The pieces of the tokenizer of some corpora, in the order of their ids."""
    return Encoder(tokenizer_file(data), data.tokenizer.kind).vocabulary.pieces


def _learnt_from(data: Data) -> dict[str, str]:
    return pins.fingerprints_of(data.tokenized_by.corpora)


def _tokenizer_text(settings: tokenizer.Tokenizer) -> Iterator[str]:
    """The sentences for training a tokenizer; of long texts a fixed sample of the documents."""
    share = tokenizer.TRAINING_WORDS / sum(pins.expected(name)["train"].words for name in settings.corpora)
    for name in settings.corpora:
        meter = pins.Meter()
        for number, document in enumerate(meter(corpus(name).documents("train"))):
            if share >= 1 or tokenizer.sampled(number, share):
                yield from document
        pins.check(name, "train", meter.part)


def _place(data: Data, split: Split, tokenizer_path: Path, folder: Path) -> None:
    """Builds a store next to ``folder`` and moves it there. The caller must hold the lock."""
    for stale in folder.parent.glob(f"{split}.building-*"):
        cached.vacate(stale)
    building = folder.with_suffix(f".building-{os.getpid()}")
    building.mkdir()
    try:
        _build(data, split, tokenizer_path, building, cached.place(folder))
        cached.vacate(folder)  # altered, if it is there
        os.replace(building, folder)
    except Exception:
        shutil.rmtree(building, ignore_errors=True)  # a full disk needs the room
        raise


def _build(data: Data, split: Split, tokenizer_path: Path, building: Path, place: str) -> None:
    encoder = Encoder(tokenizer_path, data.tokenizer.kind)
    vocabulary = encoder.vocabulary
    lengths: list[np.ndarray] = []
    documents, words, progress = [0], 0, Progress(f"token store of {' + '.join(data.corpora)} ({split})")
    first_documents: dict[str, int] = {}
    with open(building / "ids.bin", "wb") as file:
        for name, sentences, sizes in batches(data, split):
            first_documents.setdefault(name, len(documents) - 1)
            ids, counts = encoder(sentences)
            file.write(np.ascontiguousarray(ids, dtype=vocabulary.dtype).data)
            lengths.append(counts)
            documents += (documents[-1] + np.cumsum(sizes)).tolist()
            words += sum(sentence.count(" ") + 1 for sentence in sentences)
            progress(words)
        file.flush()
        os.fsync(file.fileno())
    starts = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    for name, offsets in (("sentences.npy", starts), ("documents.npy", np.array(documents, dtype=np.int64))):
        with open(building / name, "wb") as file:
            cached.put_array(file, offsets)
    (building / "vocabulary.json").write_text(
        json.dumps({"kind": data.tokenizer.kind, "pieces": vocabulary.pieces}), "utf-8"
    )
    meta = {
        "format": _FORMAT,
        "place": place,
        "tokens": int(starts[-1]),
        "sentences": len(starts) - 1,
        "words": words,
        "documents": len(documents) - 1,
        "first_documents": [*first_documents.values()][1:],
        "digests": {name: cached.digest(building / name) for name in _FILES},
        "corpora": list(data.corpora),
        "tokenizer": data.tokenizer.to_dict(),
    }
    (building / "meta.json").write_text(json.dumps(meta, indent=2), "utf-8")
    progress.done()


def batches(data: Data, split: Split) -> Iterator[tuple[str, list[str], list[int]]]:
    """Corpus, sentences and the number of sentences of each document, in batches of whole documents of a corpus.

    Raises:
        DataMismatch: At the end of a corpus whose text differs from its pin.
    """
    sentences, sizes, words = [], [], 0
    for name in data.corpora:
        meter = pins.Meter()
        for document in meter(corpus(name).documents(split)):
            sentences += document
            sizes.append(len(document))
            if meter.words - words >= _BATCH_WORDS:
                yield name, sentences, sizes
                sentences, sizes, words = [], [], meter.words
        pins.check(name, split, meter.part)
        if sentences:
            yield name, sentences, sizes
        sentences, sizes, words = [], [], 0


class Progress:
    """Prints the progress of a build to standard error: one changing line in a terminal, else a line every 15 s."""

    def __init__(self, what: str) -> None:
        self.what, self.started, self.printed = what, time.monotonic(), time.monotonic()
        self.live = sys.stderr.isatty()
        self.shown = False

    def __call__(self, words: int) -> None:
        now = time.monotonic()
        if now - self.printed < (0.5 if self.live else 15):
            return
        self.printed, self.shown = now, True
        line = f"building the {self.what}: {words / 1e6:.1f} M words, {now - self.started:.0f} s"
        print(line, end="\r" if self.live else "\n", file=sys.stderr, flush=True)

    def done(self) -> None:
        if self.shown:
            print(
                f"built the {self.what} in {time.monotonic() - self.started:.0f} s",
                file=sys.stderr,
                flush=True,
            )
