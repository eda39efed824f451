"""Text that a left-to-right language model writes: the most probable token each time, or draws from what it predicts.

Draws may be restricted to the k most probable tokens (Fan et al. 2018) or to the nucleus, the fewest tokens that
together have probability p (Holtzman et al. 2020). Each prompt has noise of its own, a function of the seed, the number
of the prompt and the place of the token, so that other prompts and batches change nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lightning_modules.batch import BEGIN, Encoded
from lightning_modules.config import ConfigError, Problem
from lightning_modules.draws import Draws
from lightning_modules.generation.language_model import LanguageModelOf, Wording

_BATCH_TOKENS = 16_384  # positions of a batch at its end


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen; by default from all that the model predicts.

    Attributes:
        temperature: Logits are divided by it; 0 takes the most probable token.
        top_k: Only this many of the most probable tokens are drawn; None means all.
        top_p: Only the fewest most probable tokens that together have at least this probability are drawn, after
            ``top_k``; 1 means all.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def check(self) -> None:
        """Checks the values.

        Raises:
            ConfigError: With every value out of range, and restrictions of draws where nothing is drawn.
        """
        wrong = []
        if not (0 <= self.temperature < float("inf")):
            wrong.append(Problem("temperature", f"{self.temperature} must be 0, for the most probable token, or more"))
        if self.top_k is not None and self.top_k < 1:
            wrong.append(Problem("top_k", f"{self.top_k} must be at least 1. Leave it out to draw from all tokens."))
        if not 0 < self.top_p <= 1:
            wrong.append(Problem("top_p", f"{self.top_p} is no probability above 0. Every token can be drawn with 1."))
        if self.temperature == 0 and (self.top_k is not None or self.top_p != 1):
            wrong.append(Problem("temperature", "is 0: nothing is drawn, so top_k and top_p have no effect. Raise it."))
        if wrong:
            raise ConfigError(wrong)


GREEDY = Sampling(temperature=0.0)


class Generated(NamedTuple):
    """What a model wrote after a prompt.

    Attributes:
        ids: The new tokens, without that of the end.
        ended: Why there are no more: ``end`` was predicted, there are as many ``tokens`` as were requested, or the
            model has no more ``positions``.
    """

    ids: list[int]
    ended: Literal["end", "tokens", "positions"]


def generate(
    model: LanguageModelOf,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling = GREEDY,
    *,
    new_tokens: int = 32,
    seed: int = 0,
    cached: bool | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Generated]:
    """What a model writes after each prompt.

    Args:
        prompts: Token ids, the model's start tokens included.
        new_tokens: Tokens to write after each prompt, at most.
        cached: Whether a token is computed from a carry of those before rather than from all of them again. This gives
            the same tokens but for rounding. By default it is so where the model has a carry.
        on_progress: Called after each token of a batch with the tokens that are done and their number, at most.

    Raises:
        ConfigError: For a prompt without a token or without room after it, and for impossible choices.
    """
    sampling.check()
    check_prompts(model, prompts, new_tokens)
    carried = model.backbone.carries if cached is None else cached
    number = np.arange(len(prompts))
    noise = Draws(seed, number, number, np.zeros_like(number), "generation").uniform("tokens", new_tokens)
    written: dict[int, Generated] = {}
    total = len(prompts) * new_tokens
    for rows in _batches([len(prompt) for prompt in prompts], new_tokens):
        batch = _Writing(model, [prompts[row] for row in rows], noise[rows], sampling, new_tokens)
        for step in batch.run(carried):
            if on_progress:
                on_progress(len(written) * new_tokens + len(rows) * step, total)
        written |= zip(rows, batch.written(), strict=True)
    return [written[row] for row in range(len(prompts))]


def probabilities(logits: Float[Tensor, "n v"], sampling: Sampling) -> Float[Tensor, "n v"]:
    """The distribution that tokens are drawn from, in float64: 0 for those that never are.

    Of equally probable tokens those with smaller ids come first.
    """
    logits = logits.double()
    if sampling.temperature == 0:
        return torch.zeros_like(logits).scatter_(1, logits.argmax(1, keepdim=True), 1.0)
    found = torch.softmax(logits / sampling.temperature, 1)
    if sampling.top_k is None and sampling.top_p == 1:
        return found
    ordered, ids = found.sort(dim=1, descending=True, stable=True)
    if sampling.top_k is not None:
        ordered[:, sampling.top_k :] = 0
        ordered /= ordered.sum(1, keepdim=True)
    before = ordered.cumsum(1) - ordered  # the probability of more probable tokens
    ordered[before >= sampling.top_p] = 0
    ordered /= ordered.sum(1, keepdim=True)
    return torch.zeros_like(found).scatter_(1, ids, ordered)


def drawn(chances: Float[Tensor, "n v"], noise: Float[Tensor, " n"]) -> Tensor:
    """A token of each distribution, by uniform numbers in [0, 1) ``[n]``: no token without probability."""
    up_to = chances.cumsum(1)
    place = torch.searchsorted(up_to, (noise * up_to[:, -1])[:, None], right=True)[:, 0]
    last = chances.shape[1] - 1 - (chances > 0).flip(1).int().argmax(1)
    return torch.minimum(place, last)


def check_prompts(texts: Wording, prompts: Sequence[Sequence[int]], new_tokens: int) -> None:
    """Checks that every prompt has a token and leaves room for another one; it needs no weights.

    Raises:
        ConfigError: With every prompt that has not, by its number from 1.
    """
    wrong = [f"new_tokens {new_tokens} must be at least 1"] if new_tokens < 1 else []
    for number, prompt in enumerate(prompts, 1):
        if not len(prompt):
            wrong.append(f"prompt {number} has no token, and the model has no start token: write at least one word")
        elif len(prompt) >= texts.max_positions:
            wrong.append(
                f"prompt {number} has {len(prompt)} tokens, but the model has {texts.max_positions} positions, and a "
                "new token needs one. Shorten the prompt."
            )
    if wrong:
        raise ConfigError(wrong)


def _batches(lengths: Sequence[int], new_tokens: int) -> Iterator[list[int]]:
    """Rows of similar lengths that are written together."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: lengths[row]):
        if batch and (len(batch) + 1) * (lengths[row] + new_tokens) > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


class _Writing:
    """Prompts of one batch, padded on the left, and what follows them."""

    def __init__(
        self,
        model: LanguageModelOf,
        prompts: Sequence[Sequence[int]],
        noise: np.ndarray,
        sampling: Sampling,
        new_tokens: int,
    ) -> None:
        self.model, self.sampling, self.new_tokens = model, sampling, new_tokens
        self.noise = torch.from_numpy(noise).to(model.device)
        self.lengths = torch.tensor([len(prompt) for prompt in prompts], device=model.device)
        width = int(self.lengths.max())
        rows = [[model.encoder.vocabulary.pad] * (width - len(prompt)) + [*prompt] for prompt in prompts]
        self.ids = torch.tensor(rows, device=model.device)
        self.real = torch.arange(width, device=model.device) >= width - self.lengths[:, None]
        self.width, self.room = width, model.max_positions - self.lengths

    @torch.no_grad()
    def run(self, cached: bool) -> Iterator[int]:
        """Writes token after token until every row has ended; yields how many there are."""
        carry: Any = BEGIN if cached else None
        fresh = 0  # the first column that the carry does not hold
        for step in range(min(self.new_tokens, int(self.room.max()))):
            ids, real = self.ids[:, fresh:], self.real[:, fresh:]
            encoded = self._read(ids, real, fresh, carry)
            if cached:
                carry, fresh = encoded.carry, self.ids.shape[1]
            last = torch.arange(1, len(ids) + 1, device=ids.device) * ids.shape[1] - 1
            chances = probabilities(self.model.logits(encoded, last), self.sampling)
            token = drawn(chances, self.noise[:, step])
            self.ids = torch.cat([self.ids, token[:, None]], 1)
            self.real = torch.cat([self.real, torch.ones_like(self.real[:, :1])], 1)
            yield step + 1
            ended = (self.ids[:, self.width :] == (-1 if self.model.end is None else self.model.end)).any(1)
            if bool((ended | (step + 1 >= self.room)).all()):
                return

    def _read(self, ids: Tensor, real: Tensor, first: int, carry: Any) -> Encoded:
        place = self.real.cumsum(1)[:, first:] - 1
        place = place.clamp(min=0, max=self.model.max_positions - 1)  # padding, and rows that have ended
        example = self.model.example(ids, real, place if self.model.backbone.numbered else None)
        return self.model.backbone(example) if carry is None else self.model.backbone(example, carry)

    def written(self) -> list[Generated]:
        """What was written after each prompt."""
        found = []
        for row, room in zip(self.ids[:, self.width :].tolist(), self.room.tolist(), strict=True):
            row = row[: min(room, self.new_tokens)]
            if self.model.end in row:
                found.append(Generated(row[: row.index(self.model.end)], "end"))
            else:
                found.append(Generated(row, "tokens" if len(row) == self.new_tokens else "positions"))
        return found
