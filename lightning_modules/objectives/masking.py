"""Masking: which tokens are predicted, and what replaces them in the input.

Devlin et al. (2019), section 3.1 and appendix A.1; the mixtures of its Table 8; RoBERTa's dynamic masking
(Liu et al. 2019, section 4.1); the rates of Wettig et al. (2023).

The positions that a scheme (`Units`) masks together are a *group*. An array of groups ``[b t]`` has the first position
of each masked position's group, and -1 elsewhere.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import model_validator

from lightning_modules.batch import Annotation, Tags, Tokens, Unsupported, Vocabulary
from lightning_modules.config import ByKind, Settings, knob
from lightning_modules.draws import Draws
from lightning_modules.words import beginnings

Hidden = Literal["both", "left", "right"]  # of two neighbours
CAPITALISED = "capitalised"  # the annotator that is a rule


@dataclass(frozen=True, eq=False)
class Stretches:
    """Stretches of neighbouring positions, such as words, in the order of each row; some rows have fewer."""

    first: np.ndarray  # position of each stretch ``[b w]``; the length of a row where there is none
    size: np.ndarray  # number of its positions ``[b w]``; 0 where there is none
    number: np.ndarray  # of the stretch of each position ``[b t]``; meaningless outside of stretches

    @classmethod
    def of(cls, members: np.ndarray, begins: np.ndarray) -> Self:
        """The stretches of some positions ``[b t]``, each from a beginning to the next."""
        rows, length = members.shape
        number = np.cumsum(begins, axis=1) - 1
        most = max(1, int(number[:, -1].max(initial=0)) + 1)
        row, column = np.nonzero(begins)
        first = np.full((rows, most), length)
        first[row, number[row, column]] = column
        row, column = np.nonzero(members)
        size = np.bincount(row * most + number[row, column], minlength=rows * most).reshape(rows, most)
        return cls(first, size, number)

    @property
    def end(self) -> np.ndarray:
        """The position after each stretch ``[b w]``."""
        return self.first + self.size

    @cached_property
    def following(self) -> np.ndarray:
        """How many stretches follow each other without a gap from each one on, itself included ``[b w]``."""
        count = self.first.shape[1]
        last = np.full_like(self.first, count - 1)
        joined = (self.first[:, 1:] == self.end[:, :-1]) & (self.size[:, 1:] > 0)
        last[:, :-1] = np.where(joined, count - 1, np.arange(count - 1))
        return np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1] - np.arange(count) + 1

    def shuffled(self, draws: Draws, columns: int) -> np.ndarray:
        """The numbers of each row's stretches in random order, by the draw at their first positions ``[b w]``."""
        rows = np.arange(len(self.first))[:, None]
        uniform = draws.uniform("choose", columns)[rows, np.minimum(self.first, columns - 1)]
        return np.argsort(np.where(self.size > 0, uniform, 2.0), axis=1)

    def spread(self, group: np.ndarray, members: np.ndarray) -> np.ndarray:
        """Groups of positions ``[b t]`` from groups of stretches ``[b w]``."""
        rows = np.arange(len(members))[:, None]
        return np.where(members, group[rows, np.maximum(self.number, 0)], -1)

    def filled(self, members: np.ndarray, budget: np.ndarray, draws: Draws) -> np.ndarray:
        """Groups of whole stretches in random order, each taken if it fits what is left of the budget ``[b t]``."""
        rows = np.arange(len(members))[:, None]
        order = self.shuffled(draws, members.shape[1])
        size = self.size[rows, order]
        taken = np.zeros_like(self.size, dtype=bool)
        rest = budget.copy()
        for column in range(size.shape[1]):
            fits = (size[:, column] > 0) & (size[:, column] <= rest)
            taken[rows[:, 0], order[:, column]] = fits
            rest -= size[:, column] * fits
            if not rest.any():
                break
        return self.spread(np.where(taken, self.first, -1), members)


@dataclass(frozen=True, eq=False)
class Text:
    """The tokens of a batch before any is masked."""

    tokens: Tokens
    vocabulary: Vocabulary

    @cached_property
    def candidates(self) -> np.ndarray:
        """The positions that may be masked ``[b t]``: neither special nor padding."""
        return (self.tokens.real & ~self.tokens.special).numpy()

    @cached_property
    def begins(self) -> np.ndarray:
        """The first pieces of words ``[b t]``."""
        return beginnings(self.vocabulary.word_edges, self.tokens.ids.numpy(), self.candidates)

    @cached_property
    def words(self) -> Stretches:
        """The words; none crosses a special position."""
        return Stretches.of(self.candidates, self.begins)

    def tagged(self, annotation: Annotation) -> Stretches:
        """The stretches that an annotator found.

        Raises:
            Unsupported: When the text was not annotated.
        """
        if annotation not in self.tokens.marks:
            held = ", ".join(f"{tags} by {annotator}" for annotator, tags in self.tokens.marks) or "none"
            raise Unsupported(f"the text has no annotation of {annotation[1]} by {annotation[0]}. It has {held}.")
        marks = self.tokens.marks[annotation].numpy()
        members = (marks > 0) & self.candidates
        begins = members.copy()
        begins[:, 1:] &= (marks[:, 1:] == 1) | ~members[:, :-1]
        return Stretches.of(members, begins)


def smallest(candidates: np.ndarray, uniform: np.ndarray, count: np.ndarray) -> np.ndarray:
    """The candidates with the smallest numbers, so many of each row ``[b t]``."""
    uniform = np.where(candidates, uniform, 2.0)  # 2 is never chosen
    threshold = np.take_along_axis(np.sort(uniform, axis=1), np.maximum(count - 1, 0)[:, None], axis=1)
    return candidates & (uniform <= threshold) & (count > 0)[:, None]


def _runs(masked: np.ndarray) -> np.ndarray:
    """The groups of masked positions that touch ``[b t]``."""
    starts = masked.copy()
    starts[:, 1:] &= ~masked[:, :-1]
    column = np.arange(masked.shape[1])
    return np.where(masked, np.maximum.accumulate(np.where(starts, column, -1), axis=1), -1)


def _mask_stretch(masked: np.ndarray, start: np.ndarray, end: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Masks one stretch of each row, in place, as far as the rest of the budget goes; returns how many were new."""
    column = np.arange(masked.shape[1])
    new = ~masked & (column >= start[:, None]) & (column < end[:, None])
    new &= np.cumsum(new, axis=1) <= rest[:, None]
    masked |= new
    return new.sum(1)


class Units(Settings, ABC):
    """What is hidden as a whole."""

    spans: ClassVar[bool] = False  # whether groups never touch each other, so that the words next to each are visible

    @property
    def reads(self) -> frozenset[Annotation]:
        """The annotations of the text that it reads: annotator and kind of tags."""
        return frozenset()

    @abstractmethod
    def choose(self, text: Text, budget: np.ndarray, draws: Draws) -> np.ndarray:
        """The groups of masked positions ``[b t]``, at most ``budget`` ``[b]`` positions of each row."""


class Pieces(Units):
    """Single pieces, at random: the k smallest of one uniform number a position (BERT's first release, RoBERTa).

    Lower budgets choose subsets.
    """

    kind: Literal["pieces"] = knob("pieces", "", neutral="pieces")

    def choose(self, text: Text, budget: np.ndarray, draws: Draws) -> np.ndarray:
        """Each masked position, a group of its own."""
        columns = text.candidates.shape[1]
        return np.where(smallest(text.candidates, draws.uniform("choose", columns), budget), np.arange(columns), -1)


class WholeWords(Units):
    """Whole words, in random order; one that would exceed the budget is skipped (BERT's later release).

    A lower rate chooses a subset of the words of a higher one up to the first word that did not fit.
    """

    kind: Literal["whole_words"] = knob("whole_words", "")

    def choose(self, text: Text, budget: np.ndarray, draws: Draws) -> np.ndarray:
        """Each masked word, a group."""
        return text.words.filled(text.candidates, budget, draws)


class Bionic(Units):
    """The ends of words: first pieces stay, and those after them are hidden, of words in random order.

    What would exceed the budget is skipped. Where fewer pieces continue a word than the budget holds, all are hidden.
    """

    kind: Literal["bionic"] = knob("bionic", "")

    def choose(self, text: Text, budget: np.ndarray, draws: Draws) -> np.ndarray:
        """The masked end of each word, a group."""
        ends = text.candidates & ~text.begins
        begins = ends.copy()
        begins[:, 1:] &= text.begins[:, :-1]
        return Stretches.of(ends, begins).filled(ends, budget, draws)


class NGrams(Units):
    """Runs of n words with p(n) ~ 1/n, from words in random order (ALBERT).

    Lan et al. (2020), section 4.1, and the released code. One that does not fit the budget is tried shorter; one that
    meets a hidden word is left out, not cut. Near the end of a text, only lengths that fit are drawn. Unlike in the
    released code none crosses a special piece. Rates do not nest: what did not fit at a low rate may fit at a higher
    one, and be in the way of others.
    """

    kind: Literal["ngrams"] = knob("ngrams", "")
    longest: int = knob(3, "Most words of an n-gram.", ge=1, le=32)

    def choose(self, text: Text, budget: np.ndarray, draws: Draws) -> np.ndarray:
        """Each n-gram, a group."""
        words, columns = text.words, text.candidates.shape[1]
        row, within, rest = np.arange(len(budget)), np.arange(self.longest), budget.copy()
        order, lengths = words.shuffled(draws, columns), self._lengths(text, draws)
        count = words.first.shape[1]
        last = np.minimum(np.arange(count)[:, None] + within, count - 1)
        pieces = words.end[:, last] - words.first[:, :, None]  # of the first 1, 2 ... words from each word on
        group = np.full((len(row), count + self.longest), -1)
        for column in range(order.shape[1]):
            word = order[:, column]
            fits = (pieces[row, word] <= rest[:, None]) & (within < lengths[row, word][:, None])
            place = word[:, None] + within
            taken = fits & ~((group[row[:, None], place] >= 0) & fits).any(1, keepdims=True)
            chosen, nth = np.nonzero(taken)
            group[chosen, place[chosen, nth]] = words.first[chosen, word[chosen]]
            number = taken.sum(1)
            rest -= np.where(number > 0, pieces[row, word, np.maximum(number, 1) - 1], 0)
            if not rest.any():
                break
        return words.spread(group, text.candidates)

    def _lengths(self, text: Text, draws: Draws) -> np.ndarray:
        """The number of words drawn for the n-gram at each word ``[b w]``; 0 where a row has fewer words."""
        words, columns = text.words, text.candidates.shape[1]
        possible = np.where(words.size > 0, np.minimum(words.following, self.longest), 0)
        weights = np.cumsum(1.0 / np.arange(1, self.longest + 1))
        row = np.arange(len(possible))[:, None]
        uniform = draws.uniform("length", columns)[row, np.minimum(words.first, columns - 1)]
        drawn = 1 + np.searchsorted(weights, uniform * weights[np.maximum(possible, 1) - 1], side="right")
        return np.minimum(drawn, possible)


class Spans(Units):
    """Spans of whole words whose number is geometric, cut off and renormalised (SpanBERT).

    Joshi et al. (2020), section 3.1, and the released code. Again and again, a piece that is still visible is drawn; a
    span begins where its word begins, and may run over hidden words up to the end of the text. The last span is cut
    where the budget ends, within a word if need be. Spans that overlap or touch are one group. With ``longest: 1``
    these are whole words, in SpanBERT's way. Lower rates hide subsets.
    """

    spans: ClassVar[bool] = True

    kind: Literal["spans"] = knob("spans", "")
    p: float = knob(0.2, "Parameter of the geometric distribution of the words of a span.", gt=0, le=1)
    longest: int = knob(10, "Most words of a span, before spans that touch are joined.", ge=1, le=512)

    def choose(self, text: Text, budget: np.ndarray, draws: Draws) -> np.ndarray:
        """Each run of masked positions, a group."""
        spans = _Anchored(text, self.lengths(draws.uniform("length", text.candidates.shape[1])), draws)
        masked, rest = np.zeros_like(text.candidates), budget.copy()
        while rest.any():
            rest -= _mask_stretch(masked, *spans.next(masked), rest)
        return _runs(masked)

    def lengths(self, uniform: np.ndarray) -> np.ndarray:
        """Words of spans from uniform numbers, by the inverse of the cut distribution function."""
        ends = np.cumsum(self.shares())
        return 1 + np.minimum(np.searchsorted(ends, uniform, side="right"), self.longest - 1)

    def shares(self) -> np.ndarray:
        """Probability of 1, 2 ... words."""
        shares = self.p * (1 - self.p) ** np.arange(self.longest)
        return shares / shares.sum()


class _Anchored:
    """The spans that begin at the words of pieces in random order, of so many words as ``lengths`` ``[b t]`` says."""

    def __init__(self, text: Text, lengths: np.ndarray, draws: Draws) -> None:
        words = text.words
        self._row = np.arange(len(lengths))
        row = self._row[:, None]
        uniform = np.where(text.candidates, draws.uniform("choose", text.candidates.shape[1]), 2.0)
        self._order = np.argsort(uniform, axis=1)
        self._left = np.take_along_axis(text.candidates, self._order, axis=1)
        word = np.maximum(words.number, 0)
        last = np.minimum(word + np.minimum(lengths, words.following[row, word]), words.first.shape[1]) - 1
        self._start, self._end = words.first[row, word], words.end[row, last]

    def next(self, masked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Start and end ``[b]`` of each row's next span, whose anchor is still visible; empty where all is masked."""
        self._left &= ~np.take_along_axis(masked, self._order, axis=1)
        at = self._left.argmax(1)
        anchor, some = self._order[self._row, at], self._left[self._row, at]
        return self._start[self._row, anchor], np.where(some, self._end[self._row, anchor], 0)


class SpreadSpans(Units):
    """Spans of n pieces with p(n) ~ 1/n, each in a context of its own, from the left to the right of the text (XLNet).

    Yang et al. (2019), section 3.1, and the released code. The context of a span of n pieces is n pieces for each one
    that is hidden, if one in so many is: 6 n at a rate of 1/6. A random part of it comes before the span, which begins
    at the next beginning of a word, and the rest after it. Since a span is no part of its context, the text ends before
    the budget, and single pieces at random fill it. Spans are cut where the budget or a text ends; the released code
    leaves out one that meets the end. It means to count words, and counts pieces.
    """

    kind: Literal["spread_spans"] = knob("spread_spans", "")
    longest: int = knob(5, "Most pieces, or words, of a span.", ge=1, le=512)
    counted: Literal["pieces", "words"] = knob(
        "pieces", "What the length of a span counts: pieces, as XLNet's released code does, or words, as it means to."
    )

    def choose(self, text: Text, budget: np.ndarray, draws: Draws) -> np.ndarray:
        """Each span, and each single piece, a group."""
        group = self.placed(text, budget, draws)
        column = np.arange(group.shape[1])
        left = text.candidates & (group < 0)
        single = smallest(left, draws.uniform("choose", len(column)), budget - (group >= 0).sum(1))
        return np.where(single, column, group)

    def placed(self, text: Text, budget: np.ndarray, draws: Draws) -> np.ndarray:
        """The groups of the spans alone ``[b t]``, without the single pieces that fill the budget."""
        line, columns = _Line(text), text.candidates.shape[1]
        lengths, offsets = (draws.uniform(purpose, columns) for purpose in ("length", "offset"))
        weights = np.cumsum(1.0 / np.arange(1, self.longest + 1))
        each = line.size / np.maximum(budget, 1)  # pieces for each that is masked
        group = np.full_like(line.place, -1)
        at, rest = np.zeros_like(budget), np.where(line.size > 0, budget, 0)
        for number in range(columns):
            drawn = 1 + np.searchsorted(weights, lengths[:, number] * weights[-1], side="right")
            size = np.minimum(np.minimum(drawn, self.longest), rest)
            around = np.floor(size * each).astype(np.int64)
            before = (offsets[:, number] * around).astype(np.int64)
            start = line.word_from(at + before)
            end = np.minimum(line.after(start, size, words=self.counted == "words"), start + rest)
            line.mark(group, start, end)
            rest = np.where(start < line.size, rest - (end - start), 0)
            at = end + around - before
            if not rest.any():
                break
        return group


class _Line:
    """The candidates of each row, numbered without gaps: ``size`` ``[b]`` of them, at positions ``place`` ``[b t]``."""

    def __init__(self, text: Text) -> None:
        candidates, self.words = text.candidates, text.words
        self._row, self._column = np.arange(len(candidates)), np.arange(candidates.shape[1])
        self.place, self.size = np.argsort(~candidates, axis=1, kind="stable"), candidates.sum(1)
        self._number = np.cumsum(candidates, axis=1) - 1
        inside = self._column < self.size[:, None]
        begins = np.take_along_axis(text.begins, self.place, axis=1) & inside
        parted = inside.copy()
        parted[:, 1:] &= np.diff(self.place, axis=1) > 1
        self._word, self._end = (self._next(where) for where in (begins, parted))

    def _next(self, where: np.ndarray) -> np.ndarray:
        """The first number from each one on at which something is; the size of the row if there is none."""
        found = np.where(where, self._column, self.size[:, None])
        return np.minimum.accumulate(found[:, ::-1], axis=1)[:, ::-1]

    def word_from(self, number: np.ndarray) -> np.ndarray:
        """The first beginning of a word from each row's number on; its size where there is none."""
        found = self._word[self._row, np.minimum(number, len(self._column) - 1)]
        return np.where(number < self.size, found, self.size)

    def after(self, start: np.ndarray, count: np.ndarray, *, words: bool) -> np.ndarray:
        """The number after so many pieces, or words, from the beginning of a word on, in the same text."""
        start = np.minimum(start, len(self._column) - 1)
        if words:
            word = np.maximum(self.words.number[self._row, self.place[self._row, start]], 0)
            last = word + np.minimum(count, self.words.following[self._row, word]) - 1
            return self._number[self._row, self.words.end[self._row, np.maximum(last, 0)] - 1] + 1
        following = np.minimum(start + 1, len(self._column) - 1)
        end = np.where(start + 1 < self.size, self._end[self._row, following], self.size)
        return np.minimum(start + count, end)

    def mark(self, group: np.ndarray, start: np.ndarray, end: np.ndarray) -> None:
        """Gives the positions from ``start`` to ``end`` of each row a group, in place."""
        inside = (self._column >= start[:, None]) & (self._column < np.minimum(end, self.size)[:, None])
        row, number = np.nonzero(inside)
        group[row, self.place[row, number]] = self.place[row, start[row]]


class Tagged(Units):
    """Tagged spans, such as named entities, and for the other half random whole words (SpanBERT's comparisons).

    Joshi et al. (2020), section 6.1, and the released code. Each draw is a tagged span with the given probability,
    uniform over those of the text, else the word of a random visible piece. A draw that would hide nothing new is drawn
    again, so that a text without tags hides words alone. The last one is cut where the budget ends. What touches is one
    group. Lower rates hide subsets.
    """

    spans: ClassVar[bool] = True

    kind: Literal["tagged"] = knob("tagged", "")
    tags: Tags = knob("entities", "What is tagged.")
    share: float = knob(0.5, "Probability that a draw is a tagged span.", ge=0, le=1)
    annotator: str = knob(
        "en_core_web_sm",
        "Who tagged the text: an installed pipeline of spaCy. For entities it may be the rule 'capitalised' instead: "
        "runs of words with a capital that do not begin a sentence.",
        min_length=1,
    )

    @model_validator(mode="after")
    def _rule_for_entities(self) -> Self:
        if self.annotator == CAPITALISED and self.tags != "entities":
            text = f"annotator {CAPITALISED} is a rule for entities. For {self.tags} name a pipeline of spaCy."
            raise ValueError(text)
        return self

    @property
    def reads(self) -> frozenset[Annotation]:
        """The annotation that it needs."""
        return frozenset({(self.annotator, self.tags)})

    def choose(self, text: Text, budget: np.ndarray, draws: Draws) -> np.ndarray:
        """Each run of masked positions, a group."""
        columns, row = text.candidates.shape[1], np.arange(len(budget))
        tagged = text.tagged((self.annotator, self.tags))
        words = _Anchored(text, np.ones(text.candidates.shape, dtype=np.int64), draws)
        coin, which = draws.uniform("tagged or word", columns), draws.uniform("which tag", columns)
        masked, rest = np.zeros_like(text.candidates), budget.copy()
        for step in range(columns):  # each masks something
            left = _visible(tagged, masked)
            start, end = words.next(masked)
            some = left.sum(1)
            # chances of a tag and of a word that mask something new
            chance = self.share * some / np.maximum((tagged.size > 0).sum(1), 1)
            other = (1 - self.share) * (text.candidates & ~masked).sum(1) / np.maximum(text.candidates.sum(1), 1)
            tag = (some > 0) & (coin[:, step] * (chance + other) < chance)
            nth = np.minimum((which[:, step] * some).astype(np.int64), np.maximum(some - 1, 0))
            place = (left.cumsum(1) == nth[:, None] + 1).argmax(1)
            start = np.where(tag, tagged.first[row, place], start)
            end = np.where(tag, tagged.end[row, place], end)
            rest -= _mask_stretch(masked, start, end, rest)
            if not rest.any():
                break
        return _runs(masked)


def _visible(stretches: Stretches, masked: np.ndarray) -> np.ndarray:
    """The stretches that are not masked as a whole ``[b w]``."""
    upto = np.zeros((masked.shape[0], masked.shape[1] + 1), dtype=np.int64)
    np.cumsum(masked, axis=1, out=upto[:, 1:])
    row, longest = np.arange(len(masked))[:, None], masked.shape[1]
    covered = upto[row, np.minimum(stretches.end, longest)] - upto[row, np.minimum(stretches.first, longest)]
    return (stretches.size > 0) & (covered < stretches.size)


AnyUnits = Annotated[Pieces | WholeWords | NGrams | Spans | SpreadSpans | Tagged | Bionic, ByKind()]


class Masking(Settings):
    """The positions to predict, and the corruption of the input at them.

    Worked example at ``rate=0.25`` with eight positions (two special, so six candidates)::

        ids       [CLS]  the  cat  sat  on   the  mat  [SEP]
        uniform     -    .71  .08  .55  .93  .31  .20    -
        chosen      0     0    1    0    0    0    1     0     round(0.25 * 8) = 2 smallest
        replaced    -     -  [MASK] -    -    -   dog    -     by a second uniform: 80 / 10 / 10

    Special tokens and padding are never chosen. Of single pieces every sequence has at least one prediction, and with
    the same seed, a lower rate chooses a subset of the positions of a higher rate.
    """

    rate: float = knob(0.15, "Share of positions that are hidden.", gt=0, le=1)
    predicted: float | None = knob(
        None,
        "Share of positions that are predicted, by default all that are hidden. Fewer are some of the hidden ones. "
        "More must be a multiple of rate: each sequence is presented so many times, with other positions hidden. Each "
        "presentation costs a forward and a backward pass (Wettig et al. 2023, Table 3).",
        neutral=None,
        gt=0,
        le=1,
    )
    units: AnyUnits = knob(Pieces(), "What is hidden as a whole.", neutral=Pieces())
    mask: float = knob(0.8, "Share of predicted positions replaced by [MASK].", ge=0, le=1)
    same: float = knob(0.1, "Share of predicted positions left unchanged.", ge=0, le=1)
    random: float = knob(0.1, "Share of predicted positions replaced by a random token.", ge=0, le=1)
    replacement: Literal["piece", "group"] = knob(
        "piece",
        "Whether [MASK], the same or a random token is drawn for each piece or once for a group. Each piece of a "
        "group still has a random token of its own (SpanBERT).",
        neutral="piece",
    )
    random_words: Literal["uniform", "ordinary", "frequency"] = knob(
        "uniform",
        "What random tokens are drawn from: uniform is the vocabulary, special and unused pieces included (BERT). "
        "With ordinary it is the pieces that are not special (RoBERTa). With frequency it is the text, so that "
        "frequent pieces come often (SpanBERT).",
        neutral="uniform",
    )
    count: Literal["round", "stochastic_round", "ceil", "bernoulli"] = knob(
        "round",
        "How many of n real positions are hidden: round is round(rate n), special tokens counted (BERT, ALBERT). With "
        "stochastic_round it is int(rate n + u) with u uniform (RoBERTa, Wettig et al.). With ceil it is rate n "
        "rounded up, special tokens not counted (SpanBERT). With bernoulli each position is drawn independently "
        "(Hugging Face, Cramming).",
    )
    cap: int | None = knob(
        None, "Maximum predictions per sequence (BERT: 20 at 128 positions). By default no limit.", neutral=None, ge=1
    )
    copies: int = knob(
        0, "0 for dynamic masking, a new mask at each presentation. K for K fixed masks used in turn.", neutral=0, ge=0
    )

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        total, times = self.mask + self.same + self.random, (self.predicted or self.rate) / self.rate
        if abs(total - 1) > 1e-9:
            raise ValueError(
                f"mask + same + random must be 1, not {self.mask} + {self.same} + {self.random} = {total:.6g}"
            )
        if times > 1 and abs(times - round(times)) > 1e-9:
            near = " or ".join(f"{count * self.rate:.6g}" for count in (int(times), int(times) + 1))
            raise ValueError(
                f"predicted {self.predicted} is more than rate {self.rate} and no multiple of it: set it to {near}"
            )
        return self

    def resolved(self) -> Self:
        """The settings in full; predicting all that is hidden is the default."""
        full = super().resolved()
        return full.model_copy(update={"predicted": None}) if full.predicted == full.rate else full

    @property
    def presentations(self) -> int:
        """How many times each sequence is presented in a step, with other positions hidden."""
        return max(1, round((self.predicted or self.rate) / self.rate))

    def choose(self, tokens: Tokens, draws: Draws, vocabulary: Vocabulary) -> np.ndarray:
        """The groups of what is masked ``[b t]``, in all presentations together."""
        text = Text(tokens, vocabulary)
        return self.units.choose(text, self._budget(text, draws, self.rate * self.presentations), draws)

    def loss_positions(self, tokens: Tokens, groups: np.ndarray, draws: Draws, vocabulary: Vocabulary) -> np.ndarray:
        """The masked positions that are predicted, a bool array ``[b t]``."""
        masked = groups >= 0
        if self.predicted is None or self.predicted >= self.rate:
            return masked
        count = np.minimum(self._budget(Text(tokens, vocabulary), draws, self.predicted), masked.sum(1))
        return smallest(masked, draws.uniform("choose", masked.shape[1]), count)

    def _budget(self, text: Text, draws: Draws, rate: float) -> np.ndarray:
        """How many positions of each row are masked, at most ``[b]``."""
        available, real = text.candidates.sum(1), text.tokens.real.numpy().sum(1)
        if self.count == "bernoulli":
            count = (text.candidates & (draws.uniform("choose", text.candidates.shape[1]) < rate)).sum(1)
        elif self.count == "stochastic_round":
            count = np.floor(rate * real + draws.uniform("count", 1)[:, 0]).astype(np.int64)
        elif self.count == "ceil":
            count = np.ceil(np.round(rate * available, 9)).astype(np.int64)  # 0.15 x 20 is a little more than 3
        else:  # halves to even, as Python's round in BERT's code
            count = np.rint(rate * real).astype(np.int64)
        limit = available if self.cap is None else np.minimum(available, self.cap)
        return np.minimum(np.maximum(count, 1), limit)

    def mask_inputs(self, tokens: Tokens, groups: np.ndarray, draws: Draws, vocabulary: Vocabulary) -> Tokens:
        """The input of the model: a copy of the tokens with the masked positions replaced."""
        columns = groups.shape[1]
        masked, fate = groups >= 0, draws.uniform("replace", columns)
        if self.replacement == "group":
            fate = np.take_along_axis(fate, np.maximum(groups, 0), axis=1)
        ids = np.where(masked & (fate < self.mask), vocabulary.mask, tokens.ids.numpy())
        if self.random:
            swapped = masked & (fate >= self.mask) & (fate < self.mask + self.random)
            ids = np.where(swapped, self._random(columns, vocabulary, draws), ids)
        return replace(tokens, ids=torch.from_numpy(ids))

    def _random(self, columns: int, vocabulary: Vocabulary, draws: Draws) -> np.ndarray:
        """A random token for every position ``[b t]``."""
        if self.random_words == "uniform":
            return draws.integers("random word", columns, vocabulary.size)
        source = vocabulary.ordinary if self.random_words == "ordinary" else vocabulary.text
        if source is None:
            raise Unsupported("random_words: frequency draws words from a text, and this vocabulary comes without one")
        return source[draws.integers("random word", columns, len(source))].astype(np.int64)

    def expected_predictions(self, length: int) -> float:
        """Expected predictions of a full sequence in one presentation, for FLOPs.

        Special positions are included, although ``bernoulli`` and ``ceil`` do not count them; so is what does not fit
        what is left of the budget.
        """
        rate = min(self.rate, self.predicted or self.rate)
        predicted = max(1.0, float(np.rint(rate * length)) if self.count == "round" else rate * length)
        return predicted if self.cap is None else min(predicted, float(self.cap))


def split_masks(groups: np.ndarray, draws: Draws, presentations: int) -> np.ndarray:
    """Groups divided at random among as many copies of each row, in turn ``[b * presentations t]``."""
    columns = np.arange(groups.shape[1])
    uniform = np.where(groups == columns, draws.uniform("choose", len(columns)), 2.0)
    rank = np.argsort(np.argsort(uniform, axis=1), axis=1)
    copy = np.take_along_axis(rank, np.maximum(groups, 0), axis=1) % presentations
    own = (groups >= 0)[:, None] & (copy[:, None] == np.arange(presentations)[:, None])
    return np.where(own, groups[:, None], -1).reshape(-1, len(columns))


class TwoNeighbours(Masking):
    """Two neighbouring tokens of each row, drawn at random, of which both or one are masked; a row may have none.

    A masked model predicts them independently of each other, and one of permuted prediction the second given the first
    (Yang et al. 2019, sections 2.1 and 2.6). The difference in nats is what two neighbours reveal of each other, given
    the rest. They are of different words: of two pieces of one word the first reveals most of the second to any model.
    """

    mask: float = 1.0
    same: float = 0.0
    random: float = 0.0
    hidden: Hidden = "both"

    def choose(self, tokens: Tokens, draws: Draws, vocabulary: Vocabulary) -> np.ndarray:
        """Both as one group."""
        text = Text(tokens, vocabulary)
        candidates, column = text.candidates, np.arange(tokens.ids.shape[1])
        pairs = candidates[:, :-1] & candidates[:, 1:] & text.begins[:, 1:]
        left = smallest(pairs, draws.uniform("choose", len(column) - 1), np.ones(len(pairs), dtype=np.int64))
        groups = np.full(candidates.shape, -1)
        if self.hidden != "right":
            groups[:, :-1] = np.where(left, column[:-1], -1)
        if self.hidden != "left":
            groups[:, 1:] = np.where(left, column[:-1], groups[:, 1:])
        return groups
