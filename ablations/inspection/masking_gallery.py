"""A gallery of masking schemes: one sentence under each, and what they do to a text next to what formulas say."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from ablations.core.formatting import Sheet, markdown
from ablations.core.shown import Shown
from ablations.figures.style import INK, OKABE_ITO, Drawing, blank, shown, titles
from lightning_modules.batch import Annotation, Tokens
from lightning_modules.data import Data
from lightning_modules.data.annotations import marked, open_annotated
from lightning_modules.data.formats.text import RunningText, arrange
from lightning_modules.data.store import TokenStore, tokenizer_file
from lightning_modules.data.text.annotators import RULE, annotator
from lightning_modules.data.text.encode import Encoder, as_example
from lightning_modules.draws import Draws
from lightning_modules.objectives import Masking
from lightning_modules.objectives.masking import Bionic, NGrams, Spans, Tagged, Text, WholeWords

SCHEMES: dict[str, Masking] = {
    "BERT, single pieces": Masking(),
    "BERT, whole words": Masking(units=WholeWords()),
    "ALBERT, n-grams": Masking(units=NGrams()),
    "SpanBERT, spans": Masking(units=Spans(), count="ceil", replacement="group", random_words="frequency"),
    "SpanBERT, names": Masking(
        units=Tagged(annotator=RULE), count="ceil", replacement="group", random_words="frequency"
    ),
    "ends of words": Masking(units=Bionic()),
    "Wettig et al., 40 %": Masking(rate=0.4, mask=1.0, same=0.0, random=0.0, count="stochastic_round"),
}
_NAMES: Annotation = (RULE, "entities")
_MASK, _SAME, _RANDOM = OKABE_ITO[0], OKABE_ITO[2], OKABE_ITO[1]
_INCHES, _FONT, _SIZE = 9.6, "DejaVu Sans Mono", 6.5
_LETTERS = 0.98 * _INCHES / (0.602 * _SIZE / 72)  # that fit next to each other: a letter of this font is 0.602 wide
_NAMES_COLUMN = 26.0
_LINE = _LETTERS - _NAMES_COLUMN


@dataclass(frozen=True)
class _Piece:
    word: str
    line: int
    left: float
    width: float
    colour: str | None
    group: int


def _draw(axes: Axes, pieces: list[_Piece], top: float) -> None:
    """Draws one sentence; a bar below joins neighbours that are hidden together."""
    for before, piece in zip([None, *pieces], pieces, strict=False):
        height = top - 0.9 * piece.line
        if piece.colour:
            corner = (piece.left, height - 0.33)
            axes.add_patch(
                FancyBboxPatch(corner, piece.width, 0.66, boxstyle="round,pad=0.03", color=piece.colour, lw=0)
            )
            if before and before.group == piece.group and before.line == piece.line:
                axes.plot([before.left, piece.left + piece.width], [height - 0.46] * 2, color=INK, lw=1.5)
        colour, middle = "white" if piece.colour else INK, piece.left + piece.width / 2
        axes.text(middle, height, piece.word, fontsize=_SIZE, ha="center", va="center", color=colour, family=_FONT)


@dataclass(frozen=True)
class Gallery:
    """One sentence and one text under several masking schemes.

    Attributes:
        sentence: The sentence, with its capitals.
        data: Corpora and tokenizer; held-out text is what is measured.
        schemes: Name -> scheme.
        seed: Of all random choices.
        sequences: Number of sequences of 128 positions that are measured.
    """

    sentence: str
    data: Data = field(default_factory=Data)
    schemes: Mapping[str, Masking] = field(default_factory=lambda: SCHEMES)
    seed: int = 0
    sequences: int = 2000

    @cached_property
    def _store(self) -> TokenStore:
        return open_annotated(self.data, "heldout", [_NAMES])

    @cached_property
    def _tokens(self) -> Tokens:
        encoder = Encoder(tokenizer_file(self.data), self.data.tokenizer.kind)
        ids, _ = encoder([self.sentence])
        marks = np.concatenate([[0], marked(encoder, [self.sentence], annotator(RULE, "entities")), [0]])
        row = as_example(ids.tolist(), self._store.vocabulary).inputs
        return replace(row, marks={_NAMES: torch.from_numpy(marks)[None]})

    def _draws(self, rows: int) -> Draws:
        number = np.arange(rows, dtype=np.int64) + self.seed
        return Draws(self.seed, number, number, np.zeros_like(number))

    def picture(self) -> Drawing:
        """The sentence under each scheme: what is hidden, what is in its place, and what is hidden together."""
        lines = {name: self._placed(masking) for name, masking in self.schemes.items()}
        tops = np.cumsum([0, *(1.2 + max(piece.line for piece in pieces) * 0.9 for pieces in lines.values())])
        figure = Drawing(figsize=(_INCHES, 0.3 * tops[-1] + 0.85))
        axes = figure.add_axes((0.01, 0.3 / figure.get_figheight(), 0.98, 1 - 0.8 / figure.get_figheight()))
        axes.set_axis_off()
        axes.set_xlim(-_NAMES_COLUMN, _LINE)
        axes.set_ylim(-tops[-1] + 0.5, 0.7)
        for (name, pieces), top in zip(lines.items(), tops[:-1], strict=True):
            axes.text(-_NAMES_COLUMN, -top, name, fontsize=7.5, va="center", color=INK)
            _draw(axes, pieces, -top)
        titles(
            figure,
            "The same sentence under every masking scheme",
            "Blue: [MASK]. Orange: a random word. Green: left as it is, and predicted. A bar: hidden together.",
        )
        return figure

    def _placed(self, masking: Masking) -> list["_Piece"]:
        """The pieces of the sentence as they are shown under a scheme."""
        vocabulary, draws = self._store.vocabulary, self._draws(1)
        groups = masking.choose(self._tokens, draws, vocabulary)
        seen = masking.mask_inputs(self._tokens, groups, draws, vocabulary).ids[0].tolist()
        begins = Text(self._tokens, vocabulary).begins[0]
        rows = zip(self._tokens.ids[0].tolist(), seen, groups[0].tolist(), begins.tolist(), strict=True)
        placed, left, line = list[_Piece](), 0.0, 0
        for old, new, group, opens in list(rows)[1:-1]:
            word = shown(vocabulary.bare(vocabulary.pieces[new]), 16)
            colour = None if group < 0 else _MASK if new == vocabulary.mask else _SAME if new == old else _RANDOM
            left += 0.8 * opens
            if left + len(word) + 1 > _LINE:
                left, line = 0.0, line + 1
            placed.append(_Piece(word, line, left, len(word) + 0.4, colour, group))
            left += len(word) + 0.6
        return placed

    def measured(self) -> Shown:
        """What each scheme does to held-out text, one row each, with its formula where it has one."""
        rows = RunningText(self._store, arrange(self._store, 128, "none"), 128)
        tokens = rows.batch(np.arange(min(self.sequences, len(rows))))
        numbers = pd.DataFrame([{"scheme": name, **self._numbers(m, tokens)} for name, m in self.schemes.items()])
        sheet = Sheet(
            ["scheme", "hidden", "[MASK]", "same", "random", "words a group", "formula", "pieces a group", "longest"],
            [
                [
                    row["scheme"], *(f"{row[key]:.1%}" for key in ("hidden", "mask", "same", "random")),
                    f"{row['words']:.2f}", "" if np.isnan(row["formula"]) else f"{row['formula']:.2f}",
                    f"{row['pieces']:.2f}", f"{row['longest']}",
                ]
                for row in numbers.to_dict("records")
            ],
            left=1,
            notes=[
                "Hidden: share of all pieces that are no special ones. Words a group: words with a hidden piece. "
                "Formula: the mean number of words that is drawn. Spans are longer than drawn where they touch, and "
                "shorter where a text or the budget ends. Names are whatever the text has."
            ],
        )  # fmt: skip
        return Shown(markdown(sheet), numbers)

    def _numbers(self, masking: Masking, tokens: Tokens) -> dict[str, float]:
        vocabulary, draws = self._store.vocabulary, self._draws(len(tokens.ids))
        groups = masking.choose(tokens, draws, vocabulary)
        hidden, text = groups >= 0, Text(tokens, vocabulary)
        seen = masking.mask_inputs(tokens, groups, draws, vocabulary).ids.numpy()[hidden]
        old = tokens.ids.numpy()[hidden]
        of = np.unique(np.nonzero(hidden)[0] * hidden.shape[1] + groups[hidden], return_inverse=True)[1]
        words = np.unique(np.stack([of, text.words.number[hidden]]), axis=1)[0]
        sizes, in_words = np.bincount(of), np.bincount(words)
        masked, kept = seen == vocabulary.mask, seen == old
        return {
            "hidden": hidden.sum() / text.candidates.sum(),
            "mask": masked.mean(),
            "same": (kept & ~masked).mean(),
            "random": (~kept & ~masked).mean(),
            "words": in_words.mean(),
            "formula": expected_words(masking),
            "pieces": sizes.mean(),
            "longest": int(in_words.max()),
        }

    def lengths(self) -> Drawing:
        """How many words are together: what is drawn, and what is hidden once spans touch and texts end."""
        rows = RunningText(self._store, arrange(self._store, 128, "none"), 128)
        tokens = rows.batch(np.arange(min(self.sequences, len(rows))))
        drawn = {name: shares(masking) for name, masking in self.schemes.items()}
        named = [name for name, formula in drawn.items() if len(formula) > 1]
        figure = blank(2.6)
        panels = figure.subplots(1, max(1, len(named)), squeeze=False)[0]
        for axes, name in zip(panels, named, strict=False):
            lengths, most = self._word_counts(self.schemes[name], tokens), len(drawn[name]) + 2
            found = np.bincount(np.minimum(lengths, most), minlength=most + 1)[1:] / len(lengths)
            axes.bar(np.arange(1, most + 1), found, color=OKABE_ITO[5], label="hidden together")
            formula = drawn[name]
            axes.plot(np.arange(1, len(formula) + 1), formula, "o-", color=INK, ms=3, lw=1, label="drawn, by formula")
            axes.set_title(name)
            axes.set_xlabel("words")
            axes.set_xticks(np.arange(1, most + 1))
            axes.set_ylabel("share of groups" if axes is panels[0] else "")
            axes.legend(fontsize=8)
        titles(figure, "How many words are hidden together", "The last bar holds all longer groups.")
        return figure

    def _word_counts(self, masking: Masking, tokens: Tokens) -> np.ndarray:
        groups = masking.choose(tokens, self._draws(len(tokens.ids)), self._store.vocabulary)
        hidden = groups >= 0
        of = np.unique(np.nonzero(hidden)[0] * hidden.shape[1] + groups[hidden], return_inverse=True)[1]
        number = Text(tokens, self._store.vocabulary).words.number[hidden]
        return np.bincount(np.unique(np.stack([of, number]), axis=1)[0])


def shares(masking: Masking) -> np.ndarray:
    """The probabilities of 1, 2 ... words that are drawn together; empty where the text decides."""
    units = masking.units
    if isinstance(units, Spans):
        return units.shares()
    if isinstance(units, NGrams):
        chances = 1 / np.arange(1, units.longest + 1)
        return chances / chances.sum()
    return np.ones(1) if isinstance(units, WholeWords) else np.zeros(0)


def expected_words(masking: Masking) -> float:
    """The mean number of words that are drawn together; NaN where the text decides."""
    chances = shares(masking)
    return float(np.dot(chances, np.arange(1, len(chances) + 1))) if len(chances) else float("nan")
