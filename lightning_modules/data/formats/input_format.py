"""Input formats: how documents are *arranged* as sequences, once, before any corruption."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

import numpy as np
from pydantic import model_validator

from lightning_modules import cached
from lightning_modules.batch import SOURCE
from lightning_modules.config import ConfigError, Settings, identity, knob, once
from lightning_modules.data.formats import blocks, by_language, lengths, matched, pairs, running_text, translations
from lightning_modules.data.formats.blocks import Blocks, Frame
from lightning_modules.data.formats.by_language import InTurn, LanguageRows, Monolingual, Pairs, SeveralLanguages
from lightning_modules.data.formats.excerpts import Excerpt, excerpt
from lightning_modules.data.formats.pairs import Negatives, PairSequences
from lightning_modules.data.formats.reuse import Rest, ReusedStream
from lightning_modules.data.formats.running_text import BreakMode, Sequences
from lightning_modules.data.formats.stream import ORDERS, SentenceOrder, Stream
from lightning_modules.data.formats.translations import Translations
from lightning_modules.data.store import TokenStore

LABELS = {  # by kind of format
    "full_sentences": frozenset[str](),
    "segment_pairs": frozenset({"sentence"}),
    "sentence_pairs": frozenset({"sentence"}),
    "stream": frozenset[str](),
    "seq2seq": frozenset[str](),
}

# how the rows of a stream are gone through
_AS_SHOWN: Mapping[str, Any] = {
    "row_starts": "even",
    "both_ways": False,
    "reuse_length": None,
    "rest": "text",
    "lengths": "fixed",
}
_NO_STREAM: Mapping[str, Any] = {"sentence_order": "text", **_AS_SHOWN}


def _idle_languages(rows: LanguageRows) -> dict[str, Any]:
    """The knobs of languages that have no effect, at their neutral values."""
    idle: dict[str, Any] = {} if rows != "one_text" else {"languages": rows, "language_exponent": 1.0}
    return idle if rows in ("pairs", "in_turn") else idle | {"reset_positions": True}


Pairing = Literal["released", "matched"]  # how text is cut into pairs, and where second segments come from


class InputFormat(Settings):
    """One segment of running text, or two segments that may or may not belong together.

    The formats of RoBERTa's Table 2 (Liu et al. 2019, section 4.2) are:

    ==============  ==================  ================================
    in the paper    ``kind``            ``break_mode``
    ==============  ==================  ================================
    SEGMENT-PAIR    ``segment_pairs``
    SENTENCE-PAIR   ``sentence_pairs``
    FULL-SENTENCES  ``full_sentences``  ``sentences``
    DOC-SENTENCES   ``full_sentences``  ``documents``
    ==============  ==================  ================================

    ``full_sentences`` is ``[CLS] text [SEP]`` with an extra ``[SEP]`` where a new document begins inside: whole
    sentences, packed until the next does not fit, across documents (``sentences``) or not (``documents``). A sentence
    longer than a sequence is split; nothing is dropped. SpanBERT's single sequence is that of ``documents``, but its
    released code drops sentences that are longer than a sequence. With ``break_mode="none"`` (fairseq's name; used by
    Wettig et al. 2023) text is cut at fixed lengths instead: this needs no padding, where short sequences of whole
    sentences are a fifth padding. Only then can ``frame`` leave out ``[CLS]`` and ``[SEP]``, as GPT and GPT-2 do.

    ``stream`` is the text in as many rows as a step has, which go on from step to step without a gap, for models that
    remember what came before (see `stream`). It has no ``[CLS]``; its ``frame`` says whether documents end with a
    ``[SEP]``.

    ``segment_pairs`` is ``[CLS] A [SEP] B [SEP]``: cut and drawn as by the released code of BERT and ALBERT (see
    `pairs`), or so that nothing but the text gives a label away (see `matched`). In ``sentence_pairs`` both segments
    are a single sentence each. They, and the ends of documents, leave rows short: `ablations data formats` says how
    short, and ``training.batch_by`` gives a step as many tokens nevertheless.
    """

    kind: Literal["full_sentences", "segment_pairs", "sentence_pairs", "stream", "seq2seq"] = knob(
        "full_sentences",
        "Layout: one segment of running text, BERT's two segments, two sentences, or running text whose rows continue "
        "from step to step (stream). With seq2seq a row is a sentence and its translation, as two sequences.",
        neutral="full_sentences",
    )
    sequence_length: int = knob(
        512,
        "Positions per sequence, special tokens included. With seq2seq those of each side, and longer pairs are left "
        "out.",
        ge=8,
        le=1 << 20,
    )
    share: float = knob(
        1.0,
        "Share of the training sequences that are shown, drawn once at random: the same for all seeds. A smaller share "
        "is within a larger one.",
        neutral=1.0,
        gt=0,
        le=1,
    )
    first_share: float = knob(
        0.0,
        "Length curriculum: share of the steps, the first ones, that show first_length positions, 0.9 in BERT.",
        neutral=0.0,
        ge=0,
        lt=1,
    )
    first_length: int | None = knob(
        None,
        "Length curriculum: positions per sequence of the first steps. Without effect from sequence_length up.",
        neutral=None,
        ge=8,
        le=1 << 20,
    )
    break_mode: BreakMode = knob(
        "sentences",
        "Running text: sequences end at sentence boundaries (sentences), also wherever a document ends (documents), or "
        "at a fixed length (none).",
        neutral="sentences",
    )
    frame: Frame = knob(
        "cls_sep",
        "Running text: special tokens of a sequence. With cls_sep [CLS] is before it, [SEP] after it, and [SEP] "
        "between documents. With document_ends a [SEP] is after each document, which a language model predicts "
        "(GPT-2). GPT has none.",
        neutral="cls_sep",
    )
    sentence_order: SentenceOrder = knob(
        "text",
        "Streams: order of the sentences, of held-out text as well. With shuffled it is random, and each sentence is "
        "a document of its own, so that nothing before it helps to predict it. With backward all tokens are reversed, "
        "those of texts in fine-tuning too (ULMFiT's second classifier).",
        neutral="text",
    )
    row_starts: Literal["even", "drawn"] = knob(
        "even",
        "Streams of training text: where the first row begins. With even it is the beginning of the text, for all "
        "seeds. With drawn each seed has a place of its own and reads other text. The other rows follow at even "
        "distances.",
        neutral="even",
    )
    lengths: Literal["fixed", "drawn"] = knob(
        "fixed",
        "Streams of training text: positions of a step. With fixed they are sequence_length. With drawn each step has "
        "a number of its own, about sequence_length or, one time in twenty, half of it (AWD-LSTM). What is left of a "
        "row when it is shorter than the next step is not shown. On a GPU drawn numbers are rounded to multiples of 8.",
        neutral="fixed",
    )
    both_ways: bool = knob(
        False,
        "Streams of training text: half of the rows of a step go through the text from its end to its beginning. What "
        "a model remembers is then to their right (XLNet's two-way data).",
        neutral=False,
    )
    reuse_length: int | None = knob(
        None,
        "Streams: positions of a row that continue and fill the memory. They see each other alone, and the next step "
        "begins behind them and reads the rest of the row again (XLNet: 256 of 512). By default all continue.",
        neutral=None,
        ge=8,
        le=1 << 20,
    )
    rest: Rest = knob(
        "text",
        "Streams with a reuse_length: what is behind those positions. It is the text that follows, or a pair A [SEP] "
        "B [SEP] [CLS], whose A is that text (XLNet). For half of the pairs B is what follows A, for the others it is "
        "not.",
        neutral="text",
    )
    languages: LanguageRows = knob(
        "one_text",
        "Running text of several languages: what rows are. With one_text nothing is known of languages. With apart "
        "each row, and each step, has one language, parallel text included. With pairs a row is a sentence and its "
        "translation (XLM's TLM). With in_turn every second step has pairs.",
        neutral="one_text",
    )
    language_exponent: float = knob(
        1.0,
        "Several languages: a step has one with a probability that is its share of the tokens to this power, divided "
        "by the sum over languages. With 1 languages come as often as in the text, with 0 all as often (XLM: 0.5).",
        neutral=1.0,
        ge=0,
        le=1,
    )
    reset_positions: bool = knob(
        True,
        "Rows of a sentence and its translation: the positions of the second begin again (XLM).",
        neutral=True,
    )
    negatives: Negatives = knob(
        "random",
        "Pairs: the negatives, half of all pairs: random has a second segment of another document (BERT), "
        "swapped has the two segments in reverse order (ALBERT).",
        neutral="random",
    )
    pairing: Pairing = knob(
        "released",
        "Pairs: how they are made. With released it is as by the code of BERT and ALBERT. With matched they are of "
        "whole sentences, and partners have the same corpus and length. Then lengths, edges and corpora do not "
        "predict the label.",
        neutral="released",
    )
    excerpt: Excerpt = knob(
        "all",
        "Pairs, a control: what is shown of each segment, in training and of held-out pairs alike. It is all words, "
        "the first eight, the rest, or all in random order (shuffled).",
        neutral="all",
    )
    cls: Literal["first", "last"] = knob(
        "first",
        "Place of [CLS] in sequences that have one: last is behind the last [SEP], as a segment of its own (XLNet). "
        "Held-out running text keeps it first, so that the same tokens are predicted.",
        neutral="first",
    )
    short_fraction: float = knob(
        0.1, "Segment pairs: share of pairs with a random shorter length.", neutral=0.0, ge=0, le=1
    )
    short_sequences: float = knob(
        0.0,
        "Running text: share of sequences with a random shorter length, as short_fraction is for pairs. Held-out text "
        "keeps its full length.",
        neutral=0.0,
        ge=0,
        le=1,
    )
    duplicates: int = knob(
        1,
        "Pairs: how often the text is arranged, with new random draws (BERT's dupe_factor).",
        neutral=1,
        ge=1,
        le=1000,
    )
    short_documents: bool = knob(
        False,
        "Segment pairs: draw the shorter length once per document, as in BERT's released code, not once per pair.",
        neutral=False,
    )
    lone_negatives: bool = knob(
        False,
        "Pairs, swapped: give a single sentence a random second segment as a negative, "
        "as in ALBERT's released code. By default single sentences are left out.",
        neutral=False,
    )

    @model_validator(mode="after")
    def _first_steps_have_a_length(self) -> Self:
        if self.first_share and self.first_length is None:
            raise ValueError(
                f"first_share {self.first_share:g} needs first_length, the positions of these steps. BERT has 128."
            )
        return self

    @model_validator(mode="after")
    def _only_blocks_lack_a_frame(self) -> Self:
        if self.kind == "stream":
            return self._checked_stream()
        if self.kind == "seq2seq" and self.first_share:
            raise ValueError(
                f"first_share {self.first_share:g} shows shorter text first, and a translation has the length that it "
                "has: set first_share to 0"
            )
        needed = {"kind": "full_sentences", "break_mode": "none"} if self.frame != "cls_sep" else {}
        wrong = [f"set {name} to {value}" for name, value in needed.items() if getattr(self, name) != value]
        if wrong:
            raise ValueError(
                f"frame {self.frame} is of running text that is cut at a fixed length: {' and '.join(wrong)}, or frame "
                "to cls_sep"
            )
        return self

    @model_validator(mode="after")
    def _languages_are_of_running_text(self) -> Self:
        if self.languages == "one_text":
            return self
        needed = {"kind": "full_sentences", "frame": "cls_sep", "cls": "first", "share": 1.0, "first_share": 0.0}
        if wrong := [f"set {name} to {value}" for name, value in needed.items() if getattr(self, name) != value]:
            raise ValueError(
                f"languages {self.languages} is of running text, all of it, with [CLS] first: {' and '.join(wrong)}, "
                "or languages to one_text"
            )
        return self

    def _checked_stream(self) -> Self:
        if self.frame == "cls_sep":
            raise ValueError(
                "a stream has no [CLS] and [SEP] around its rows, which continue each other. Set frame to "
                "document_ends, for a [SEP] after each document, or to none."
            )
        if self.share < 1:
            raise ValueError(
                f"share {self.share:g} draws sequences at random, and those of a stream continue each other. Set "
                "share to 1, or kind to full_sentences."
            )
        if self.reuse_length is None and self.rest == "pair":
            raise ValueError(
                "rest pair needs positions that continue before it. Set reuse_length, half of sequence_length in "
                "XLNet, or rest to text."
            )
        if self.lengths == "drawn":
            ways = {"row_starts": "even", "both_ways": False, "reuse_length": None, "first_share": 0.0}
            wrong = {name: given for name in ways if (given := getattr(self, name)) != ways[name]}
            if wrong:
                named = ", ".join(f"{name} {given}" for name, given in wrong.items())
                raise ValueError(
                    "lengths drawn is of rows that go through the text from its beginning, whole: set lengths to "
                    f"fixed, or leave out {named}"
                )
        shortest = min(self.sequence_length, self.first_length or self.sequence_length)
        room = 1 if self.rest == "text" else 2 + pairs.SPECIALS
        if self.reuse_length is not None and self.reuse_length + room > shortest:
            raise ValueError(
                f"reuse_length {self.reuse_length} leaves {max(0, shortest - self.reuse_length)} of {shortest} "
                f"positions for the rest of a row, which needs {room}: lower reuse_length, or show longer sequences"
            )
        return self

    @once
    def resolved(self) -> Self:
        """The settings with knobs that have no effect set to their neutral values."""
        shorter = self.first_length is not None and self.first_length < self.sequence_length
        form = self if shorter and self.first_share else self._of_one_length(self.sequence_length)
        if form.kind in ("full_sentences", "stream"):
            idle = {"negatives": "random", "pairing": "released", "excerpt": "all", "short_fraction": 0.0}
            off = {"duplicates": 1, "short_documents": False, "lone_negatives": False}
            streamed = {"break_mode": "none", "short_sequences": 0.0}  # a text cut at a fixed length, by nature
            own = dict(streamed if form.kind == "stream" else _NO_STREAM)
            own |= _idle_languages(form.languages)
            if form.frame != "cls_sep":
                own["cls"] = "last" if form.pairs_in_stream else "first"
            return form.model_copy(update=idle | off | own)
        lone = form.lone_negatives and form.negatives == "swapped" and form.pairing == "released"
        short = form.short_fraction if form.kind == "segment_pairs" else 0.0
        idle = {"break_mode": "sentences", "short_sequences": 0.0, **_NO_STREAM, **_idle_languages("one_text")}
        if form.kind == "seq2seq":
            of_pairs = {"negatives": "random", "pairing": "released", "excerpt": "all", "short_fraction": 0.0}
            off = {"duplicates": 1, "short_documents": False, "lone_negatives": False, "cls": "first"}
            return form.model_copy(update=idle | of_pairs | off)
        own = {"short_fraction": short, "short_documents": form.short_documents and short > 0, "lone_negatives": lone}
        return form.model_copy(update=idle | own)

    @property
    def gives(self) -> frozenset[str]:
        """The inputs besides token ids that its batches hold, which the backbone must read."""
        return frozenset({SOURCE} if self.kind == "seq2seq" else {"segment table"})

    @property
    def labels(self) -> frozenset[str]:
        """The labels of sequences that its batches hold, which objectives may read."""
        return LABELS["segment_pairs" if self.pairs_in_stream else self.kind]

    @property
    def longest(self) -> int:
        """The most positions of a row."""
        return lengths.longest(self.sequence_length) if self.lengths == "drawn" else self.sequence_length

    @property
    def pairs_in_stream(self) -> bool:
        """Whether its rows go on and hold a pair."""
        return self.kind == "stream" and self.rest == "pair"

    @property
    def sides(self) -> int:
        """Sequences of a row: two with a source, which are counted together where rows are counted."""
        return translations.SIDES if self.kind == "seq2seq" else 1

    def unpredicted(self, positions: int) -> int:
        """Tokens of a row of so many positions, with one segment and of one document, that no neighbour predicts.

        ``[CLS]`` and ``[SEP]``, or the first token of a block; the rows of a stream predict as many as they have. Of a
        source, half of the positions, none is predicted.
        """
        if self.kind == "seq2seq":
            return positions // translations.SIDES + translations.UNPREDICTED
        return 2 if self.frame == "cls_sep" else 0 if self.kind == "stream" else 1

    def _of_one_length(self, length: int) -> Self:
        return self.model_copy(update={"sequence_length": length, "first_share": 0.0, "first_length": None})

    def first(self) -> Self | None:
        """The format of the first steps of a length curriculum, if there is one."""
        length = self.resolved().first_length
        return self._of_one_length(length) if length else None

    def phases(self, steps: int) -> list[tuple[int, int]]:
        """Positions of a row, of all sides, and number of steps of each phase of a training of so many steps."""
        form = self.resolved()
        first = round(form.first_share * steps)
        last = form.sides * form.sequence_length
        return [(form.first_length, first)] * bool(form.first_length) + [(last, steps - first)]

    def heldout(self, *, blocks: bool = False) -> Self:
        """The format of the held-out text: running text of full length, so that measures are comparable.

        That of a stream is a stream, and that of pairs of two sequences is such pairs; for all others it is the same.

        Args:
            blocks: Whether it is cut at a fixed length for full sentences too, as it is for every other format.
        """
        whole = not blocks and self.kind == "full_sentences" and self.break_mode == "sentences"
        kind = self.kind if self.kind in ("stream", "seq2seq") else "full_sentences"
        shown = {"kind": kind, "break_mode": "sentences" if whole else "none"}
        shown |= {"short_sequences": 0.0, "share": 1.0, "cls": "first", **_AS_SHOWN}
        shown["languages"] = "one_text" if self.languages == "one_text" else "apart"
        return self._of_one_length(self.sequence_length).model_copy(update=shown)

    def arrange(self, store: TokenStore) -> Sequences | PairSequences | InTurn:
        """The sequences of a store, in the order of the text; the index is cached in its folder."""
        if self.kind == "stream":
            text = ORDERS[self.sentence_order](store)
            ends = self.frame == "document_ends"
            if self.reuse_length is not None:
                return ReusedStream.of_whole(text, self.sequence_length, ends, self.reuse_length, self.rest)
            return Stream.whole(text, self.sequence_length, ends)
        if self.kind == "seq2seq":
            cut = functools.partial(translations.arrange, store, self.sequence_length)
            index = self._cached(store, "translations", translations.RECIPE, cut)
            return Translations(store, index, self.sides * self.sequence_length)
        if self.kind != "full_sentences":
            return excerpt(self.arrange_pairs(store), self.excerpt)
        length = self.sequence_length
        if self.languages != "one_text":
            return self._by_language(store)
        if self.frame != "cls_sep":
            ends = self.frame == "document_ends"
            cut = functools.partial(blocks.arrange, store, length, ends, self.short_sequences)
            return Blocks.of(store, self._cached(store, "blocks", blocks.RECIPE, cut), length, ends)
        make = functools.partial(running_text.arrange, store, length, self.break_mode, self.short_sequences)
        return Sequences(store, self._cached(store, "sequences", running_text.RECIPE, make), length)

    def _by_language(self, store: TokenStore) -> SeveralLanguages:
        length, text = self.sequence_length, by_language.divided(store)
        fits = by_language.fitting(text, length)
        if self.languages in ("pairs", "in_turn") and not fits.any():
            given = ", ".join(store.names)
            raise ConfigError(
                [
                    f"format.languages {self.languages} shows pairs, and {given} has none that fits into {length} "
                    "positions. Add parallel text, such as 'bible:en-de', or set it to apart."
                ]
            )
        pairs = Pairs(text.store, text.pairs[fits], length, text.names, text.sides[fits], self.reset_positions)
        if self.languages == "pairs":
            return pairs
        make = functools.partial(by_language.arrange, text, length, self.break_mode, self.short_sequences)
        bounds = self._cached(store, "by-language", by_language.RECIPE, make)
        texts = Monolingual(text.store, bounds, length, text.names, text.store.sentences[text.sentences])
        return texts if self.languages == "apart" else InTurn(texts, pairs)

    def arrange_pairs(self, store: TokenStore) -> PairSequences:
        """The sequences of a store in the format of segment pairs, as `arrange`, with all their words."""
        made = pairs if self.pairing == "released" else matched
        index = self._cached(store, "pairs", made.RECIPE, functools.partial(made.arrange, store, self.resolved()))
        return PairSequences(store, index, self.sequence_length)

    def arrange_asked(self, store: TokenStore, count: int) -> PairSequences:
        """Pairs of at least two sentences that ask a question about a store.

        Released pairs are those of the whole text, of which any may be used. Matched ones are at most ``count``.
        """
        if self.pairing == "released":
            return self.arrange_pairs(store).of_several_sentences()
        index = self._cached(
            store, f"asked-{count}", matched.RECIPE, functools.partial(matched.asked, store, self.resolved(), count)
        )
        return PairSequences(store, index, self.sequence_length)

    def _cached(self, store: TokenStore, name: str, recipe: int, make: Callable[[], np.ndarray]) -> np.ndarray:
        whole = self._of_one_length(self.sequence_length)
        # excerpts and parts are taken from the same sequences
        whole = whole.model_copy(update={"excerpt": "all", "share": 1.0, "cls": "first", **_AS_SHOWN})
        if whole.languages != "one_text":
            whole = whole.model_copy(update={"languages": "apart", "language_exponent": 1.0, "reset_positions": True})
        path = store.folder / f"{name}-{identity([whole.essence(), recipe])[:12]}.npy"
        return cached.kept_array(path, make)
