"""A scale: a size for all grids in its own file, and the changes that a grid makes to it."""

from typing import Annotated, Any

from pydantic import Field

from lightning_modules.config import Settings, knob, required


class ScaleSearch(Settings):
    """Changes of a scale to its grid's search."""

    axes: dict[str, tuple[Any, ...]] = knob({}, "Searched knob -> values that replace the grid's at this scale.")
    seeds: int | None = knob(None, "Number of the search's seeds; by default the grid's.", ge=1, le=1000)
    length: float | None = knob(None, "Share of the steps that a trial trains for; by default the grid's.", gt=0, le=1)


class Scale(Settings):
    """A grid's entry for a scale; everything else is as in the scale's own file."""

    description: str = knob("", "Its cost and what it shows, in one line.")
    seeds: int | None = knob(None, "Number of seeds of the first look; by default the grid's.", ge=1, le=1000)
    looks: tuple[Annotated[int, Field(ge=1, le=1000)], ...] = knob(
        (), "Numbers of seeds at which claims are judged; by default the grid's, or once with this scale's 'seeds'."
    )
    first_seed: int | None = knob(None, "The smallest seed; by default the grid's.", ge=0, lt=1000)
    tasks: tuple[str, ...] | None = knob(None, "Downstream tasks; by default the grid's.")
    measure: tuple[str, ...] | None = knob(None, "Zero-shot tasks; by default the grid's.")
    axes: dict[str, tuple[Any, ...]] = knob({}, "Axis -> values that replace the grid's at this scale.")
    variants: dict[str, tuple[tuple[Any, Any], ...]] = knob(
        {}, "Knob of the grid's variants -> pairs of a value there and the one that stands in for it at this scale."
    )
    base: dict[str, Any] = knob({}, "Knob -> value before the grid's own; taken from the scale's file.")
    set: dict[str, Any] = knob({}, "Knob -> value, after the grid's own.")
    stands_for: dict[str, tuple[Any, ...]] = knob(
        {}, "Axis -> the published values of its stand-ins at this scale, in the same order."
    )
    search: ScaleSearch | None = knob(ScaleSearch(), "Changes to the grid's search; null for no search at this scale.")
    caveat: str = knob("", "What this grid cannot show at this scale; stands on its page behind the scale's own.")


class ScaleFile(Settings):
    """A size for all grids, as its YAML file states it."""

    name: str = required("Stem of the file.", pattern=r"^[a-z][a-z0-9_-]*$")
    description: str = required("Its cost and what it shows, in one line.", min_length=1)
    caveat: str = knob(
        "", "What stands in for what, or what results cannot show, in one sentence; stands on each page."
    )
    like: str = knob(
        "", "The scale that it starts from; grids without an entry for this scale use their entry for that one."
    )
    set: dict[str, Any] = knob({}, "Knob -> value, before the grid's own.")
    pins: dict[str, Any] = knob(
        {},
        "Knob -> value in place of the base system's, so that a later correction of a system changes no run; where a "
        "grid compares whole systems, each keeps its own.",
    )
    trunk: dict[str, Any] = knob(
        {}, "Knob -> value of the pretraining from which cells continue where a grid sets ``training.start: trunk``."
    )
    checkpoints: dict[str, Any] | None = knob(
        None, "Fine-tuning knob -> value for `ablations evaluate`, which needs this section."
    )
