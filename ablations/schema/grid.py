"""What a grid file may say.

A *grid* is one YAML file: a question, a base system, axes over its knobs, scales, metrics, claims, published tables.
"""

from typing import Any, Literal

from ablations.schema.claim import Claim
from ablations.schema.scale import Scale
from lightning_modules.config import Settings, knob, required

SYSTEM_AXIS = "system"  # the axis whose values are names of whole systems


STEPS = "training.steps"  # the knob that an equal-tokens or equal-FLOPs budget sets


FIRST_SEARCH_SEED = 1000  # the seeds of searches are numbered from here on; those of evaluations lie below


FINETUNING = "finetuning."  # before a knob of `FineTuning`; every other knob is one of the pretrained system


class Budget(Settings):
    """What is held equal across the cells of a grid."""

    equal: Literal["steps", "tokens", "flops"] = knob(
        "steps", "steps: training.steps as it stands; tokens, flops: steps such that each cell uses the baseline's."
    )


class Search(Settings):
    """A search that every cell makes for itself before its evaluation, with seeds that no evaluation has.

    Every combination is trained from the search's seeds; the one with the best mean is what the cell's own seeds are
    trained with. So variants are compared each at its own best, after searches of equal size.
    """

    axes: dict[str, tuple[Any, ...]] = required("Knob -> values to try, in every combination.", min_length=1)
    metric: str = required("What decides, by its mean over the search's seeds.")
    better: Literal["lower", "higher"] | None = knob(None, "Which direction is better; by default the grid's metrics'.")
    seeds: int = knob(1, "Seeds 1000 to 1000 + n-1; those of evaluations are below 1000.", ge=1, le=1000)


class Exclusion(Settings):
    """Combinations that are left out, and why."""

    when: dict[str, Any] = required("Axis -> value or list of values; cells that agree are left out.", min_length=1)
    reason: str = required("Printed in the plan.", min_length=1)


class Metric(Settings):
    """One measured column."""

    name: str = required("A key of a record's metrics, such as heldout.loss.")
    better: Literal["lower", "higher"] = required("Which direction is better.")
    label: str = knob("", "Heading of its column; by default the name.")


class PublishedTable(Settings):
    """Where the published values of a grid's cells stand."""

    file: str = required("A file of ablations/published/.")
    table: str = knob("", "Which table of it; empty for all.")
    match: dict[str, str] = knob({}, "Column of the file -> axis with the same values.")
    where: dict[str, str] = knob({}, "Column of the file -> the one value of it that is meant.")
    metrics: tuple[str, ...] = knob((), "Published metrics to show, in order.")


class FigureAxes(Settings):
    """What the figure of a grid shows."""

    x: str = required("An axis.")
    y: str | tuple[str, ...] = required("A metric, or several, a panel each.")

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics, one or several."""
        return (self.y,) if isinstance(self.y, str) else self.y


class Grid(Settings):
    """One ablation, as its YAML file states it."""

    name: str = required("Stem of the file.", pattern=r"^[a-z][a-z0-9_]*$")
    question: str = required("What is asked.", min_length=1)
    paper: str = knob("", "Where the published ablation is.")
    base: str = required("The system that cells start from.")
    set: dict[str, Any] = knob({}, "Knob -> value in every cell.")
    axes: dict[str, tuple[Any, ...]] = required("Knob -> values to try; 'system' tries whole systems.", min_length=1)
    variants: dict[str, dict[str, dict[str, Any]]] = knob(
        {}, "Axis that is no knob -> name of each of its values -> the knobs that the name stands for."
    )
    zip: tuple[tuple[str, ...], ...] = knob((), "Groups of axes that move together.")
    exclude: tuple[Exclusion, ...] = knob((), "Combinations that are left out.")
    baseline: dict[str, Any] = knob({}, "Axis -> value that the others are compared with.")
    seeds: int = knob(1, "Seeds 0 to n-1.", ge=1, le=1000)
    tasks: tuple[str, ...] = knob((), "Downstream tasks that every pretrained model is fine-tuned on.")
    budget: Budget = knob(Budget(), "What is held equal.")
    search: Search | None = knob(None, "What every cell searches for itself; by default nothing.")
    scales: dict[str, Scale] = required("Name -> what differs from the scale's own file.", min_length=1)
    metrics: tuple[Metric, ...] = required("What is compared; the first is the main one.", min_length=1)
    claims: tuple[Claim, ...] = knob((), "Published statements that the grid tests.")
    published: tuple[PublishedTable, ...] = knob((), "Published values beside the measured ones.")
    figure: FigureAxes | None = knob(None, "What the figure shows.")
