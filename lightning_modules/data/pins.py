"""Pinned fingerprints of corpora, so that results everywhere are on the same text.

``pins.json`` holds, for each corpus of ``CORPORA`` and each made text of a grid, the SHA-256 and the size of its two
parts as ``Corpus.documents`` returns them: cleaned and split into sentences. Planning and tables only read the pins.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightning_modules import cached
from lightning_modules.config import ConfigError, identity
from lightning_modules.data.corpora import cipher, json_lines, made, made_pairs, parallel
from lightning_modules.data.corpora.own_text import hub_place, text_files
from lightning_modules.data.corpora.registry import corpus
from lightning_modules.data.corpora.sources import Split
from lightning_modules.data.settings import Data
from lightning_modules.files import version
from lightning_modules.pins import Part, Parts, Pins, compare, restored, stored
from lightning_modules.places import cache, note_elsewhere

_LINES = 2  # how files are cut into lines: it grows whenever the same files can give another text


@dataclass
class Meter:
    """Passes documents through and computes their fingerprint."""

    documents: int = 0
    sentences: int = 0
    words: int = 0
    _hash: Any = field(default_factory=hashlib.sha256)

    @property
    def part(self) -> Part:
        """The fingerprint of the documents so far."""
        return Part(self._hash.hexdigest(), self.documents, self.sentences, words=self.words)

    def __call__(self, documents: Iterable[list[str]]) -> Iterator[list[str]]:
        for document in documents:
            text = "\n".join(document)
            self._hash.update(text.encode() + b"\n\n")
            self.documents += 1
            self.sentences += len(document)
            self.words += text.count(" ") + len(document)
            yield document


def measured(name: str) -> Parts:
    """Reads a whole corpus and returns the fingerprints of its two parts."""
    return {split: _measured(name, split) for split in ("train", "heldout")}


def _measured(name: str, split: Split) -> Part:
    meter = Meter()
    for _ in meter(corpus(name).documents(split)):
        pass
    return meter.part


PINS = Pins("corpus", Path(__file__).with_name("pins.json"), str, measured)
pinned = PINS.pinned


def expected(name: str) -> Parts:
    """The fingerprints of a corpus's parts: its pins, or, for the user's own corpus, measured once and cached."""
    if name in (known := pinned()):
        return known[name]
    try:
        path = _place(name)
    except ConfigError:  # no file matches
        if not cached.is_sound(_by_name(name)):
            raise
        path = _by_name(name)
    return restored(cached.kept_json(path, lambda: stored(measured(name))))


def keep_by_name(name: str) -> None:
    """Keeps the fingerprints of a corpus of the user's own for machines that lack its files: there the name is enough.

    Raises:
        ConfigError: When the text is missing.
    """
    if name in pinned():
        return
    parts = stored(expected(name))
    with cached.locked(_by_name(name)):
        cached.write(_by_name(name), lambda file: cached.put_json(file, parts))
    cached.digest(_by_name(name))  # for `cached.noting`


def _by_name(name: str) -> Path:
    return cache() / "fingerprints" / f"by-name-{identity(name)[:24]}.json"


def is_known(name: str) -> bool:
    """Whether the fingerprints of a corpus are pinned, or cached, so that no text has to be read for them.

    Raises:
        ConfigError: For a corpus of the user's own that is missing.
    """
    if name in pinned():
        return True
    try:
        return cached.is_sound(_place(name))
    except ConfigError:
        if cached.is_sound(_by_name(name)):
            return True
        raise


def _place(name: str) -> Path:
    return cache() / "fingerprints" / f"{identity(_state(name))[:24]}.json"


def _state(name: str) -> list:
    """What shows, without reading it, that a corpus has changed: `version` of its files, or how it is made."""
    kind, _, rest = name.partition(":")
    if kind in (made.PREFIX, made_pairs.PREFIX):
        return [name, made.RECIPE if kind == made.PREFIX else made_pairs.RECIPE]
    if kind == cipher.PREFIX:
        return [name, made.RECIPE, cipher.RECIPE]
    note_elsewhere(name)
    files: list[Path] = text_files(rest) if kind == "text" else []
    if kind == json_lines.PREFIX:
        files = text_files(json_lines.split_name(rest)[1])
    if kind in parallel.OWN:
        files = parallel.files(kind, rest)
    if kind in ("hub", "pairs"):
        rest = parallel.split_name(kind, rest)[1] if kind == "pairs" else rest
        place, _, is_local = hub_place(rest)
        files = sorted(p for p in Path(place).rglob("*") if p.is_file()) if is_local else []
    return [name, _LINES, [[str(path), *version(path)] for path in files]]


def digest(parts: Parts) -> str:
    """The fingerprint of a whole corpus."""
    return identity({split: part.sha256 for split, part in parts.items()})


def fingerprints(data: Data) -> dict[str, str]:
    """Corpus of the text -> its fingerprint; see `fingerprints_of`."""
    return fingerprints_of(data.corpora)


def fingerprints_of(names: Iterable[str]) -> dict[str, str]:
    """Corpus -> fingerprint of its cleaned text. Pinned corpora are not opened."""
    return {name: fingerprint(name) for name in names}


def fingerprint(name: str) -> str:
    """The fingerprint of the cleaned text of a corpus."""
    return digest(expected(name))


def check(name: str, split: Split, actual: Part) -> None:
    """Compares the fingerprint of a text with the expected one.

    Raises:
        DataMismatch: Naming both.
    """
    advice = "Check the versions of the files, gensim and sentencex: results on another text do not compare. "
    advice += f"To pin the new text: {PINS.how(name)}"
    compare(f"the documents of '{name}' ({split})", actual, expected(name)[split], advice)
