"""The division of a training's sequences into steps, ranks and micro-batches."""

from dataclasses import dataclass

from lightning_modules.config import ConfigError


@dataclass(frozen=True)
class Portions:
    """Batch sizes and steps of a training.

    Attributes:
        seed: The data seed.
        batch_size: Sequences per optimiser step, over all ranks and micro-batches.
        steps: Optimiser steps.
        micro_batch_size: Sequences per forward pass on one rank; None means all of the rank.
    """

    seed: int
    batch_size: int
    steps: int
    micro_batch_size: int | None = None

    def micro_batches(self, world_size: int = 1) -> int:
        """Forward passes per optimiser step on one rank.

        Raises:
            ConfigError: When the batch cannot be divided equally.
        """
        if self.batch_size % world_size:
            raise ConfigError(
                [f"batch_size {self.batch_size} cannot be shared equally by {world_size} ranks; use a multiple."]
            )
        rows = self.batch_size // world_size
        return -(-rows // min(self.micro_batch_size or rows, rows))
