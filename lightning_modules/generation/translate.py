"""Translations that an encoder-decoder writes: the best of a beam, each piece given the source and those before it.

A beam keeps the most probable prefixes of each translation, and the score of a finished one is its log-probability over
a length penalty (Wu et al. 2016, equation 14)::

    log P(y | x) / ((5 + |y|) / 6) ^ alpha

where ``|y|`` counts the end too. A beam of 1 is greedy search. A prefix ends at a step only if its end is among the
``width`` best continuations. The search stops after ``width`` ends; with a strong length penalty a longer one may find
better translations. What is found does not depend on the other sources of a batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_modules.batch import BEGIN, SOURCE, Example, Target, Tokens, Visibility
from lightning_modules.config import ConfigError, Problem
from lightning_modules.data.text.tokenizer import Vocabulary
from lightning_modules.model import BackboneModule
from lightning_modules.objectives.lm import NEXT, LanguageModel
from lightning_modules.objectives.objective import own_heads
from lightning_modules.system import System

if TYPE_CHECKING:
    from lightning_modules.training.module import Pretrain

_AT_ONCE = 256  # rows, prefixes of all sources together


@dataclass(frozen=True)
class Beam:
    """How a translation is searched for.

    Attributes:
        width: Prefixes that are kept.
        length_penalty: The exponent alpha. With 0 log-probabilities are compared as they are, which prefers short ones.
        further: A translation has at most this many pieces more than its source.
    """

    width: int = 4
    length_penalty: float = 0.6
    further: int = 50

    def check(self) -> None:
        """Checks the values.

        Raises:
            ConfigError: With every value out of range.
        """
        wrong = []
        if self.width < 1:
            wrong.append(Problem("width", f"{self.width} keeps no prefix. Greedy search has 1, Vaswani et al. have 4."))
        if not 0 <= self.length_penalty < float("inf"):
            wrong.append(Problem("length_penalty", f"{self.length_penalty} must be 0, for none, or more"))
        if self.further < 1:
            wrong.append(Problem("further", f"{self.further} leaves no room. Vaswani et al. have 50."))
        if wrong:
            raise ConfigError(wrong)


class Translation(NamedTuple):
    """What a model wrote for a source.

    Attributes:
        ids: The pieces, without the end.
        score: Log-probability in nats, of the end too, over the length penalty.
    """

    ids: list[int]
    score: float


@dataclass(frozen=True, eq=False)
class Translator:
    """An encoder-decoder in evaluation mode, with the head of its language modelling.

    Attributes:
        backbone: Both sides.
        heads: The heads of ``objective``.
        objective: The settings of its language modelling, which know how heads are read.
        vocabulary: The pieces of both languages.
        longest: Positions of the longest side that it reads; 0 without limit.
        cached: Whether a step reads the last piece alone, and not all of its prefix again.
    """

    backbone: BackboneModule
    heads: Any
    objective: LanguageModel
    vocabulary: Vocabulary
    longest: int = 0
    cached: bool = True

    @classmethod
    def of(cls, module: "Pretrain", system: System, vocabulary: Vocabulary) -> Self:
        """The translator of a pretraining with trained weights, which is set to evaluation mode."""
        check_translates(system, system.name or "the model")
        backbone, objective = module.eval().backbone, system.objectives.lm
        assert isinstance(backbone, BackboneModule)
        assert objective is not None
        return cls(backbone, own_heads(module.heads, "lm"), objective, vocabulary, system.model.longest)

    @torch.no_grad()
    def translate(self, sources: Sequence[Sequence[int]], beam: Beam | None = None) -> list[Translation]:
        """The translations of some sources, given as ids without special ones, in their order.

        Raises:
            ConfigError: For a beam out of range, and for a source that is empty or too long.
        """
        beam = beam or Beam()
        beam.check()
        for number, ids in enumerate(sources, 1):
            if not ids:
                raise ConfigError([f"source {number} is empty. Leave it out."])
            if self.longest and len(ids) + 1 > self.longest:
                text = f"source {number} has {len(ids)} pieces, and the model reads {self.longest - 1}"
                raise ConfigError([f"{text}. Divide it into sentences."])
        found: dict[int, Translation] = {}
        order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
        size = max(1, _AT_ONCE // beam.width)
        for start in range(0, len(order), size):
            part = order[start : start + size]
            for number, translation in zip(part, self._searched([sources[n] for n in part], beam), strict=True):
                found[number] = translation
        return [found[number] for number in range(len(sources))]

    def read(self, source: Sequence[int], target: Sequence[int]) -> Example:
        """A source and a translation of it as the model reads them; both without special pieces."""
        device, vocabulary = self.backbone.table.device, self.vocabulary
        row = _padded([source], vocabulary.sep, vocabulary.pad, 1)
        ids = torch.tensor([[vocabulary.cls, *target]])
        real = torch.ones_like(ids, dtype=torch.bool)
        return Example(Tokens(ids, ~real, real, row.sample, source=row), Visibility(causal=True)).to(device)

    def _searched(self, sources: list[Sequence[int]], beam: Beam) -> list[Translation]:
        width, end, device = beam.width, self.vocabulary.sep, self.backbone.table.device
        rows = _padded(sources, end, self.vocabulary.pad, width).to(device)
        most = torch.tensor([self._most(len(ids), beam) for ids in sources], device=device)
        prefix = torch.full((len(sources) * width, 1), self.vocabulary.cls, device=device)
        alive = torch.full((len(sources), width), float("-inf"), device=device)
        alive[:, 0] = 0.0  # all prefixes of a source are the same at first
        best = [Translation([], float("-inf")) for _ in sources]
        ended, left, carry = [0] * len(sources), list(range(len(sources))), BEGIN
        while left:
            length = prefix.shape[1]  # of what ends now, the end included
            logits, carry = self._next(prefix, rows, carry)
            total = alive[:, :, None] + self._allowed(logits, most == length).view(len(left), width, -1)
            words = total.shape[2]
            scores, place = total.flatten(1).topk(min(2 * width, width * words), dim=1)
            parent, word = place // words, place % words
            ends = (word[:, :width] == end) & (scores[:, :width] > float("-inf"))
            for row, rank in ends.nonzero().tolist():
                number, score = left[row], float(scores[row, rank]) / _penalty(length, beam)
                ended[number] += 1
                if score > best[number].score:
                    ids = prefix[row * width + int(parent[row, rank]), 1:].tolist()
                    best[number] = Translation(ids, score)
            # prefixes that do not end, the most probable first
            scores = scores.masked_fill(word == end, float("-inf"))
            alive, kept = _top(scores, width)
            parent, word = parent.gather(1, kept), word.gather(1, kept)
            going = [
                row
                for row, (number, last, score) in enumerate(zip(left, most.tolist(), alive[:, 0].tolist(), strict=True))
                if ended[number] < width and length < last and score / _penalty(last, beam) > best[number].score
            ]
            chosen = torch.tensor(going, dtype=torch.long, device=device)
            which = (chosen[:, None] * width + parent[chosen]).flatten()
            prefix = torch.cat([prefix[which], word[chosen].view(-1, 1)], 1)
            same = len(going) == len(left)
            if self.cached and going and not (same and width == 1):  # then no row has moved
                carry = carry.rows(which, same_sources=same)
            if not same:
                source = (chosen[:, None] * width + torch.arange(width, device=device)).flatten()
                rows = Example(rows, Visibility()).rows(source).inputs
            alive, most, left = alive[chosen], most[chosen], [left[row] for row in going]
        return best

    def _most(self, length: int, beam: Beam) -> int:
        """The pieces of the longest translation of a source of so many, its end included."""
        return min(length + beam.further, self.longest or length + beam.further)

    def _next(self, prefix: Int[Tensor, "b t"], source: Tokens, carry: Any) -> tuple[Float[Tensor, "b v"], Any]:
        """Log-probabilities of what follows prefixes, and what the next step needs."""
        ids, given = (prefix[:, -1:], carry) if self.cached else (prefix, None)
        real = torch.ones_like(ids, dtype=torch.bool)
        begins = not self.cached or carry == BEGIN
        tokens = Tokens(ids, ~real, real, source.sample, source=source if begins else None)
        encoded = self.backbone(Example(tokens, Visibility(causal=True)), given)
        where = torch.arange(1, len(ids) + 1, device=ids.device) * ids.shape[1] - 1
        asked = Example(tokens, Visibility(), targets={NEXT: Target(where, torch.zeros_like(where))})
        logits = self.objective.logits(self.heads, encoded, asked, NEXT)
        precise = torch.promote_types(logits.dtype, torch.float32)
        return torch.log_softmax(logits, -1, dtype=precise), encoded.carry

    def _allowed(self, logits: Float[Tensor, "b v"], last: Tensor) -> Float[Tensor, "b v"]:
        """Log-probabilities without pieces that no target has, and, of what must end, of the end alone."""
        never = [self.vocabulary.pad, self.vocabulary.cls, self.vocabulary.mask]
        logits[:, never] = float("-inf")
        if last.any():
            closed = last.repeat_interleave(len(logits) // len(last))
            others = torch.arange(logits.shape[1], device=logits.device) != self.vocabulary.sep
            logits = logits.masked_fill(closed[:, None] & others, float("-inf"))
        return logits


def check_translates(system: System, name: str) -> None:
    """Refuses a system that reads no source.

    Args:
        name: What messages call the model.

    Raises:
        ConfigError: For a model of one sequence.
    """
    if SOURCE not in system.model.supports:
        kind = system.model.get("kind")
        text = f"{name} translates nothing: model.kind {kind} reads one sequence. Choose a run of an encoder-decoder."
        raise ConfigError([text])


def _penalty(length: int, beam: Beam) -> float:
    return ((5 + length) / 6) ** beam.length_penalty


def _top(scores: Float[Tensor, "n k"], width: int) -> tuple[Tensor, Tensor]:
    """The highest of some scores, with their places; -inf where there are fewer."""
    if scores.shape[1] < width:
        scores = torch.nn.functional.pad(scores, [0, width - scores.shape[1]], value=float("-inf"))
    values, place = scores.topk(width, dim=1)
    return values, torch.where(values > float("-inf"), place, 0)


def _padded(sources: list[Sequence[int]], end: int, pad: int, width: int) -> Tokens:
    """Sources as rows that end with [SEP], each as often as a beam is wide."""
    longest = max(map(len, sources)) + 1
    ids = torch.tensor([[*row, end, *[pad] * (longest - 1 - len(row))] for row in sources for _ in range(width)])
    sizes = torch.tensor([len(row) + 1 for row in sources]).repeat_interleave(width)
    real = torch.arange(longest)[None] < sizes[:, None]
    return Tokens(ids, ~real, real, torch.arange(len(ids)))
