"""A part of a task's training examples that is scored in place of the dev set, so that a search chooses by no score
that is reported.

The part is drawn once a task: all seeds and arms have the same one. Examples about one text, such as the questions
about a passage, are all in it, all in what is left to train on, or left out. Some data sets list the phrases of their
sentences as examples of their own (SST-2): only texts that no other contains are drawn, as the sentences of its dev set
are, and their phrases are not trained on. On a draw of any examples a model would be tested on what it has seen.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from lightning_modules import cached
from lightning_modules.config import ConfigError, identity
from lightning_modules.draws import permutation
from lightning_modules.places import cache
from lightning_modules.tasks.pins import checked, fingerprint
from lightning_modules.tasks.shapes.shape import Examples
from lightning_modules.tasks.task import Split

MOST = 2_000  # examples of a part: the standard error of an accuracy of .8 is .9 points
RECIPE = 1  # raise when the same examples would be divided differently


def examples(name: str, role: Split, share: float | None) -> Examples:
    """The examples that a fine-tuning trains on or is scored on.

    Args:
        share: That of the training examples that is scored in place of the dev set; None for the dev set.

    Raises:
        ConfigError: When the data are missing, or the training examples cannot be divided.
        DataMismatch: When they are not the pinned ones.
    """
    if share is None:
        return checked(name, role)
    path = cache() / "validation-parts" / f"{identity([fingerprint(name), share, MOST, RECIPE])[:24]}.json"
    train = checked(name, "train")

    def divide() -> dict[str, list[int]]:
        kept, scored = divided(train.about(), share, name)
        return {"train": kept.tolist(), "dev": scored.tolist()}

    return train.take(np.array(cached.kept_json(path, divide)[role]))


def drawn(name: str, share: float | None, count: int | None, seed: int) -> Examples:
    """The training examples that a fine-tuning sees: all, or with ``count`` so many of them, drawn by the seed.

    Args:
        count: Their number; None, or more than there are, for all.
    """
    train = examples(name, "train", share)
    if count is None or count >= len(train):
        return train
    return train.take(permutation(seed, "few examples", 0, len(train))[:count])


def size(count: int, share: float) -> int:
    """How many of so many training examples are scored, at most."""
    return min(MOST, round(share * count))


def divided(about: Sequence[tuple[str, ...]], share: float, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the examples to train on and of those to score, each ascending.

    Args:
        about: The texts that each example is about (`Examples.about`).
        share: The share that is scored, `MOST` examples at most.

    Raises:
        ConfigError: When no example can be scored without its text being trained on, or none remains.
    """
    families = _families(about)
    inner = _contained(about)
    whole = [numbers for numbers in families if not any(inner[n] for n in numbers)]
    room, scored = size(len(about), share), list[int]()
    for n in permutation(0, f"validation part of {name}", 0, len(whole)).tolist():
        if len(whole[n]) <= room - len(scored):
            scored += whole[n]
    taken = set(scored)
    kept = [n for n in range(len(about)) if n not in taken and not inner.get(n, set()) & taken]
    if not scored or not kept:
        text = (
            f"a share {share:g} of the {len(about):,} training examples of '{name}' cannot be scored apart: examples "
            "about one text stay together. Choose another share, or another task for the search"
        )
        raise ConfigError([f"finetuning.validation_share: {text}"])
    return np.array(kept), np.array(sorted(scored))


def _families(about: Sequence[tuple[str, ...]]) -> list[list[int]]:
    """The numbers of the examples that share a text, directly or through others; in the order of the first of each."""
    parent = list(range(len(about)))

    def root(n: int) -> int:
        while parent[n] != n:
            parent[n] = n = parent[parent[n]]
        return n

    first: dict[str, int] = {}
    for n, texts in enumerate(about):
        for text in texts:
            parent[root(n)] = root(first.setdefault(text, n))
    members: dict[int, list[int]] = defaultdict(list)
    for n in range(len(about)):
        members[root(n)].append(n)
    return list(members.values())


def _contained(about: Sequence[tuple[str, ...]]) -> dict[int, set[int]]:
    """Example -> those whose text contains its text as whole words; only for examples about one text."""
    where: dict[str, list[int]] = defaultdict(list)
    for n, texts in enumerate(about):
        if len(texts) == 1:
            where[f"{texts[0]} "].append(n)  # the space ends the last word
    found: dict[int, set[int]] = defaultdict(set)
    for outer, inner in _pairs(where):
        for n in where[inner]:
            found[n].update(where[outer])
    return found


def _pairs(texts: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Each text with each other one that it contains. Texts end with a space; words have one space between them."""
    starting: dict[tuple[str, ...], list[str]] = defaultdict(list)  # the first two words -> texts
    for text in texts:
        starting[tuple(text.split(" ", 2)[:2])].append(text)
    for text in texts:
        words, place = text.split(" ")[:-1], 0
        for n, word in enumerate(words):
            keys = {(word, ""), tuple([*words, ""][n : n + 2])}  # texts of one word, and longer ones
            for inner in (other for key in keys for other in starting.get(key, ())):
                if len(inner) < len(text) and text.startswith(inner, place):
                    yield text, inner
            place += len(word) + 1
