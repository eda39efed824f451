"""Translations without a network: the source itself, that of the nearest training sentence, and word by word.

Each is of all held-out pairs, cased and with spaces as in the corpus, and none learns from the held-out text.
"""

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lightning_modules import cached
from lightning_modules.data.corpora.registry import corpus
from lightning_modules.data.corpora.sources import Split
from lightning_modules.data.settings import Data
from lightning_modules.data.store import TokenStore

COPY, NEAREST, WORDS = "copy", "nearest", "word_by_word"
_RECIPE = 1  # raise when the same text would give other translations
_ROUNDS = 5  # of expectation maximisation
_MOST_LINKS = 10_000_000  # pairs of a source word and a target word that are counted
_WORD = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")


@dataclass(frozen=True)
class HeldOutText:
    """The held-out pairs of parallel text as they are in the corpus, and what methods without a network make of them.

    Attributes:
        sources: One line a pair.
        targets: Their translations.
        simple: Method -> its translations.
    """

    sources: list[str]
    targets: list[str]
    simple: dict[str, list[str]]

    @cached_property
    def source_words(self) -> np.ndarray:
        """The number of words of each source ``[pairs]``."""
        return np.array([len(words(line)) for line in self.sources])


def heldout_text(data: Data, store: TokenStore) -> HeldOutText:
    """The held-out text of some parallel corpora, kept next to its token store.

    Raises:
        ConfigError: When a corpus is missing.
    """

    def made() -> dict:
        sources, targets = sides(data, "heldout")
        known = sides(data, "train")
        simple = {
            COPY: sources,
            NEAREST: nearest(sources, *known),
            WORDS: word_by_word(sources, *known),
        }
        return {"sources": sources, "targets": targets, "simple": simple}

    path = store.folder / f"translations-{_RECIPE}.json"
    return HeldOutText(**cached.kept_json(path, made))


def words(line: str) -> list[str]:
    """The words and signs of a line.

    >>> words("Ein Mann, der T-Shirts mag.")
    ['Ein', 'Mann', ',', 'der', 'T-Shirts', 'mag', '.']
    """
    return _WORD.findall(line)


def nearest(asked: list[str], sources: list[str], targets: list[str]) -> list[str]:
    """For each line the translation of the most similar source: the first one of the highest cosine of TF-IDF."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # seconds to import

    counted = TfidfVectorizer(token_pattern=_WORD.pattern, sublinear_tf=True)
    known = counted.fit_transform(sources)
    similar = (counted.transform(asked) @ known.T).tocsr()
    similar.sort_indices()  # of equal ones the first is taken
    return [targets[number] for number in np.asarray(similar.argmax(axis=1)).ravel()]


def word_by_word(asked: list[str], sources: list[str], targets: list[str]) -> list[str]:
    """Each word of a line replaced by its most probable translation, in the order of the source.

    Probabilities t(e | f) are those of IBM model 1, with an empty word on the side of the source (Brown et al. 1993,
    section 4.1), after five rounds of expectation maximisation. An unknown word stays as it is.
    """
    best = lexicon(sources, targets)
    return [_joined([best.get(word, word) for word in words(line)]) for line in asked]


def lexicon(sources: list[str], targets: list[str]) -> dict[str, str]:
    """Word of the source -> its most probable translation by IBM model 1; see `word_by_word`.

    The pairs are counted in their order, until ten million pairs of words are reached.
    """
    ours, theirs = _numbered(sources, 1), _numbered(targets, 0)  # 0 is the empty word
    froms, links, of_target, count, total = [], [], [], 0, 0
    for here, there in zip(ours.lines, theirs.lines, strict=True):
        here = np.append(0, here)
        froms.append(np.tile(here, len(there)))
        links.append(np.repeat(there, len(here)))
        of_target.append(np.repeat(np.arange(count, count + len(there)), len(here)))
        count, total = count + len(there), total + len(here) * len(there)
        if total > _MOST_LINKS:
            break
    link = np.concatenate(froms) * len(theirs.names) + np.concatenate(links)
    distinct, link = np.unique(link, return_inverse=True)
    target, f = np.concatenate(of_target), distinct // len(theirs.names)
    share = np.ones(len(distinct))
    for _ in range(_ROUNDS):
        each = share[link]
        counts = np.bincount(link, each / np.bincount(target, each)[target])
        share = counts / np.bincount(f, counts)[f]
    order = np.lexsort((-share, f))
    first = order[np.unique(f[order], return_index=True)[1]]
    return {ours.names[f[n]]: theirs.names[distinct[n] % len(theirs.names)] for n in first if f[n]}


@dataclass(frozen=True)
class _Numbered:
    names: list[str]
    lines: list[np.ndarray]


def _numbered(lines: list[str], first: int) -> _Numbered:
    """The words of some lines as numbers, from ``first`` on in order of appearance."""
    numbers: dict[str, int] = {}
    rows = [
        np.array([numbers.setdefault(word, len(numbers) + first) for word in words(line)], dtype=np.int64)
        for line in lines
    ]
    return _Numbered([*[""] * first, *numbers], rows)


def _joined(parts: list[str]) -> str:
    """Words with spaces between them, and none before signs that close something."""
    return re.sub(r" (?=[.,;:!?)\]])", "", " ".join(parts))


def sides(data: Data, split: Split) -> tuple[list[str], list[str]]:
    """The sources and the targets of a split, in the order of its token store."""
    pairs = [document for name in data.corpora for document in corpus(name).documents(split)]
    return [source for source, _ in pairs], [target for _, target in pairs]
