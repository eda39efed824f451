"""A small made language: its dependencies are switched on and off by name, and its entropy is known.

``made:order,no-topic,length=6`` is a text with order and without topic, of sentences of six words. A switch puts its
words into every sentence. With ``no-`` before it the same words are in the same places, as often, and nothing depends
on anything. This is the control on which an effect of the dependency must vanish. Names that differ in a switch share
all other words of the text.

===============  ======================================================================  =============================
switch           the dependency                                                          without it
===============  ======================================================================  =============================
``order=p``      the first word of p % of sentences is fixed by the last of the one      it is any of its kind
                 before it; ``order`` alone is 100
``agreement=d``  a verb has the class of its subject, ``d`` words before it              it is of any class
``joint``        two neighbours determine each other, as New York and Los Angeles        the second is any of its kind
``copies=d``     a word behind the mark *again* is the one ``d`` words before it;        it is any of its kind
                 behind the mark *fresh* it is any (each mark half of the time)
``topic``        the topical words of a document are of its topic                        they are of any topic
===============  ======================================================================  =============================

A sentence is: what is given, subject, fillers, verb, fillers, a joint pair, mark and copy, two topical words, what is
new; it has those parts that are named, and as many fillers as its length asks for. Every word is of one kind, and all
words of a kind are equally frequent. A word has two letters, so that a WordPiece vocabulary of ``PIECES`` holds each as
one piece: ``data.tokenizer.vocab_size`` must be that number.

Nothing is downloaded; the text is a function of the name alone. The entropy is exact (`Language.nats`).
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Self

import numpy as np

from lightning_modules.config import ConfigError, did_you_mean
from lightning_modules.data.corpora.sources import Split
from lightning_modules.draws import Draws

RECIPE = 1  # raise when the same name would give another text
PREFIX = "made"
_LETTERS, _ENDS = "bdfghjklmnprstvz", "aeiou"
WORDS = tuple(map("".join, product(_LETTERS, _ENDS)))
PIECES = 5 + len(_LETTERS) + 2 * len(_ENDS) + len(WORDS)  # special pieces, letters, letters inside words, words

_LINKS, _CLASSES, _TOPICS = 4, 4, 4  # what a sentence leads to, classes of subjects and verbs, topics
_KINDS = {  # kinds of words by switch -> how many; fillers have the rest
    "order": {"given": _LINKS, "new": _LINKS},
    "agreement": {"subject": 2 * _CLASSES, "verb": _CLASSES},
    "joint": {"left": 8, "right": 8},
    "copies": {"mark": 2, "copy": 16},
    "topic": {"topical": 4 * _TOPICS},
}
SWITCHES = tuple(_KINDS)
_TIED = {"order": ("new", "given"), "agreement": ("subject", "verb"), "joint": ("left", "right")}  # fixes -> is fixed
_DISTANCES = ("agreement", "copies")
_SIZES = {"length": (2, 64), "sentences": (1, 1 << 12), "documents": (1, 1 << 20)}  # smallest and largest
_HELDOUT_EVERY = 16  # as many documents for one that is held out
_HELDOUT = 1 << 40  # number of the first of these
_BATCH = 1024  # documents made at once


@dataclass(frozen=True)
class Slot:
    """A place of a sentence.

    Attributes:
        kind: The kind of its words.
        nats: Of the best prediction without what determines it.
        source: How many words before it that is. It is 0 if nothing does.
        known: Nats of the best prediction with it; of a copy the mean over both marks.
    """

    kind: str
    nats: float
    source: int = 0
    known: float = 0.0


@dataclass(frozen=True)
class Language:
    """What a name says.

    Attributes:
        switches: Switch -> whether its dependency is there; those that are not named have no words.
        order: Per cent of sentences whose first word is fixed.
        agreement: Words from a subject to its verb.
        copies: Words from a copy back to what it repeats; 0 where nothing is repeated.
        documents: Documents for training; a sixteenth as many, at least two, are held out.
    """

    switches: dict[str, bool]
    order: int = 100
    agreement: int = 0
    copies: int = 0
    length: int = 8
    sentences: int = 16
    documents: int = 4096

    @classmethod
    def of(cls, name: str) -> Self:
        """The language of a name without ``made:``.

        Raises:
            ConfigError: For switches that do not exist or contradict each other, and distances for which sentences
                or documents are too short.
        """
        switches: dict[str, bool] = {}
        numbers: dict[str, int] = {}
        for part in name.split(","):
            key, equals, value = part.strip().partition("=")
            switch = key.removeprefix("no-")
            if switch not in SWITCHES and key not in _SIZES:
                near = did_you_mean(switch, (*SWITCHES, *_SIZES))
                raise _wrong(name, f"there is no switch '{key}'.{near} {_allowed()}")
            if switch in switches or key in numbers:
                raise _wrong(name, f"'{switch}' is named twice. A switch is on, off ('no-{switch}') or not named.")
            if key in (*_SIZES, *_DISTANCES, "no-agreement") or (key == "order" and equals):
                numbers[switch] = _number(name, switch, equals and value)
            elif equals:
                raise _wrong(name, f"'{key}' takes no value. Leave '={value}' out.")
            if switch in SWITCHES:
                switches[switch] = key == switch
        language = cls(switches, **numbers)
        language._check(name)
        return language

    def _check(self, name: str) -> None:
        """Refuses what sentences and documents have no room for."""
        needed = len(self._before + self._after) + ("filler" not in self._before)
        if needed > self.length:
            text = f"what is named needs {needed} words, a filler among them, and a sentence has {self.length}"
            raise _wrong(name, f"{text}: set length={needed}")
        if self.copies % self.length:
            near = max(1, round(self.copies / self.length)) * self.length
            text = f"copies={self.copies} is no number of whole sentences of {self.length} words"
            raise _wrong(name, f"{text}. The nearest is copies={near}.")
        if self.copies >= self.sentences * self.length:
            document = f"{self.sentences} sentences of {self.length} words"
            text = f"no word returns after {self.copies} words in a document of {document}"
            raise _wrong(name, f"{text}: set sentences={self.copies // self.length + 1} or more")

    @property
    def _before(self) -> list[str]:
        """The kinds of words before the fillers of a sentence."""
        given = ["given"] if "order" in self.switches else []
        agreeing = ["subject", *["filler"] * (self.agreement - 1), "verb"] if "agreement" in self.switches else []
        return given + agreeing

    @property
    def _after(self) -> list[str]:
        """The kinds of words behind them."""
        parts = {"joint": ["left", "right"], "copies": ["mark", "copy"], "topic": ["topical"] * 2, "order": ["new"]}
        return [kind for name, kinds in parts.items() if name in self.switches for kind in kinds]

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each word of a sentence ``[length]``."""
        fillers = self.length - len(self._before + self._after)
        return (*self._before, *["filler"] * fillers, *self._after)

    @cached_property
    def vocabulary(self) -> dict[str, tuple[str, ...]]:
        """Kind -> its words."""
        sizes = {kind: size for name in SWITCHES if name in self.switches for kind, size in _KINDS[name].items()}
        sizes["filler"] = len(WORDS) - sum(sizes.values())
        ends = np.cumsum([*sizes.values()])
        return {kind: WORDS[end - size : end] for (kind, size), end in zip(sizes.items(), ends, strict=True)}

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """The places of a sentence."""
        return tuple(self._slot(place, kind) for place, kind in enumerate(self.kinds))

    def _slot(self, place: int, kind: str) -> Slot:
        count = len(self.vocabulary[kind])
        alone = Slot(kind, math.log(count))
        depends = {"given": "order", "verb": "agreement", "right": "joint", "copy": "copies", "topical": "topic"}
        if not self.switches.get(depends.get(kind, ""), False):
            return alone
        if kind == "copy":
            return replace(alone, source=self.copies, known=alone.nats / 2)
        if kind == "topical":
            before = 1 if self.kinds[place - 1] == kind else self.length - 1
            return replace(alone, source=before, known=math.log(count / _TOPICS))
        sources = {"given": "new", "verb": "subject", "right": "left"}
        known = self._broken if kind == "given" else 0.0
        return replace(alone, source=(place - self.kinds.index(sources[kind])) % self.length, known=known)

    @property
    def _broken(self) -> float:
        """Nats of a first word, if the last of the sentence before is known."""
        other = (1 - self.order / 100) / _LINKS
        linked = self.order / 100 + other
        return -linked * math.log(linked) - (_LINKS - 1) * other * math.log(other or 1.0)

    def nats(self, context: int) -> float:
        """Nats a word of the best possible prediction from the ``context`` words before it.

        The mean over the places of a sentence in the midst of a document, with context in the same document, and
        without separators. The place is taken as known. This is a lower bound for whoever sees words alone. It is exact
        once they reveal the place, which is when the context is longer than the longest run of words of one kind.
        """
        seen = [slot.known if 0 < slot.source <= context else slot.nats for slot in self.slots]
        return sum(seen) / self.length

    def neighbours_nats(self, words: int, *, together: bool) -> float:
        """Nats of the best prediction of two hidden neighbours from all other words, the mean over neighbours of a row.

        Args:
            words: Words of the row, which begins with a sentence.
            together: Whether the second is predicted given the first; else each is from the others alone.

        Raises:
            ConfigError: For copies and topics, whose words depend on more than one other.
        """
        if many := [name for name in ("copies", "topic") if self.switches.get(name)] + ["broken order"] * (
            self.order < 100
        ):
            raise ConfigError([f"neighbours of a text with {' and '.join(many)} have no known entropy: leave them out"])
        count = {kind: len(words) for kind, words in self.vocabulary.items()}
        tied = [pair for name, pair in _TIED.items() if self.switches.get(name)]
        known = {first: math.log(count[first] / count[second]) for first, second in tied}
        known |= {second: 0.0 for _, second in tied}
        total = 0.0
        for pair in itertools.pairwise(self.kinds[place % self.length] for place in range(words)):
            alone = [math.log(count[kind]) for kind in pair]
            if pair in tied:
                total += alone[0] if together else sum(alone)
            else:
                total += sum(known.get(kind, nats) for kind, nats in zip(pair, alone, strict=True))
        return total / (words - 1)

    def paragraphs(self, split: Split) -> Iterator[list[str]]:
        """The documents of a split, each as a list of sentences."""
        heldout = split == "heldout"
        count = max(2, self.documents // _HELDOUT_EVERY) if heldout else self.documents
        words = np.array(list(WORDS))
        for start in range(0, count, _BATCH):
            numbers = np.arange(start, min(start + _BATCH, count)) + (_HELDOUT if heldout else 0)
            for document in words[self.numbers(numbers)]:
                yield [" ".join(sentence) for sentence in document]

    def numbers(self, documents: np.ndarray) -> np.ndarray:
        """The words of some documents as places in ``WORDS`` ``[documents sentences length]``."""
        first = {kind: WORDS.index(own[0]) for kind, own in self.vocabulary.items()}
        columns: list[np.ndarray] = []
        noise = _Noise(documents, self.sentences)
        drawn = self._dependent(noise)
        for place, kind in enumerate(self.kinds):
            nth = self.kinds[:place].count(kind)
            own = drawn[kind][:, :, nth] if kind in drawn else noise(f"{kind} {nth}", len(self.vocabulary[kind]))
            columns.append(first[kind] + own)
        return np.stack(columns, axis=-1)

    def _dependent(self, noise: "_Noise") -> dict[str, np.ndarray]:
        """Kind -> its words where they depend on others ``[documents sentences places]``."""
        found: dict[str, np.ndarray] = {}
        on = [name for name, is_on in self.switches.items() if is_on]
        if "order" in on:
            new = noise("new 0", _LINKS)
            found["given"] = np.concatenate([noise("given 0", _LINKS)[:, :1], new[:, :-1]], axis=1)
            if self.order < 100:
                kept = noise("order", 100) < self.order
                found["given"] = np.where(kept, found["given"], noise("given 0", _LINKS))
        if "agreement" in on:
            found["verb"] = noise("subject 0", 2 * _CLASSES) // 2
        if "joint" in on:
            found["right"] = noise("left 0", 8)
        if "copies" in on:
            found["copy"] = noise.copied(self.copies // self.length)
        if "topic" in on:
            each = _KINDS["topic"]["topical"] // _TOPICS
            own = each * noise("topic", _TOPICS)[:, :1]
            found["topical"] = np.stack([own + noise(f"topical {n}", _TOPICS * each) % each for n in range(2)], axis=-1)
        return {kind: own if own.ndim == 3 else own[:, :, None] for kind, own in found.items()}


class _Noise:
    """Draws for the sentences of some documents: functions of a purpose, the document and the sentence alone."""

    def __init__(self, documents: np.ndarray, sentences: int) -> None:
        self.draws = Draws(0, documents, documents, np.zeros_like(documents), stream="made language")
        self.sentences = sentences

    def __call__(self, purpose: str, high: int, count: int | None = None) -> np.ndarray:
        """Integers below ``high`` ``[documents sentences]``, or ``[documents count]``."""
        return self.draws.integers(purpose, count or self.sentences, high)

    def copied(self, back: int) -> np.ndarray:
        """The copies, of which each behind the mark *again* is that of ``back`` sentences before.

        What those of the first sentences repeat is before the document.
        """
        before, fresh, again = self("copy before", 16, back), self("copy 0", 16), self("mark 0", 2)
        words = np.concatenate([before, fresh], axis=1)
        for place in range(self.sentences):
            words[:, back + place] = np.where(again[:, place], words[:, place], words[:, back + place])
        return words[:, back:]


def _number(name: str, key: str, value: str) -> int:
    low, high = (1, 100) if key == "order" else _SIZES.get(key, (1, 1 << 16))
    if not value.isdecimal() or not low <= int(value) <= high:
        given = f"'{key}={value}'" if value else f"'{key}'"
        raise _wrong(name, f"{given} needs a whole number from {low} to {high}, for example {key}={max(low, 8)}")
    return int(value)


def _allowed() -> str:
    takes = dict.fromkeys(_DISTANCES, "=<words>") | {"order": "[=<per cent>]"}
    switches = ", ".join(f"{name}{takes.get(name, '')}" for name in SWITCHES)
    return f"Allowed: {switches}, each also with 'no-' before it, {', '.join(f'{name}=<number>' for name in _SIZES)}."


def _wrong(name: str, text: str) -> ConfigError:
    return ConfigError([f"the made text '{PREFIX}:{name}': {text}"])
