"""What a scale is: a size for all grids, in a file of its own, and what a grid changes about it."""

from typing import Any

from lightning_modules.config import Settings, knob, required


class ScaleSearch(Settings):
    """What a scale changes about its grid's search."""

    axes: dict[str, tuple[Any, ...]] = knob({}, "Searched knob -> values that replace the grid's at this scale.")
    seeds: int | None = knob(None, "The search's seeds; by default the grid's.", ge=1, le=1000)


class Scale(Settings):
    """What a grid says of one size at which it can be run; what it leaves out is as in the scale's own file."""

    description: str = knob("", "What it takes and what it shows, in a line.")
    seeds: int | None = knob(None, "Seeds 0 to n-1; by default the grid's.", ge=1, le=1000)
    tasks: tuple[str, ...] | None = knob(None, "Downstream tasks; by default the grid's.")
    axes: dict[str, tuple[Any, ...]] = knob({}, "Axis -> values that replace the grid's at this scale.")
    base: dict[str, Any] = knob({}, "Knob -> value before the grid's own; filled in from the scale's file.")
    set: dict[str, Any] = knob({}, "Knob -> value, after the grid's own.")
    stands_for: dict[str, tuple[Any, ...]] = knob(
        {}, "Axis -> the published values that its values here stand for, in order, such as shares of a larger size."
    )
    search: ScaleSearch | None = knob(
        ScaleSearch(), "What differs in the grid's search; null for no search at this scale."
    )


class ScaleFile(Settings):
    """A size for all grids, as its YAML file states it."""

    name: str = required("Stem of the file.", pattern=r"^[a-z][a-z0-9_-]*$")
    description: str = required("What it takes and what it shows, in a line.", min_length=1)
    like: str = knob("", "The scale that it starts from, and whose entry in a grid stands for one of its own.")
    set: dict[str, Any] = knob({}, "Knob -> value, before the grid's own.")
    checkpoints: dict[str, Any] | None = knob(
        None, "Fine-tuning knob -> value for `ablations evaluate`, which refuses scales without this."
    )
