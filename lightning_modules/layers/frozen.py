"""A trained network that teaches another one: no dropout, no gradient."""

from typing import Self

from torch import nn


class Frozen(nn.Module):
    """A module that stays in evaluation mode, and has no gradients; subclasses freeze themselves once built."""

    def freeze(self) -> None:
        """Takes the gradients of all parameters, and leaves the training mode."""
        self.requires_grad_(False)
        super().train(False)

    def train(self, mode: bool = True) -> Self:
        """Stays in evaluation mode."""
        return self
