"""A cell: one point of a grid at a scale, with a value for each axis, its system and its runs."""

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
    zero_shot: tuple[Run, ...] = knob((), "The measurement of each seed on each zero-shot task.")

    @property
    def children(self) -> tuple[Run, ...]:
        """What is done with the pretrained models: fine-tunings and measurements."""
        return (*self.finetunings, *self.zero_shot)

    @property
    def work(self) -> tuple[Run, ...]:
        """All runs, without the parents of pretrainings."""
        return (*self.runs, *self.children)


class Cell(Trial):
    """One point of a grid at a scale."""

    looks: tuple[int, ...] = knob((), "Numbers of seeds at which claims are judged. Empty: once, with all runs.")
    printed: dict[str, Any] = knob({}, "Axis -> the published value, where the cell's own is a stand-in.")
    search: tuple[Trial, ...] = knob((), "The combinations of the cell's search, in the order of the file.")
    chosen: dict[str, Any] = knob({}, "Searched knob -> the value that the search chose. Empty until then.")
    awaited: tuple[Run, ...] = knob(
        (), "Until the search has chosen: the evaluation with the first combination, only for the estimate."
    )

    @property
    def planned(self) -> tuple[Run, ...]:
        """The pretraining of each seed; until the search has chosen, the awaited ones."""
        return self.runs or tuple(run for run in self.awaited if not run.task)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that its pretrainings are, or will be, fine-tuned on or evaluated on."""
        return tuple(dict.fromkeys(run.task for run in (*self.children, *self.awaited) if run.task))

    @property
    def tuned(self) -> tuple[str, ...]:
        """The tasks that its pretrainings are, or will be, fine-tuned on."""
        return tuple(dict.fromkeys(run.task for run in (*self.finetunings, *self.awaited) if run.finetuning))
