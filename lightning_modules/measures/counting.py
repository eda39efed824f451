"""What counting reaches on the held-out words of a system: the bar that a model has to pass to have learned more.

A masked word is predicted by the product of counts, `baselines.product`, the next one by trigrams with a cache,
`baselines.kneser_ney`. Each is counted on as much of the training text as the bigram baseline, fitted on held-out
sequences behind those that are judged, and judged on the very words of the losses at the end. Where there are too few
sequences behind them, either half of the words is judged by what was fitted on the other.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

from lightning_modules.batch import STEP, Example
from lightning_modules.data import open_store
from lightning_modules.data.baselines.bigram import MOST_TOKENS
from lightning_modules.data.baselines.kneser_ney import KneserNey, Lines
from lightning_modules.data.baselines.ngrams import Counted
from lightning_modules.data.baselines.product import NEIGHBOURS, TWO, Fit, Product, Questions
from lightning_modules.data.formats.stream import ORDERS
from lightning_modules.data.order.heldout import HeldOut
from lightning_modules.data.store import TokenStore
from lightning_modules.measures import heldout_text
from lightning_modules.system import System

RECIPE = 1  # raise when the same text would give other scores
NEIGHBOURING = "product of counts of the two neighbours"
CACHED = "Kneser-Ney trigrams with a cache"
_LEAST, _BEHIND = 256, 512  # held-out sequences on which is fitted
_MOST_FITTED = 4_000  # hidden words on which is fitted
_SMALLER = (8, 4, 2)  # parts of the most text that is counted


@dataclass(frozen=True)
class Reached:
    """What counting reaches.

    Attributes:
        scores: Method -> nats per word; the first is the bar.
        by_tokens: Tokens counted -> nats of the first.
        methods: What was fitted, by method.
        counted: Tokens counted, by text: the training text, and those of trunks.
        fitted_on: What was fitted on, in words.
        judged_on: What was judged on, in words.
    """

    scores: dict[str, float]
    by_tokens: dict[int, float]
    methods: dict[str, Any]
    counted: dict[str, int]
    fitted_on: str
    judged_on: str


class _Asked(Protocol):
    """Words that are predicted: `Questions` or `Lines`."""

    def __len__(self) -> int: ...

    def __getitem__(self, some: Any) -> Self: ...


@dataclass(frozen=True)
class _Method:
    """A way to count, with the words that it predicts.

    Attributes:
        judged: The words of the losses.
        behind: Others; None if there are too few.
        counts: Makes the counts of a text for words: something that fits, and scores.
    """

    name: str
    judged: Any
    behind: Any
    counts: Callable[[Counted, Sequence[Any]], "Product | KneserNey"]

    @cached_property
    def folds(self) -> list[tuple[Any, Any]]:
        """What is fitted on, and what is judged then."""
        if self.behind is not None:
            return [(self.behind, self.judged)]
        first, second = self.judged[: len(self.judged) // 2], self.judged[len(self.judged) // 2 :]
        return [(first, second), (second, first)]

    def reached(self, text: Counted, known: Sequence[Fit] = ()) -> tuple[float, list[Any]]:
        """Nats a word, and what was fitted for each fold.

        Args:
            known: Whose discounts are taken as they are.
        """
        fits, nats = [], 0.0
        counts = self.counts(text, [words for fold in self.folds for words in fold])
        for number, (others, judged) in enumerate(self.folds):
            if isinstance(counts, Product):
                discounts = [(known[number].discount,)] if known else []
                fits.append(counts.fitted(others.some(_MOST_FITTED), *discounts))
            else:
                fits.append(counts.fitted(others))
            nats += counts.nats(judged, fits[-1])
        return nats / len(self.judged), fits


def reached(system: System, target: str) -> Reached | None:
    """What counting reaches on the held-out words of a system; None if it has too few.

    Where a model continues trunks of other text, the bar counts that too; all methods are scored again without it.

    Raises:
        ConfigError: When a text is missing.
    """
    system = system.but(**{"evaluation.context": 0}) if system.evaluation.context else system
    heldout, others = _heldout(system)
    judged, behind = list(heldout), list(others) if others else []
    methods = _methods(system, target, judged, behind)
    if len(methods[0].judged) < 2:
        return None
    marked = any(example.inputs.ends is not None for example in judged)
    order = ORDERS[system.heldout_format.resolved().sentence_order]
    stores = {name: order(open_store(data, "train")) for name, data in heldout_text.read(system).items()}
    texts = {name: _text(store, MOST_TOKENS, marked, target) for name, store in stores.items()}
    scores, by_tokens, fitted = {}, {}, {}
    for name, text in _together(texts).items():
        known: list[Any] = []
        for method in methods:
            scores[method.name + name], fits = method.reached(text, known)
            fitted[method.name + name] = [_shown(fit) for fit in fits]
            known = known or fits
            if method is methods[0]:
                by_tokens[len(text.ids)] = scores[method.name + name]
            if method is methods[0] and not name:
                by_tokens |= _by_tokens(method, stores["training"], text, marked, target, fits)
    words, sequences = len(methods[0].judged), system.evaluation.sequences_at_end
    halves = "the half of these words that is not judged"
    return Reached(
        scores={name: round(score, 5) for name, score in scores.items()},
        by_tokens={tokens: round(by_tokens[tokens], 5) for tokens in sorted(by_tokens)},
        methods=fitted,
        counted={name: len(text.ids) for name, text in texts.items()},
        fitted_on=f"{_BEHIND} held-out sequences behind those that are judged" if behind else halves,
        judged_on=f"{words:,} words of the first {sequences:,} held-out sequences",
    )


def _heldout(system: System) -> tuple[HeldOut, HeldOut | None]:
    """The held-out sequences that are judged, and those behind them; None if these are too few."""
    data, count = system.data_module(0), system.evaluation.sequences_at_end
    judged, more = data.some_heldout(count), data.some_heldout(count + _BEHIND)
    more.chosen = more.chosen[len(judged.chosen) :]
    return judged, more if len(more.chosen) >= _LEAST else None


def _methods(system: System, target: str, judged: Sequence[Example], behind: Sequence[Example]) -> list[_Method]:
    """The ways to count the words of a target; the first is the bar."""
    if target in STEP:
        ways = {CACHED: False}
        if system.format.kind == "stream":
            ways[f"{CACHED} of all that was read before"] = True
        return [
            _Method(
                name,
                Lines.of(judged, target, joined),
                Lines.of(behind, target, joined) if behind else None,
                lambda text, asked: KneserNey(text),
            )
            for name, joined in ways.items()
        ]
    mask = open_store(system.data, "heldout").vocabulary.mask
    words = Questions.of(judged, target, mask)
    others = Questions.of(behind, target, mask).some(_MOST_FITTED) if behind else None
    side = {"left_to_right": " on the left", "right_to_left": " on the right"}.get(system.looks, "")
    names = (
        (f"counts of the neighbour{side}", f"product of counts of two words{side}")
        if side
        else (NEIGHBOURING, "product of counts of two words on either side")
    )
    return [
        _Method(name, words, others, lambda text, asked, contexts=contexts: Product(text, contexts, asked))
        for name, contexts in zip(names, (NEIGHBOURS, TWO), strict=True)
    ]


def _text(store: TokenStore, most: int, marked: bool, target: str) -> Counted:
    text = Counted.of(store, most, marked)
    return text.backward if target == "previous" else text


def _together(texts: dict[str, Counted]) -> dict[str, Counted]:
    """All that a model has read, and the training text alone: what the names of methods end in -> text."""
    own, *others = texts.values()
    if not others:
        return {"": own}
    return {", the text of the trunk counted too": functools.reduce(operator.add, others, own), "": own}


def _by_tokens(
    method: _Method, store: TokenStore, most: Counted, marked: bool, target: str, fits: Sequence[Any]
) -> dict[int, float]:
    """The scores of a method with less text, and with all of it."""
    sizes = [MOST_TOKENS // part for part in _SMALLER if MOST_TOKENS // part < len(most.ids)]
    texts = (_text(store, size, marked, target) for size in (*sizes, len(store.ids)))
    return {len(text.ids): method.reached(text, fits)[0] for text in texts if len(text.ids) != len(most.ids)}


def _shown(fit: Any) -> Any:
    """What was fitted, as JSON."""
    if isinstance(fit, Fit):
        return {"discount": fit.discount, "exponents": list(fit.exponents)}
    return {"weight of the cache": fit}
