"""Sentence retrieval: which of a thousand sentences is the translation of this one, by the mean states of a layer?

Nothing is trained. From each state the mean of its language is taken off, over the sentences that are tested. An
embedding of the language, and whatever else all its sentences have, is the longest part of a mean state. It parts the
languages, distinguishes no sentence from another, and hides what does (Libovický et al. 2020, arXiv 2004.05160).
A pair scores by its margin (Artetxe and Schwenk 2019, section 3, the ratio), in which neighbours that are near to
everything count for little::

    score(x, y) = 2 k cos(x, y) / (sum of cos(x, z) over x's k nearest + sum of cos(y, z) over y's k nearest)

The accuracy is the mean over both directions, and chance is one in as many as there are pairs. Names, digits and words
that languages share reveal much without any model. So there are three bars, on the same pairs: words and digits,
n-grams of letters, and lengths.

The layer that counts is the one half-way up, fixed before any was read; the others have scores of their own. In models
of two to four layers the last one finds more.
"""

import hashlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from lightning_modules.config import identity
from lightning_modules.data.corpora import parallel
from lightning_modules.data.corpora.registry import corpus
from lightning_modules.data.corpora.sources import Origin
from lightning_modules.data.pins import fingerprints_of
from lightning_modules.data.settings import Data
from lightning_modules.pins import DataMismatch
from lightning_modules.probing.parts import Parts, Probe, TooFewExamples, kept
from lightning_modules.tasks.shapes.texts import TextExamples, Texts

NEIGHBOURS = 4  # k, as in Artetxe and Schwenk (2019)
FEWEST, MOST = 50, 1000  # pairs
RECIPE = 2  # raise when the same texts would be presented otherwise


_OF_PAIRS = Texts(labels=("another", "its translation"), pair=True)


@dataclass(frozen=True, kw_only=True)
class Retrieval(Probe):
    """A probe: sentences of English and their translations.

    Attributes:
        language: The language of the translations.
        files: Their English sentences and themselves, below ``ABLATIONS_DATA``.
        sha256: Of the sentences of both, first digits.
    """

    shape: Texts = _OF_PAIRS
    by_layer: bool = True
    language: str
    files: tuple[str, str]
    sha256: str

    def languages(self, data: Data) -> tuple[str, ...]:
        """Those of both sentences."""
        return "en", self.language

    def fingerprint(self) -> str:
        """What its examples follow from, besides the corpora of a run: those of its sentences are left out."""
        return identity([RECIPE, self.sha256, NEIGHBOURS])

    def examples(self, data: Data) -> Parts:
        """The pairs of which neither sentence is in the training text of a run; no part of them is trained on."""
        key = [self.fingerprint(), fingerprints_of(data.corpora)]
        return kept(self.name, key, lambda: Parts(_none(), unread(self.name, self.sentences(), data)))

    def sentences(self) -> list[list[str]]:
        """All pairs.

        Raises:
            DataMismatch: When they are not the pinned ones.
        """
        origin = Origin(f"The probe {self.name}", {"test": self.files}, otherwise="Leave it out of evaluation.probes.")
        pairs = list(parallel.aligned(*origin.needed("test")))
        found = hashlib.sha256("\n".join(sentence for pair in pairs for sentence in pair).encode()).hexdigest()
        if found[: len(self.sha256)] != self.sha256:
            text = f"the sentences of {self.name} are not the pinned ones"
            raise DataMismatch([f"{text}: sha256 {found[:16]}, not {self.sha256}"])
        return pairs


@dataclass(frozen=True)
class HeldOutPairs(Probe):
    """A probe: sentences of the held-out part of a run's own parallel text, and their translations.

    They are those of the first parallel corpus in the order of names, whether or not the training shows pairs.
    """

    name: str = "own_pairs"
    title: str = "own pairs: which held-out sentence is the translation?"
    shape: Texts = _OF_PAIRS
    by_layer: bool = True

    def languages(self, data: Data) -> tuple[str, ...]:
        """Those of both sentences; none without parallel text."""
        name = _parallel(data)
        return corpus(name).languages if name else ()

    def fingerprint(self) -> str:
        """What its examples follow from, besides the corpora of a run."""
        return identity([RECIPE, MOST, NEIGHBOURS])

    def examples(self, data: Data) -> Parts:
        """The first pairs of which neither sentence is in the training text, each sentence once."""
        return kept(
            self.name, [self.fingerprint(), fingerprints_of(data.corpora)], lambda: Parts(_none(), self._own(data))
        )

    def _own(self, data: Data) -> TextExamples:
        name = _parallel(data)
        if not name:
            raise TooFewExamples([f"the probe {self.name} asks for pairs, and there is no parallel text: leave it out"])
        first: dict[str, str] = {}
        for one, other in corpus(name).documents("heldout"):
            if one not in first and other not in first.values():
                first[one] = other
            if len(first) == MOST:
                break
        return unread(self.name, list(map(list, first.items())), data)


def _parallel(data: Data) -> str:
    """The first corpus of pairs; empty without one."""
    return next((name for name in data.corpora if len(corpus(name).languages) == parallel.SIDES), "")


def unread(name: str, pairs: list[list[str]], data: Data) -> TextExamples:
    """The pairs of which neither sentence is in a training text.

    Raises:
        TooFewExamples: When it has nearly all.
    """
    wanted = {bare(sentence) for pair in pairs for sentence in pair}
    documents = itertools.chain.from_iterable(corpus(name).documents("train") for name in data.corpora)
    read = {text for text in map(bare, itertools.chain.from_iterable(documents)) if text in wanted}
    left = [pair for pair in pairs if not read & set(map(bare, pair))]
    if len(left) < FEWEST:
        text = f"the training text has all but {len(left)} of the {len(pairs)} pairs of the probe {name}"
        raise TooFewExamples([f"{text}, which needs {FEWEST}: name other corpora, or leave it out"])
    first, second = map(list, zip(*left, strict=True))
    return TextExamples(first, second, np.zeros(len(left), dtype=np.int64))


def _none() -> TextExamples:
    return TextExamples([], [], np.zeros(0, dtype=np.int64))


def bare(sentence: str) -> str:
    """A sentence without capitals and the marks at its end.

    >>> bare("Ein Mann  schläft.")
    'ein mann schläft'
    """
    return " ".join(sentence.lower().split()).strip(" .!?。！？")


def cosines(first: Float[np.ndarray, "n d"], second: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "n m"]:
    """The cosine of each of the first vectors with each of the second; 0 with a vector of zeros."""
    a, b = (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12) for rows in (first, second))
    return a @ b.T


def margins(cosine: Float[np.ndarray, "n m"], neighbours: int = NEIGHBOURS) -> Float[np.ndarray, "n m"]:
    """The ratio of each cosine to the mean of those of the nearest neighbours of both; 0 where these are 0."""
    k = min(neighbours, *cosine.shape)
    near = np.sort(cosine, 1)[:, -k:].mean(1)[:, None] + np.sort(cosine, 0)[-k:].mean(0)[None]
    return np.divide(2 * cosine, near, out=np.zeros_like(cosine), where=near > 0)


def right(scores: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " n"]:
    """In how many of both directions each pair is found, as a share; equal scores share the answer."""

    def found(rows: np.ndarray) -> np.ndarray:
        best = rows == rows.max(1, keepdims=True)
        return np.diagonal(best) / best.sum(1)

    return (found(scores) + found(scores.T)) / 2


def bars(examples: TextExamples) -> dict[str, float]:
    """The accuracies of three simple methods, and of the best of them."""
    assert examples.second is not None
    first, second = examples.first, examples.second
    found = {
        "words": right(margins(_tfidf(first, second, token_pattern=r"\w+"))).mean(),
        "letters": right(margins(_tfidf(first, second, analyzer="char_wb", ngram_range=(1, 4)))).mean(),
        "length": right(-_lengths(first, second)).mean(),
    }
    return {name: float(score) for name, score in found.items()} | {"best_simple": float(max(found.values()))}


def _tfidf(first: list[str], second: list[str], **form: object) -> Float[np.ndarray, "n n"]:
    from sklearn.feature_extraction.text import TfidfVectorizer  # seconds to import, which planning does without

    counted = TfidfVectorizer(sublinear_tf=True, **form)  # pyright: ignore[reportArgumentType]
    both: Any = counted.fit_transform([*first, *second])
    return np.asarray((both[: len(first)] @ both[len(first) :].T).todense())


def _lengths(first: list[str], second: list[str]) -> Float[np.ndarray, "n n"]:
    """How far two lengths in letters are from the usual ratio."""
    a, b = (np.log([max(1, len(text)) for text in texts]) for texts in (first, second))
    return np.abs((a - a.mean())[:, None] - (b - b.mean())[None])


def _tatoeba(language: str, letters: str, spoken: str, sha256: str) -> Retrieval:
    stem, title = f"tatoeba_laser/tatoeba.{letters}-eng", f"Tatoeba, {spoken}: which sentence is the translation?"
    files = f"{stem}.eng", f"{stem}.{letters}"
    return Retrieval(f"tatoeba_{language}", title, language=language, files=files, sha256=sha256)


def _multi30k(language: str, spoken: str, sha256: str) -> Retrieval:
    stem, title = "multi30k/test_2016_flickr", f"Multi30k, {spoken}: which caption is the translation?"
    files = f"{stem}.en", f"{stem}.{language}"
    return Retrieval(f"multi30k_{language}", title, language=language, files=files, sha256=sha256)


RETRIEVALS: tuple[Retrieval | HeldOutPairs, ...] = (
    _multi30k("cs", "Czech", "aa38b462ff6ce95a"),
    _multi30k("de", "German", "5f1db9f087526481"),
    HeldOutPairs(),
    _multi30k("fr", "French", "acc4092763665361"),
    _tatoeba("ar", "ara", "Arabic", "a6e7832cf7107123"),
    _tatoeba("de", "deu", "German", "b75c7a963f2a43e1"),
    _tatoeba("es", "spa", "Spanish", "70320f8cf515771f"),
    _tatoeba("fr", "fra", "French", "84f9acac2eece4b2"),
    _tatoeba("ru", "rus", "Russian", "9b8f0ebcc6ef5093"),
    _tatoeba("vi", "vie", "Vietnamese", "f3e3befdd564c6a9"),
    _tatoeba("zh", "cmn", "Chinese", "613d706c89b91bd4"),
)
Reads = Callable[[list[str], str], list[Float[np.ndarray, "n _"]]]  # texts and their language -> vectors of each layer


def layers(examples: TextExamples, languages: tuple[str, ...], reads: Reads) -> list[Float[np.ndarray, " n"]]:
    """`right` of each layer that is read, centred, for an encoder that gives the vectors of texts in a language."""
    assert examples.second is not None
    sides = zip(reads(examples.first, languages[0]), reads(examples.second, languages[1]), strict=True)
    return [right(margins(cosines(first - first.mean(0), second - second.mean(0)))) for first, second in sides]
