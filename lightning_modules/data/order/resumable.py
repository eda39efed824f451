"""The position of a loader in checkpoints."""

from abc import ABC, abstractmethod

from lightning_modules.config import ConfigError


class Resumable(ABC):
    """A loader that continues at its position when training resumes.

    Attributes:
        position: Batches yielded since training began.
    """

    position: int

    def state_dict(self) -> dict:
        """The position, and the batch sizes that it refers to."""
        return {"position": self.position, "portions": self._portions()}

    def load_state_dict(self, state: dict) -> None:
        """Continues after the batches that were yielded before.

        Raises:
            ConfigError: When the position refers to other batch sizes.
        """
        if state["portions"] != self._portions():
            raise ConfigError(
                [f"this data position was saved with {state['portions']}, but the loader has {self._portions()}."]
            )
        self.position = state["position"]

    @abstractmethod
    def _portions(self) -> dict:
        """What positions refer to: loaders with equal values have the same batch at the same position."""
