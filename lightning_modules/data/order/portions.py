"""The division of a training's sequences into steps, ranks and micro-batches."""

from dataclasses import dataclass

import numpy as np

from lightning_modules.config import ConfigError


@dataclass(frozen=True)
class Portions:
    """Batch sizes and steps of a training.

    Attributes:
        batch_size: Sequences per optimiser step, over all ranks and micro-batches.
        micro_batch_size: Sequences per forward pass on one rank; None means all of the rank.
        by_tokens: Whether a step, also one of the first, has as many tokens as so many sequences of full length.
        first_steps: The steps that show a shorter arrangement of the text, before the others.
        both_ways: Whether half of the rows of a stream go through the text from its end.
        drawn: Whether the seed says where the rows of a stream begin.
        lengths_drawn: Whether each step of a stream has a length of its own.
        drawn_multiple: Those lengths are multiples of it.
        language_exponent: Of several languages, the power of the share of tokens by which a step's is drawn.
        bucket_steps: Steps whose sequences are sorted by length together.
    """

    seed: int
    batch_size: int
    steps: int
    micro_batch_size: int | None = None
    by_tokens: bool = False
    first_steps: int = 0
    both_ways: bool = False
    drawn: bool = False
    lengths_drawn: bool = False
    drawn_multiple: int = 1
    language_exponent: float = 1.0
    bucket_steps: int = 1

    def micro_batches(self, world_size: int = 1) -> int:
        """Forward passes per optimiser step on one rank.

        Raises:
            ConfigError: When the batch cannot be divided equally.
        """
        if self.batch_size % world_size:
            raise ConfigError(
                [f"batch_size {self.batch_size} cannot be shared equally by {world_size} ranks. Use a multiple."]
            )
        rows = self.batch_size // world_size
        return -(-rows // min(self.micro_batch_size or rows, rows))

    def divided(self, sizes: np.ndarray, world_size: int) -> list[list[np.ndarray]]:
        """The rows of a step as micro-batches, by rank.

        Of equally many rows each, in their order; by tokens of about equally many tokens each, and of similar lengths,
        so that little padding is computed.

        Args:
            sizes: Positions of each row that are no padding ``[b]``.
        """
        if self.by_tokens:
            groups = alike(sizes, sizes, self.micro_batches(world_size) * world_size)
            return [groups[rank::world_size] for rank in range(world_size)]
        share = self.batch_size // world_size
        micro = min(self.micro_batch_size or share, share)
        ranks = np.arange(len(sizes)).reshape(world_size, share)
        return [[own[start : start + micro] for start in range(0, share, micro)] for own in ranks]


def alike(sizes: np.ndarray, by: np.ndarray, count: int) -> list[np.ndarray]:
    """Rows in so many groups, none empty, of about equally many tokens: the neighbours when sorted ``by`` a number."""
    rows = np.argsort(by, kind="stable")
    begins = np.cumsum(sizes[rows]) - sizes[rows]
    number = np.arange(count)
    edges = np.searchsorted(begins, number * sizes.sum() / count)
    edges = np.maximum.accumulate(edges - number) + number
    return np.split(rows, np.minimum(edges, len(rows) - count + number)[1:])
