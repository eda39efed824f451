"""What every scheme of hiding declares and does."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from lightning_modules.batch import Annotation
from lightning_modules.config import Settings
from lightning_modules.draws import Draws
from lightning_modules.objectives.choosing.text import Text


class Units(Settings, ABC):
    """What is hidden as a whole.

    Attributes:
        spans: Whether groups never touch each other, so that the words next to a group are visible.
    """

    spans: ClassVar[bool] = False

    @property
    def reads(self) -> frozenset[Annotation]:
        """The annotations of the text that it reads: annotator and kind of tags."""
        return frozenset()

    @abstractmethod
    def choose(self, text: Text, budget: np.ndarray, draws: Draws) -> np.ndarray:
        """The groups of hidden positions.

        Args:
            budget: How many positions of each row are hidden, at most ``[b]``.

        Returns:
            The first position of the group that each position is hidden with ``[b t]``, -1 where nothing is hidden.
        """
