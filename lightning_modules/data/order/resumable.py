"""The position of a loader in checkpoints, and batches that are made ahead of it."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import pytorch_lightning as pl

from lightning_modules.config import ConfigError

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Feeding:
    """How a loader feeds a device.

    Attributes:
        ahead: Steps that a thread prepares while the device works on others. 0 prepares each when it is needed.
        multiple: Rows and what is read of them take sizes that are multiples of it (`Example.widened`).
        drawn_multiple: Lengths of steps that are drawn are rounded to multiples of it (`lengths.drawn`).
    """

    ahead: int = 0
    multiple: int = 1
    drawn_multiple: int = 1

    @property
    def provenance(self) -> dict[str, int]:
        """What a record says of it: the multiple, where it is not 1."""
        return {"sizes_in_multiples_of": self.multiple} if self.multiple > 1 else {}

    @classmethod
    def of(cls, trainer: pl.Trainer | None) -> "Feeding":
        """That of the device of a Trainer: a GPU works ahead of the program, and is fast on sizes that it has met."""
        on_gpu = trainer is not None and trainer.strategy.root_device.type == "cuda"
        return cls(ahead=2, multiple=16, drawn_multiple=8) if on_gpu else PLAIN


PLAIN = Feeding()


def made_ahead(items: Iterator[_Item], count: int) -> Generator[_Item]:
    """The same items, up to so many of which a thread makes before they are needed. An error comes in its place."""
    if not count:
        yield from items
        return
    end = object()
    with ThreadPoolExecutor(1, "batches") as thread:
        waiting = deque(thread.submit(next, items, end) for _ in range(count))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(thread.submit(next, items, end))
            yield item  # pyright: ignore[reportReturnType]


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
