"""Permutation language modelling (Yang et al. 2019, XLNet, sections 2.2 and 2.3, and the released code).

Of a random order of the tokens only the last part is predicted. All others are context, whose order has no effect. So
an order is one of the targets alone (*partial factorisation*). No target is replaced by a [MASK]: a query stream
predicts at its position.
"""

from dataclasses import replace
from typing import Annotated, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from lightning_modules.batch import (
    QUERY_STREAM,
    WIDE_TABLE,
    Annotation,
    Example,
    Queries,
    Size,
    Target,
    Tokens,
    Vocabulary,
)
from lightning_modules.config import knob
from lightning_modules.draws import Draws
from lightning_modules.model.layers import Activation
from lightning_modules.objectives.heads import HeadTransform, VocabularyHead
from lightning_modules.objectives.masking import AnyUnits, Masking, SpreadSpans, Text
from lightning_modules.objectives.mlm import MaskedLM
from lightning_modules.objectives.objective import MLM, Objective, OfLoss, TokenObjective

PERMUTED = "permuted"  # the target in the order of an example; its held-out measures start with it


class PermutationLM(TokenObjective):
    """Predict some tokens in a random order, each from the context and from the targets before it in the order.

    Worked example with ``one_in=3``, nine positions, the order *York, is, New*::

        ids           [CLS]  New  York   is    a   city   in   the   USA
        order           -     2     0     1    -     -     -     -     -
        a query sees          York       York        - context and -
                              is

    Who may look where (`visible`): context is seen by all and sees context; a target is seen by targets that come
    later, and by itself. A query at a target sees what the target sees but itself. Special pieces are in the order too,
    where they are no targets: then context never sees them.

    Held-out text asks for the same tokens as of masked models (`Evaluation`), whatever K and units are in training:
    each from the context alone (the target ``mlm``), which is the question that a masked model answers (``loss``), and
    in a random order (``permuted_loss``), whose mean is that of their joint probability.
    """

    targets: ClassVar[tuple[str, ...]] = (MLM, PERMUTED)

    one_in: float = knob(
        6.0, "K: one in so many tokens is predicted, rounded down (85 of 512 in XLNet). 1 predicts all.", ge=1
    )
    units: AnyUnits = knob(SpreadSpans(), "What is predicted together. Pieces for single tokens.")
    transform: Annotated[HeadTransform, OfLoss] = knob(
        "none",
        "What states go through before they are multiplied by the word table: nothing (none), as in XLNet, or dense, "
        "activation and LayerNorm (bert).",
        neutral="none",
    )
    activation: Annotated[Activation, OfLoss] = knob("gelu", "Activation function of the head.", neutral="gelu")
    norm_eps: Annotated[float, OfLoss] = knob(1e-12, "Epsilon of the head's LayerNorm.", neutral=1e-12, gt=0)

    def resolved(self) -> Self:
        """The settings without what only a transform has where there is none."""
        full = super().resolved()
        return full if self.transform == "bert" else full.model_copy(update={"activation": "gelu", "norm_eps": 1e-12})

    @property
    def needs(self) -> dict[str, str]:
        """A query stream of a model that reads both sides; and states as wide as the table."""
        needed = {
            QUERY_STREAM: "set model.query_stream to true",
            "direction both": "set model.direction to both. The order says what is seen.",
        }
        if self.transform == "none":
            needed[WIDE_TABLE] = "set model.embedding_size to null, or objectives.plm.transform to bert"
        return needed

    @property
    def reads(self) -> frozenset[Annotation]:
        """The annotations of the text that say what is predicted together."""
        return self.units.reads

    def heads(self, size: Size) -> nn.ModuleDict:
        """The head of this objective: a bias for each word, and a transform if there is one."""
        head = VocabularyHead(size, self.activation, self.norm_eps, transform=self.transform)
        return nn.ModuleDict({"vocabulary": head})

    def mask_inputs(self, example: Example, draws: Draws, vocabulary: Vocabulary) -> Example:
        """Adds the target ``permuted`` with its queries and hides it by visibility; the input is unchanged."""
        tokens = example.inputs
        cached, total = tokens.cached, self._budget(tokens.real.numpy())
        if cached is None:
            chosen = self._chosen(tokens, total, draws, vocabulary)
        else:  # either part has targets and spans of its own
            first, rest = cached.numpy(), self._budget((tokens.real & ~cached).numpy())
            chosen = self._chosen(_only(tokens, first), total - rest, draws, vocabulary)
            chosen |= self._chosen(_only(tokens, ~first), rest, replace(draws, stream="rest"), vocabulary)
        return with_targets(example, chosen, random_order(example, chosen, draws))

    def _budget(self, real: np.ndarray) -> np.ndarray:
        """How many of these positions of each row are predicted ``[b]``."""
        return np.maximum(np.floor(real.sum(1) / self.one_in).astype(np.int64), 1)

    def _chosen(self, tokens: Tokens, budget: np.ndarray, draws: Draws, vocabulary: Vocabulary) -> np.ndarray:
        """The targets ``[b t]``, at most so many of each row."""
        text = Text(tokens, vocabulary)
        return self.units.choose(text, np.minimum(budget, text.candidates.sum(1)), draws) >= 0

    def held_out(self, usual: Objective) -> Objective:
        """The objective on held-out text: the tokens that masked models predict, alone and in an order."""
        assert isinstance(usual, MaskedLM)
        own = {name: getattr(self, name) for name in PermutationLM.model_fields}
        return HeldOutPermutations(**own, masking=usual.masking)

    def expected_hidden(self, length: int) -> float:
        """Predicted tokens of a full sequence."""
        return max(1.0, float(length // self.one_in))

    def expected_queries(self, length: int) -> float:
        """Rows of the query stream: one for each prediction."""
        return self.expected_hidden(length)

    def flops_per_sequence(self, length: int, size: Size, special: int = 2) -> float:
        """Multiply-adds x 2 of the head's forward pass over one full sequence."""
        d = size.hidden_size if self.transform == "bert" else 0
        return self.expected_hidden(length) * 2.0 * size.embedding_size * (d + size.vocab_size)


class HeldOutPermutations(PermutationLM):
    """Permutation language modelling of the tokens that a masking hides, alone and in an order."""

    masking: Masking = Masking()

    def mask_inputs(self, example: Example, draws: Draws, vocabulary: Vocabulary) -> Example:
        """Adds both targets, with queries of their own."""
        chosen = self.masking.choose(example.inputs, draws, vocabulary) >= 0
        return with_targets(example, chosen, random_order(example, chosen, draws), (PERMUTED, MLM))


def _only(tokens: Tokens, part: np.ndarray) -> Tokens:
    """The tokens with all positions special but those of a part ``[b t]``."""
    return replace(tokens, special=tokens.special | torch.from_numpy(~part))


def random_order(example: Example, chosen: np.ndarray, draws: Draws) -> Int[Tensor, "b t"]:
    """Ranks of targets ``chosen`` ``[b t]`` and special pieces from 0 on in a random order, -1 for context."""
    ordered = chosen | (example.inputs.special & example.inputs.real).numpy()
    uniform = np.where(ordered, draws.uniform("order", chosen.shape[1]), 2.0)
    return torch.from_numpy(np.where(ordered, np.argsort(np.argsort(uniform, axis=1), axis=1), -1))


def visible(order: Int[Tensor, "b t"]) -> Bool[Tensor, "b t t"]:
    """Who may look where, without looking at itself: at the context, and at what comes before in the order."""
    return (order[:, None] < order[:, :, None]) | (order[:, None] < 0)


def with_targets(
    example: Example, chosen: np.ndarray, order: Int[Tensor, "b t"], names: tuple[str, ...] = (PERMUTED,)
) -> Example:
    """The example with targets, queries and visibility for one order; runs on the CPU.

    Args:
        chosen: The targets ``[b t]``.
        order: Ranks of targets and of what else is hidden from the context, as `random_order` gives them.
        names: The targets to add: in the order (``permuted``), or alone (``mlm``).
    """
    tokens, (rows, length) = example.inputs, chosen.shape
    seen = visible(order)
    context = (order < 0)[:, None].expand_as(seen)
    if (cached := tokens.cached) is not None:
        # what is cached sees itself alone, and the rest sees all of it
        alike = cached[:, :, None] == cached[:, None]
        seen, context = (torch.where(alike, each, cached[:, None]) for each in (seen, context))
    where = torch.from_numpy(np.flatnonzero(chosen))
    row = where // length
    counts = torch.bincount(row, minlength=rows)
    most = max(1, int(counts.max()))  # queries of a row for each name
    nth = torch.arange(len(where)) - (counts.cumsum(0) - counts)[row]
    places = torch.full((rows, most), -1)
    places[row, nth] = where
    targets, parts = {}, []
    for number, name in enumerate(names):
        by_query = torch.zeros(rows, most, length, dtype=torch.bool)
        by_query[row, nth] = (context if name == MLM else seen).flatten(0, 1)[where]
        parts.append(by_query)
        query = row * (most * len(names)) + number * most + nth
        targets[name] = Target(where, tokens.ids.flatten()[where], queries=query)
    pairs = (seen | torch.eye(length, dtype=torch.bool))[:, None]
    return replace(
        example,
        visible=replace(example.visible, pairs=pairs),
        targets=example.targets | targets,
        queries=Queries(places.repeat(1, len(names)), torch.cat(parts, 1)),
        groups=torch.from_numpy(np.where(chosen, np.arange(length), -1)),
    )
