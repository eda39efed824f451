"""Static word vectors: one vector per token, trained by word2vec on the text of a token store.

Mikolov et al. 2013 (arXiv 1310.4546), as implemented in gensim. The words are the model's own pieces, so that a vector
is a row of its embedding table. A vector does not depend on context; as a baseline they show what a pretrained encoder
adds.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from lightning_modules import cached
from lightning_modules.config import Settings, identity, knob
from lightning_modules.data.store import TokenStore
from lightning_modules.data.text.tokenizer import SPECIALS
from lightning_modules.places import cache

_RECIPE = 1  # raise when the same text, settings and seed would give different vectors
_LONGEST = 1000  # tokens; a longer sentence is cut, as in word2vec.c
_RATES = {"skipgram": 0.025, "cbow": 0.05}  # initial learning rates of word2vec.c


class WordVectors(Settings):
    """The training of static word vectors.

    Defaults: skip-gram and a window of 5 (section 4.1; word2vec.c, the released code, has CBOW and 5); 5 negative
    samples (section 2.2, Table 1, and the code); three passes (Mikolov et al. 2013, arXiv 1301.3781, section 4.2; the
    code makes five); sub-sampling from 1e-3 on (the code; the "around 1e-5" of section 2.3 is for vocabularies of
    700,000 words and would drop most of a text with some thousands of pieces). The learning rate falls linearly from
    that of the code. Unlike in both, every token that occurs gets a vector.
    """

    algorithm: Literal["skipgram", "cbow"] = knob(
        "skipgram",
        "Algorithm: skipgram predicts each neighbour from the word (section 2), cbow the word from its mean neighbour.",
    )
    window: int = knob(5, "Maximum neighbours on each side. Each token draws its own number.", ge=1, le=100)
    negative: int = knob(5, "Negative samples per prediction.", ge=1, le=100)
    subsampling: float = knob(
        1e-3,
        "Sub-sample tokens with a larger share of the text than this (section 2.3). No sub-sampling with 0.",
        ge=0,
    )
    epochs: int = knob(3, "Passes over the text.", ge=1, le=1000)
    tokens: int = knob(10_000_000, "Approximate maximum tokens of the text: whole sentences, spread evenly.", ge=1)


@dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors of the tokens of a text.

    Attributes:
        tokens: The ids of the tokens that occur, ascending, without special ones ``[n]``.
        values: Their vectors ``[n e]``.
        seconds: The time of training, on one thread.
    """

    tokens: np.ndarray
    values: np.ndarray
    seconds: float

    def table(self, size: int) -> Tensor:
        """A table of so many tokens ``[v e]`` with these vectors at a standard deviation of 1, and zeros elsewhere."""
        table, values = torch.zeros(size, self.values.shape[1]), torch.from_numpy(self.values).float()
        table[torch.from_numpy(self.tokens)] = values / values.std()
        return table

    def place(self, table: Tensor) -> None:
        """Writes the vectors to their rows of an embedding table ``[v e]``; other rows are unchanged.

        One factor scales all to the standard deviation of the rows they replace. Vectors of word2vec are about ten
        times as long as random rows of BERT: unscaled they would dominate the position and segment embeddings, and
        updates of the same learning rate would hardly change their direction.
        """
        rows, values = torch.from_numpy(self.tokens), torch.from_numpy(self.values)
        with torch.no_grad():
            table[rows] = values * (table[rows].std() / values.std())


class _Sentences:
    """The sentences of a text for gensim, re-iterable: lists of words, here the ids as decimal strings.

    gensim 4 would interpret integers as rows of its table.

    Attributes:
        ids: The tokens of all ``[n]``.
    """

    def __init__(self, store: TokenStore, most: int) -> None:
        starts, count = store.sentences, len(store.sentences) - 1
        # evenly spaced sentences; contexts do not cross sentences, so gaps do no harm
        due = np.floor(np.arange(count + 1) * min(1.0, most / max(1, len(store.ids))))
        chosen = np.flatnonzero(np.diff(due))
        self.ids = np.concatenate([store.ids[:0], *(store.ids[starts[n] : starts[n + 1]] for n in chosen.tolist())])
        self._bounds = np.concatenate([[0], np.cumsum(np.diff(starts)[chosen])]).tolist()
        self._words = [str(number) for number in range(store.vocabulary.size)]

    def __iter__(self) -> Iterator[list[str]]:
        words = self._words
        for start, end in zip(self._bounds, self._bounds[1:], strict=False):
            for cut in range(start, end, _LONGEST):
                yield [words[number] for number in self.ids[cut : min(cut + _LONGEST, end)].tolist()]


def train(store: TokenStore, settings: WordVectors, width: int, seed: int) -> Vectors:
    """Trains vectors of some width on a store's text; deterministic, on one thread.

    gensim 4 uses ``seed`` alone; earlier versions initialised each vector from the hash of its word, which differs
    between processes.
    """
    from gensim.models import Word2Vec  # seconds to import, which planning does without

    began, text = time.monotonic(), _Sentences(store, settings.tokens)
    counts = np.bincount(text.ids, minlength=store.vocabulary.size)
    counts[: len(SPECIALS)] = 0  # gensim skips words without a count; in a text only [UNK] is special
    tokens = np.flatnonzero(counts)
    model = Word2Vec(
        vector_size=width,
        sg=int(settings.algorithm == "skipgram"),
        window=settings.window,
        negative=settings.negative,
        sample=settings.subsampling,
        alpha=_RATES[settings.algorithm],
        min_count=1,
        sorted_vocab=0,  # rows in the order of ``tokens``
        workers=1,
        seed=seed,
    )
    model.build_vocab_from_freq({str(token): int(counts[token]) for token in tokens})
    model.train(corpus_iterable=text, total_words=len(text.ids), epochs=settings.epochs)
    return Vectors(tokens, model.wv.vectors, time.monotonic() - began)


def word_vectors(store: TokenStore, settings: WordVectors, width: int, seed: int) -> Vectors:
    """`train`, cached by text, tokenizer, settings, width and seed.

    Ten million tokens take about a minute and a half at a width of 128. ``seconds`` are those of the actual training,
    also for cached vectors.
    """
    key = {
        "store": store.folder.parent.name,  # named by text and tokenizer
        "split": store.folder.name,
        "settings": settings.essence(),
        "width": width,
        "seed": seed,
        "made by": [_RECIPE, version("gensim")],
    }
    path = cache() / "word-vectors" / f"{identity(key)[:24]}.npz"
    return cached.kept(path, lambda file: np.savez(file, **asdict(train(store, settings, width, seed))), _read)


def _read(path: Path) -> Vectors:
    with np.load(path) as stored:
        return Vectors(stored["tokens"], stored["values"], float(stored["seconds"]))
