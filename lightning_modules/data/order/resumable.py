"""Where a loader is, as a checkpoint keeps it."""

from abc import ABC, abstractmethod

from lightning_modules.config import ConfigError


class Resumable(ABC):
    """A loader that a resumed training finds where the interrupted one left it.

    Attributes:
        position: Batches yielded since training began.
    """

    position: int

    def state_dict(self) -> dict:
        """Where the loader is."""
        return {"position": self.position, "portions": self._portions()}

    def load_state_dict(self, state: dict) -> None:
        """Continues after the batches that had been yielded.

        Raises:
            ConfigError: When the position was counted in other portions.
        """
        if state["portions"] != self._portions():
            raise ConfigError(
                [f"this data position was saved with {state['portions']}; the loader has {self._portions()}."]
            )
        self.position = state["position"]

    @abstractmethod
    def _portions(self) -> dict:
        """What a position is counted in: two loaders with the same mean the same batch by it."""
