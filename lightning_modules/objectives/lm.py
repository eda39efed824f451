"""Language modelling: predict every token from those on one side of it, or from each side separately.

The first is the left-to-right model of Devlin et al. (2019, Table 5; Radford et al. 2018, equation 1), the second
that of ELMo (Peters et al. 2018, section 3.1), which predicts words.
"""

import itertools
from dataclasses import replace
from typing import Annotated, Literal, Self

import torch
from jaxtyping import Float
from pydantic import model_validator
from torch import Tensor, nn

from lightning_modules.batch import (
    CHARACTERS,
    OF_WORDS,
    STEP,
    WIDE_TABLE,
    WORD_TABLE,
    Encoded,
    Example,
    Size,
    Target,
    Tokens,
    Vocabulary,
)
from lightning_modules.config import knob
from lightning_modules.draws import Draws
from lightning_modules.model.layers import Activation
from lightning_modules.objectives.heads import HeadTransform, VocabularyHead
from lightning_modules.objectives.objective import Objective, OfLoss, TokenObjective

NEXT, PREVIOUS = "next", "previous"  # targets, and prefixes of the names of their held-out measures
_TARGETS = {"left_to_right": (NEXT,), "right_to_left": (PREVIOUS,), "two_way": (NEXT, PREVIOUS)}


class LanguageModel(TokenObjective):
    """Predict the neighbour of every position: the next token, the previous one, or both by two separate stacks.

    Worked example, left to right::

        ids        [CLS]  the  cat  sat [SEP]
        target      the   cat  sat   -    -      special tokens and padding are never predicted

    In blocks without ``[CLS]`` the first token is not predicted, and ends of documents (`Tokens.ends`) are. In a stream
    the last position of a row predicts the first token of what follows it (`Tokens.following`).

    No input is replaced: the visibility hides the answer. With two directions, the loss is the sum of two mean losses;
    the first half of a state predicts the next token, the second half the previous one, through one head, as ELMo's
    directions share their softmax.

    Losses are in nats per token and comparable with each other, not with those of a masked model, which sees both
    sides: they are called ``next_loss`` and ``previous_loss``.

    With ``units`` words, a word of several pieces is predicted as [UNK], at the first piece of the word next to it. The
    words at the ends of a row may be cut. These losses are nats per word, called ``next_word_loss`` and
    ``previous_word_loss``. They compare only between models with the same words.
    """

    direction: Literal["left_to_right", "right_to_left", "two_way"] = knob(
        "left_to_right", "Direction of reading, the same as in model.direction."
    )
    units: Literal["pieces", "words"] = knob(
        "pieces",
        "What is predicted: pieces, or whole words by a table that the head has for itself. All words of several "
        "pieces are then one, [UNK]. Models of characters predict words (ELMo).",
        neutral="pieces",
    )
    negatives: Annotated[int, OfLoss] = knob(
        0,
        "Sampled softmax in training: expected number of other words that a step compares with, frequent ones more "
        "often (8,192 in ELMo). The right word is never among them. All words with 0.",
        neutral=0,
        ge=0,
    )
    scored: Literal["all", "second_half"] = knob(
        "all",
        "Positions of a row that predict in pretraining: all, or those of the half that is read last. Al-Rfou et al. "
        "2018 and Transformer-XL, Table 6, have second_half. On held-out text all do.",
        neutral="all",
    )
    transform: Annotated[HeadTransform, OfLoss] = knob(
        "bert",
        "What states go through before they are multiplied by the word table: dense, activation and LayerNorm (bert), "
        "or nothing (none), as in GPT.",
        neutral="bert",
    )
    bias: Annotated[bool, OfLoss] = knob(True, "A bias for each word in the head. GPT has none.", neutral=True)
    cutoffs: Annotated[tuple[int, ...], OfLoss] = knob(
        (),
        "Adaptive softmax: the first id of each cluster of rarer words, ascending (20000, 40000 and 200000 in "
        "Transformer-XL on WikiText-103). Frequent words have small ids where the tokenizer numbers them so.",
        neutral=(),
    )
    label_smoothing: Annotated[float, OfLoss] = knob(
        0.0,
        "Share of each training target that all words have in common (0.1 in Vaswani et al. 2017). Held-out losses "
        "have none.",
        neutral=0.0,
        ge=0,
        lt=1,
    )
    activation: Annotated[Activation, OfLoss] = knob("gelu", "Activation function of the head.", neutral="gelu")
    norm_eps: Annotated[float, OfLoss] = knob(1e-12, "Epsilon of the head's LayerNorm.", neutral=1e-12, gt=0)

    @model_validator(mode="after")
    def _one_softmax(self) -> Self:
        if any(after <= before for before, after in itertools.pairwise((0, *self.cutoffs))):
            raise ValueError(f"cutoffs {list(self.cutoffs)} must be ascending ids above 0")
        if self.units == "words" and self.cutoffs:
            raise ValueError(f"cutoffs {list(self.cutoffs)} are of pieces, and units is words: set cutoffs to []")
        if self.units == "words" and self.scored != "all":
            raise ValueError(f"scored {self.scored} counts pieces, and units is words: set scored to all")
        if self.negatives and self.cutoffs:
            raise ValueError(
                f"negatives {self.negatives} and cutoffs {list(self.cutoffs)} are two ways to spare the softmax: leave "
                "one of them out"
            )
        if self.label_smoothing and (self.cutoffs or self.negatives):
            other = "cutoffs make it an adaptive one" if self.cutoffs else "negatives make it one over a sample"
            raise ValueError(
                f"label_smoothing {self.label_smoothing:g} is of a softmax over all words, and {other}: set one of "
                "them to its default"
            )
        return self

    def resolved(self) -> Self:
        """The settings without what only a transform has where there is none."""
        return self if self.transform == "bert" else self.model_copy(update={"activation": "gelu", "norm_eps": 1e-12})

    @property
    def needs(self) -> dict[str, str]:
        """A model that reads in this direction, or the answers would be visible; and states as wide as the table."""
        needed = {f"direction {self.direction}": f"set model.direction to {self.direction}, or change lm.direction"}
        if self.units == "words":
            return needed | {CHARACTERS: "set model.characters (of model.kind lstm), or objectives.lm.units to pieces"}
        needed[WORD_TABLE] = "set objectives.lm.units to words, or model.characters to null"
        if self.transform == "none":
            needed[WIDE_TABLE] = "set model.embedding_size to null, or objectives.lm.transform to bert"
        return needed

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the targets."""
        ways = _TARGETS[self.direction]
        return ways if self.units == "pieces" else tuple(way + OF_WORDS for way in ways)

    @property
    def smoothing(self) -> float:
        """See `label_smoothing`."""
        return self.label_smoothing

    def heads(self, size: Size) -> nn.ModuleDict:
        """The head, by default that of masked language models; both directions share it."""
        form = {"transform": self.transform, "bias": self.bias, "cutoffs": self.cutoffs, "negatives": self.negatives}
        one_way, tied = replace(size, hidden_size=self._width(size)), self.units == "pieces"
        return nn.ModuleDict({"vocabulary": VocabularyHead(one_way, self.activation, self.norm_eps, tied=tied, **form)})

    def _width(self, size: Size) -> int:
        """Width of the states of one direction, a part of the concatenated ones."""
        return size.hidden_size // len(self.targets)

    def mask_inputs(self, example: Example, draws: Draws, vocabulary: Vocabulary) -> Example:
        """See `with_targets`: nothing is drawn."""
        return self.with_targets(example)

    def with_targets(self, example: Example) -> Example:
        """Adds the neighbours as targets and hides them by visibility; the input is unchanged."""
        targets = example.targets | {name: self._neighbours(example.inputs, name) for name in self.targets}
        return replace(example, visible=example.visible.toward(self.direction), targets=targets)

    def _neighbours(self, tokens: Tokens, name: str) -> Target:
        """What one direction predicts, and where."""
        if self.units == "words":
            return _next_words(tokens, name.removesuffix(OF_WORDS))
        step, real, column = STEP[name], tokens.real.long(), torch.arange(tokens.ids.shape[1])
        predicted = tokens.real & ~tokens.special
        if tokens.ends is not None:
            predicted = predicted | tokens.ends
        in_row = (column + step >= 0) & (column + step < len(column))
        predicting = predicted.roll(-step, 1) & tokens.real & in_row
        ids = tokens.ids.roll(-step, 1)
        if name == NEXT and tokens.following is not None:
            predicting[:, -1], ids[:, -1] = tokens.real[:, -1], tokens.following
        read = real.cumsum(1) if name == NEXT else real.flip(1).cumsum(1).flip(1)  # this one and those before it
        unscored = self._unscored_halves * (real.sum(1, keepdim=True) // 2)
        predicting &= (read > unscored) & (column >= tokens.context)
        where = predicting.flatten().nonzero()[:, 0]
        return Target(where, ids.flatten()[where])

    @property
    def _unscored_halves(self) -> int:
        """How many halves of a row, padding not counted, come first as it is read and do not predict in training."""
        return int(self.scored == "second_half")

    def states(self, encoded: Encoded, example: Example, name: str) -> Float[Tensor, "n d"]:
        """The states, or the part of them, that predict one target."""
        return encoded.at(example.targets[name].where).chunk(len(self.targets), dim=-1)[self.targets.index(name)]

    def held_out(self, usual: Objective) -> Objective:
        """The model's own objective, since the usual masking is no question it was trained on.

        All positions predict there, so that models that were trained on some of them are measured as others are.
        """
        return self if self.scored == "all" else self.model_copy(update={"scored": "all"})

    def expected_predictions(self, length: int, special: int = 2) -> float:
        """All tokens of a full sequence that are predicted, once in each direction."""
        return float(len(self.targets) * (length - special - self._unscored_halves * (length // 2)))

    def flops_per_sequence(self, length: int, size: Size, special: int = 2) -> float:
        """Multiply-adds x 2 of the head's forward pass over one full sequence with one segment.

        Of words as if each piece were one. Of an adaptive softmax as if all words were equally frequent, which counts
        too much: rare ones are not.
        """
        e, v, divisor = size.embedding_size, float(size.vocab_size), size.divisor
        if self.negatives:
            v = min(v, 1.0 + self.negatives)
        if self.cutoffs:
            first, *tails = (b - a for a, b in itertools.pairwise((0, *self.cutoffs, size.vocab_size)))
            narrower = [(e // divisor**number / e, tail) for number, tail in enumerate(tails, 1)]
            projected = (e + sum(share * e * tail for share, tail in narrower) / v) * (divisor > 1)
            v = first + len(tails) + projected + sum(share * tail**2 for share, tail in narrower) / v
        d = self._width(size)
        if self.units == "words" and self.transform == "none":
            e, d = d, 0
        d = d if self.transform == "bert" else 0
        return self.expected_predictions(length, special) * 2.0 * e * (d + v)


def _next_words(tokens: Tokens, name: str) -> Target:
    """The word after each word of a row, or the one before it, unless it is a special piece that ends no document."""
    assert tokens.characters is not None
    words, length = tokens.characters.words, tokens.ids.shape[1]
    place = (words >= 0).flatten().nonzero()[:, 0]
    here, there = (place[:-1], place[1:]) if name == NEXT else (place[1:], place[:-1])
    predicted = ~tokens.special if tokens.ends is None else ~tokens.special | tokens.ends
    predicting = (here // length == there // length) & predicted.flatten()[there] & (here % length >= tokens.context)
    return Target(here[predicting], tokens.characters.ids[words.flatten()[there[predicting]]])
