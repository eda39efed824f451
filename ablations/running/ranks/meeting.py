"""A folder in which the processes that share a training find each other, and say why one of them failed."""

import contextlib
import json
import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ablations.schema.record import Outcome
from lightning_modules.files import read

PREFIX = "ranks-"  # of the names of such folders
_TOLD = "told.json"


@dataclass(frozen=True)
class RankFailure:
    """How a rank failed.

    Attributes:
        rank: Its number.
        outcome: In the words of a record.
        detail: What else is known.
        signal: What its process died of; 0 if it could say a word.
    """

    rank: int
    outcome: Outcome
    detail: str
    signal: int = 0

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.detail}"


@dataclass(frozen=True)
class Meeting:
    """Such a folder, on a file system that all of them see."""

    folder: Path

    @property
    def store(self) -> Path:
        """The file of `lightning_modules.training.ranks.join`."""
        return self.folder / "store"

    def call(self, told: dict[str, Any]) -> None:
        """Says what is trained, to ranks of other nodes too."""
        self._put(_TOLD, told)

    def told(self) -> dict[str, Any]:
        """What `call` said.

        Raises:
            OSError: If it has not yet.
        """
        return json.loads(read(self.folder / _TOLD))

    def fail(self, failure: RankFailure) -> None:
        """Says that a rank has failed; the first word about it stays, and none is needed when all is over."""
        with contextlib.suppress(FileNotFoundError):
            if not (self.folder / f"failed-{failure.rank}.json").exists():
                self._put(f"failed-{failure.rank}.json", asdict(failure))

    def failures(self) -> list[RankFailure]:
        """Those known: first who was killed, which nobody here does, or had no memory; then in the order of time.

        The others follow from it.
        """
        paths = sorted(self.folder.glob("failed-*.json"), key=lambda path: path.stat().st_mtime_ns)
        found = [RankFailure(**json.loads(read(path))) for path in paths]
        return sorted(found, key=lambda failure: (failure.signal != signal.SIGKILL, failure.outcome != "oom"))

    @staticmethod
    def left(folder: Path) -> RankFailure | None:
        """The failure that an attempt in this work folder could not record, because rank 0 hung in an exchange."""
        return next((found for old in folder.glob(f"{PREFIX}*") for found in Meeting(old).failures()), None)

    def _put(self, name: str, content: dict[str, Any]) -> None:
        """Writes a file that others see whole or not at all."""
        own = self.folder / f".{name}.{os.getpid()}"
        with own.open("x") as file:  # no folder is made: it may be over
            file.write(json.dumps(content))
        os.replace(own, self.folder / name)
