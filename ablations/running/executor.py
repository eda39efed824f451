"""What an executor is."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from ablations.running.launch import Launch
from ablations.running.ranks.devices import one_node
from lightning_modules.config import ConfigError, Problem
from lightning_modules.training.execution import Execution


class Executor(ABC):
    """A way to make runs. All state is in the store, so an executor may die at any moment."""

    @classmethod
    def configured(cls, options: Mapping[str, Any]) -> "Executor":
        """The executor with options from a user.

        Raises:
            ConfigError: For options that it does not have.
        """
        if options:
            raise ConfigError(Problem(f"executor option {name}", "this executor has no options") for name in options)
        return cls()

    def problems(self, execution: Execution) -> Iterator[Problem]:
        """What is in the way of executing runs like this, told before any begins."""
        yield from one_node(execution)
        if execution.devices > 1:
            text = "this executor makes runs in one process each, which no other shares. Use --executor local."
            yield Problem("devices", text)

    def check_machine(self) -> None:  # noqa: B027, most need nothing
        """Checks that this machine has what the executor needs, before text is prepared for runs.

        Raises:
            ConfigError: For what is missing, with a way to get it.
        """

    def warm_up(self) -> None:  # noqa: B027, most have nothing
        """Begins what takes seconds and can go on beside the preparation of text; does not wait for it."""

    @abstractmethod
    def run(self, launch: Launch) -> None:
        """Makes every run of ``launch.todo`` and reports to ``launch`` how each ends.

        Raises:
            KeyboardInterrupt: After Ctrl-C, once the active runs have written checkpoints.
            SystemExit: After SIGTERM or SIGHUP, likewise.
        """
