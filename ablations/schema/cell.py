"""A cell: one point of a grid at a scale, a value for each axis and the system they make, with its runs."""

from typing import Any

from ablations.schema.run import Run
from lightning_modules.config import Settings, knob, required
from lightning_modules.system import System


class Trial(Settings):
    """A system trained from several seeds: one combination of a search, or the evaluation of a cell."""

    values: dict[str, Any] = required("Axis or searched knob -> value.")
    label: str = required("Readable and stable.")
    system: System = required("Everything resolved, the budget included.")
    runs: tuple[Run, ...] = required("The pretraining of each seed.")
    finetunings: tuple[Run, ...] = knob((), "The fine-tuning of each seed on each task.")

    @property
    def work(self) -> tuple[Run, ...]:
        """All of them, without those that they start from."""
        return (*self.runs, *self.finetunings)


class Cell(Trial):
    """One point of a grid at a scale."""

    printed: dict[str, Any] = knob({}, "Axis -> the value that papers print for it, where it is not the cell's own.")
    search: tuple[Trial, ...] = knob((), "The combinations that are tried first, in the order of the file.")
    chosen: dict[str, Any] = knob({}, "Searched knob -> the value that its search chose; empty before it has.")
    awaited: tuple[Run, ...] = knob(
        (), "The evaluation as the first combination would have it, for its size alone, until the search has chosen."
    )

    @property
    def planned(self) -> tuple[Run, ...]:
        """A pretraining a seed; before the search has chosen, the awaited ones."""
        return self.runs or tuple(run for run in self.awaited if run.kind == "pretrain")

    @property
    def tasks(self) -> tuple[str, ...]:
        """What its pretrainings are, or will be, fine-tuned on."""
        return tuple(dict.fromkeys(run.task for run in (*self.finetunings, *self.awaited) if run.task))
