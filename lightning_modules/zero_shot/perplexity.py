"""How probable running text is, over the words and bytes that it has in its source.

A model reads the text in windows that move on by a stride, so that nearly every token has at least as much before it as
a window without the stride. Its nats are divided by what the source counts, never by the model's own tokens: so models
with other tokenizers compare (Radford et al. 2019, section 3.1). A tokenizer that lower-cases predicts less than the
source holds, and one with unknown tokens predicts these cheaply: compare models that share theirs.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lightning_modules.data import Data, open_store
from lightning_modules.data.baselines.bigram import MOST_TOKENS
from lightning_modules.data.baselines.kneser_ney import NGrams
from lightning_modules.data.baselines.ngrams import Counted
from lightning_modules.generation.language_model import reads_whole
from lightning_modules.system import System
from lightning_modules.zero_shot import stretches
from lightning_modules.zero_shot.detokenise import natural
from lightning_modules.zero_shot.settings import Measurement
from lightning_modules.zero_shot.sources import OfSource
from lightning_modules.zero_shot.task import PIECES, SAME_TOKENS, Asking, Found, OfRun, ZeroShot, share

_RECIPE = 1  # raise when the same texts would be presented otherwise
_ORDER = 5  # words that are counted together
_OVERLAP = 2.0  # windows read each token twice at the default stride


class Text(NamedTuple):
    """A text and what its source counts.

    Attributes:
        natural: What the model reads.
        words: Words between white space in the source.
        bytes: Bytes of the source in UTF-8.
        document: Number of the document that it is from.
    """

    natural: str
    words: int
    bytes: int
    document: int


@dataclass(frozen=True)
class RunningText(ZeroShot):
    """Text that is read from its beginning."""

    metrics = {
        "nats_per_byte": "minus the log-probability of the text over its bytes in the source, nats per byte",
        "word_loss": "minus the log-probability of the text over its words in the source, nats per word",
        "perplexity": "exp of the loss of a word: the perplexity by words of the source",
        "unknown": "share of the model's tokens that are unknown words to it",
    }
    methods = {
        "unigram": "word frequencies",
        "bigram": "bigram baseline",
    }
    reads = frozenset({"examples", "stride"})
    better = "lower"

    @abstractmethod
    def texts(self, data: Data | None, most: int | None) -> list[Text]:
        """The texts, or the first ``most`` of them.

        Raises:
            ConfigError: When they are missing.
        """

    def ask(self, asking: Asking) -> Found:
        texts = self.texts(asking.data, asking.settings.examples)
        rows = [asking.pieces(text.natural) for text in texts]
        weights = np.array([text.bytes for text in texts], dtype=float)
        each = np.array([found.sum() for found in asking.nats(rows)])
        found = _metrics(asking, texts, rows, each)
        for name, by_row in (("unigram", asking.unigram_nats(rows)), ("bigram", asking.bigram_nats(rows))):
            if by_row is not None:
                found[f"nats_per_byte.{name}"] = sum(nats.sum() for nats in by_row) / weights.sum()
                if not asking.model.start:  # nothing predicts the first token of a text
                    same = sum(nats[1:].sum() for nats in by_row)
                    found[f"nats_per_byte.{name}{SAME_TOKENS}"] = same / weights.sum()
        return Found(
            {name: float(value) for name, value in found.items()},
            {"nats_per_byte": each / weights},
            weights,
            np.array([text.document for text in texts]),
        )


_MOST_NATS = 200.0  # a word; exp of more is no number of a record


def _metrics(
    asking: Asking, texts: Sequence[Text], rows: Sequence[Sequence[int]], each: np.ndarray
) -> dict[str, float | bool]:
    """What is measured of texts: rows of tokens with their nats ``[n]``."""
    words, tokens = sum(text.words for text in texts), np.concatenate([np.asarray(row) for row in rows])
    return {
        "nats_per_byte": float(each.sum() / sum(text.bytes for text in texts)),
        "word_loss": float(each.sum() / words),
        "perplexity": float(np.exp(min(each.sum() / words, _MOST_NATS))),
        "unknown": float((tokens == asking.model.encoder.vocabulary.unk).mean()),
    }


@dataclass(frozen=True)
class WikiText(RunningText, OfSource):
    """Articles of WikiText, read as natural text.

    Attributes:
        own: The articles in WikiText's tokens.
    """

    recipe = (_RECIPE,)

    def positions(self, system: System, settings: Measurement) -> float:
        pin = self.own.pin()
        return PIECES * pin.words * share(settings, pin.texts) * _overlap(system, settings)

    def texts(self, data: Data | None, most: int | None) -> list[Text]:
        articles = self.own.texts()[:most]
        words = [len(text.split()) + text.count("\n") for text in articles]  # a line's end counts, as in its paper
        counted = zip(articles, words, strict=True)
        return [Text(natural(text), count, len(text.encode()), n) for n, (text, count) in enumerate(counted)]


@dataclass(frozen=True)
class WikiTextWords(WikiText):
    """The same by words, with what counts of five words of the model's training text reach.

    Counts know nothing of other text. Words are those of the source, line ends included, whatever a vocabulary is: the
    nats of a word are those of its pieces.
    """

    metrics = {name: RunningText.metrics[name] for name in ("word_loss", "perplexity", "nats_per_byte", "unknown")}
    methods = {"kneser_ney": f"Kneser-Ney {_ORDER}-grams"}
    recipe = (_RECIPE, _ORDER)

    def ask(self, asking: Asking) -> Found:
        texts = self.texts(asking.data, asking.settings.examples)
        rows = [asking.pieces(text.natural) for text in texts]
        each = np.array([found.sum() for found in asking.nats(rows)])
        weights = np.array([text.words for text in texts], dtype=float)
        found = _metrics(asking, texts, rows, each)
        if asking.data is not None:
            counted = _counted(asking, asking.data, rows)
            found["word_loss.kneser_ney"] = float(sum(nats.sum() for nats in counted) / weights.sum())
            if not asking.model.start:
                same = sum(nats[1:].sum() for nats in counted)
                found[f"word_loss.kneser_ney{SAME_TOKENS}"] = float(same / weights.sum())
        documents = np.array([text.document for text in texts])
        return Found(found, {"word_loss": each / weights}, weights, documents)


def _counted(asking: Asking, data: Data, rows: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Minus the log-probability of each token by counts; a model with ends of documents has those too."""
    store, start = open_store(data, "train"), asking.model.start
    is_marked = start == (store.vocabulary.sep,)
    counts = NGrams(Counted.of(store, MOST_TOKENS, is_marked), _ORDER)
    begin = start if is_marked else ()
    return [counts.nats([*begin, *row])[len(begin) :] for row in rows]


@dataclass(frozen=True)
class HeldOutText(OfRun, RunningText):
    """Stretches of the held-out text of the corpora that a model learned from, the same for every tokenizer."""

    source: str = "held-out text of the corpora of a run"
    recipe = (_RECIPE, stretches.RECIPE, stretches.MOST)
    own_split: str = "stretches of the run's own held-out text"

    def positions(self, system: System, settings: Measurement) -> float:
        return stretches.PIECES_EACH * stretches.MOST * share(settings, stretches.MOST) * _overlap(system, settings)

    def texts(self, data: Data | None, most: int | None) -> list[Text]:
        chosen: Sequence[stretches.Stretch] = stretches.chosen(data) if data is not None else ()
        return [Text(text, text.count(" ") + 1, len(text.encode()) + 1, number) for text, number in chosen[:most]]


def _overlap(system: System, settings: Measurement) -> float:
    """How often each token is read."""
    if reads_whole(system):
        return 1.0
    length = system.format.sequence_length
    return length / min(settings.stride or length // 2, length - 1) if settings.stride else _OVERLAP
