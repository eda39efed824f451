"""Static word vectors: one vector a token, trained by word2vec on the text of a token store.

Mikolov et al. 2013 (arXiv 1310.4546), as gensim implements it. The words are the model's own pieces, so that a vector
is a row of its embedding table. A vector is the same whatever stands around the token: what a pretrained encoder adds
to that is what they are there to show.
"""

import io
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from lightning_modules.config import Settings, identity, knob
from lightning_modules.data.store import TokenStore
from lightning_modules.data.text.tokenizer import SPECIALS
from lightning_modules.files import write_atomically
from lightning_modules.places import cache

_RECIPE = 1  # bumped when the same text, settings and seed would give other vectors
_LONGEST = 1000  # tokens; a longer sentence is cut, as in word2vec.c
_RATES = {"skipgram": 0.025, "cbow": 0.05}  # learning rate at the start: word2vec.c's


class WordVectors(Settings):
    """How static word vectors are trained.

    Defaults: skip-gram and a window of 5 (section 4.1; word2vec.c, the released code, has CBOW and 5); 5 negative
    samples (section 2.2, Table 1, and the code); three passes (Mikolov et al. 2013, arXiv 1301.3781, section 4.2; the
    code makes five); sub-sampling from 1e-3 on (the code; the "around 1e-5" of section 2.3 is for vocabularies of
    700,000 words and would leave out most of a text in some thousands of pieces). The rate falls linearly from that of
    the code. Unlike in both, no token that occurs is too rare for a vector.
    """

    algorithm: Literal["skipgram", "cbow"] = knob(
        "skipgram", "Each neighbour predicted from the word (section 2), or the word from the mean of its neighbours."
    )
    window: int = knob(
        5, "Tokens on each side that count as neighbours at most; how many is drawn anew at each token.", ge=1, le=100
    )
    negative: int = knob(5, "Tokens drawn from the text as counter-examples of each prediction.", ge=1, le=100)
    subsampling: float = knob(
        1e-3, "Share of the text above which a token is left out now and then (section 2.3); 0 leaves none out.", ge=0
    )
    epochs: int = knob(3, "Passes over the text.", ge=1, le=1000)
    tokens: int = knob(
        10_000_000, "About how many tokens of the text are read at most: whole sentences, spread evenly over it.", ge=1
    )


@dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors of the tokens of a text.

    Attributes:
        tokens: The ids of the tokens that occur in it, ascending, special ones left out ``[n]``.
        values: The vector of each ``[n e]``.
        seconds: How long they took to make, on one thread.
    """

    tokens: np.ndarray
    values: np.ndarray
    seconds: float

    def place(self, table: Tensor) -> None:
        """Puts the vectors in their rows of an embedding table ``[v e]``; other rows stay as they are.

        All are scaled by one number, to the standard deviation of the rows they replace. Vectors of word2vec are some
        ten times as long as a BERT's random rows: position and segment embeddings, which are added to them, would be
        drowned, and steps of the same learning rate would hardly turn them.
        """
        rows, values = torch.from_numpy(self.tokens), torch.from_numpy(self.values)
        with torch.no_grad():
            table[rows] = values * (table[rows].std() / values.std())


class _Sentences:
    """The sentences of a text as gensim reads them, again and again: lists of words, here the ids in decimals.

    Numbers themselves are no words to gensim 4, which takes them for rows of its table.

    Attributes:
        ids: The tokens of all ``[n]``.
    """

    def __init__(self, store: TokenStore, most: int) -> None:
        starts, count = store.sentences, len(store.sentences) - 1
        # one in so many, evenly: contexts do not cross sentences, so nothing is lost by leaving out what is between
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
    """Trains vectors of so many numbers on a store's text. The same on every call: one thread, nothing hashed.

    gensim 4 draws what it draws from ``seed`` alone; earlier versions started each vector from the hash of its word,
    which differs between processes.
    """
    from gensim.models import Word2Vec  # seconds to import, which planning does without

    began, text = time.monotonic(), _Sentences(store, settings.tokens)
    counts = np.bincount(text.ids, minlength=store.vocabulary.size)
    counts[: len(SPECIALS)] = 0  # gensim passes over words it has no count of: [UNK] is the only one in a text
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
    """`train`, kept in the cache: made once for a text, its tokenizer, settings, width and seed.

    Ten million tokens take about a minute and a half at a width of 128. ``seconds`` are those of the making, also where
    it was an earlier one.
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
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.is_file():
            made, packed = train(store, settings, width, seed), io.BytesIO()
            np.savez(packed, tokens=made.tokens, values=made.values, seconds=made.seconds)
            write_atomically(path, lambda file: file.write(packed.getvalue()))
    with np.load(path) as kept:
        return Vectors(kept["tokens"], kept["values"], float(kept["seconds"]))
