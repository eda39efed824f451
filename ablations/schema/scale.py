"""A scale: a size for all grids in its own file, and the changes that a grid makes to it."""

import re
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from lightning_modules.config import Settings, knob, required

PLACE = re.compile(r"\{([^{}]*)\}")  # where a number of the records is in a sentence


Outcome = Literal["as claimed", "against", "within the margin", "open"]


class Conclusion(Settings):
    """A sentence of a page's answer, as long as its claims have the verdicts for which it was written.

    In braces are numbers of the records, each a `Place`:

    * the effect of a claim: ``{albert.t4.order}``;
    * the mean of a metric in a cell, by the label that `ablations plan` prints: ``{heldout.loss of rate=0.4}``;
    * one cell minus another: ``{heldout.loss of num_layers=4, own minus num_layers=4, shared}``;
    * either of them read off the curves: ``{heldout.loss of rate=0.4 minus rate=0.15 after 1,500 steps}``;
    * what counting reaches on the held-out words of a cell, and of how many pieces of text:
      ``{heldout.loss.floor of rate=0.4}`` and ``{heldout.loss.floor.pieces of rate=0.4}``.
    """

    say: str = required("The sentence.", min_length=1)
    given: dict[str, Outcome] = required(
        "Id of a claim -> the verdict for which the sentence was written.", min_length=1
    )


class Place(NamedTuple):
    """Where a number of the records is in a sentence.

    Attributes:
        metric: The metric; of the effect of a claim, its id.
        cell: The label of the cell; empty for the effect of a claim.
        other: The label of the cell that is subtracted, if any.
        steps: After how many steps; None for the end of the training.
    """

    metric: str
    cell: str = ""
    other: str = ""
    steps: int | None = None


def parted(place: str) -> Place:
    """The parts of what is in braces.

    >>> parted("heldout.loss of rate=0.4 minus rate=0.15 after 1,500 steps")
    Place(metric='heldout.loss', cell='rate=0.4', other='rate=0.15', steps=1500)
    """
    early = re.fullmatch(r"(.*) after ([\d,]+) steps", place)
    metric, _, cells = (early[1] if early else place).partition(" of ")
    cell, _, other = cells.partition(" minus ")
    return Place(metric, cell, other, int(early[2].replace(",", "")) if early else None)


class ScaleSearch(Settings):
    """Changes of a scale to its grid's search."""

    axes: dict[str, tuple[Any, ...]] = knob({}, "Searched knob -> values that replace the grid's at this scale.")
    seeds: int | None = knob(None, "Number of the search's seeds. By default the grid's.", ge=1, le=1000)
    length: float | None = knob(None, "Share of the steps that a trial trains for. By default the grid's.", gt=0, le=1)
    extend: int | None = knob(
        None, "How many more combinations a cell tries at an end. By default the grid's.", ge=0, le=10
    )


class Scale(Settings):
    """A grid's entry for a scale; everything else is as in the scale's own file."""

    description: str = knob("", "Its cost and what it shows, in one line.")
    seeds: int | None = knob(None, "Number of seeds of the first look. By default the grid's.", ge=1, le=1000)
    looks: tuple[Annotated[int, Field(ge=1, le=1000)], ...] = knob(
        (), "Numbers of seeds at which claims are judged. By default the grid's, or once with this scale's 'seeds'."
    )
    first_seed: int | None = knob(None, "The smallest seed. By default the grid's.", ge=0, lt=1000)
    claims: tuple[str, ...] = knob(
        (), "Ids of the only claims that are judged at this scale. By default all of the grid's."
    )
    tasks: tuple[str, ...] | None = knob(None, "Downstream tasks. By default the grid's.")
    measure: tuple[str, ...] | None = knob(None, "Zero-shot tasks. By default the grid's.")
    axes: dict[str, tuple[Any, ...]] = knob({}, "Axis -> values that replace the grid's at this scale.")
    variants: dict[str, tuple[tuple[Any, Any], ...]] = knob(
        {}, "Knob of the grid's variants -> pairs of a value there and the one in its place at this scale."
    )
    base: dict[str, Any] = knob({}, "Knob -> value before the grid's own. Taken from the scale's file.")
    set: dict[str, Any] = knob({}, "Knob -> value, after the grid's own.")
    stands_for: dict[str, tuple[Any, ...]] = knob(
        {}, "Axis -> the published values of its stand-ins at this scale, in the same order."
    )
    search: ScaleSearch | None = knob(ScaleSearch(), "Changes to the grid's search. Null for no search at this scale.")
    caveat: str = knob(
        "",
        "What this grid cannot show at this scale. Its page shows it behind the scale's own. In braces it may have "
        "numbers of cells, as the answer has.",
    )
    conclusion: tuple[Conclusion, ...] = knob((), "The answer at this scale, in sentences: the first line of its page.")


class ScaleFile(Settings):
    """A size for all grids, as its YAML file states it."""

    name: str = required("Stem of the file.", pattern=r"^[a-z][a-z0-9_-]*$")
    description: str = required("Its cost and what it shows, in one line.", min_length=1)
    judged: bool = knob(True, "Whether claims get verdicts at this scale. Not where its numbers mean nothing.")
    trial: bool = knob(False, "Whether what it leaves stays next to the published results, and in no index of them.")
    caveat: str = knob("", "What replaces what, or what results cannot show, in one sentence, which pages show.")
    caveat_where: dict[str, Any] = knob(
        {}, "Knob -> value. The caveat is about models that have all of these, and pages without one leave it out."
    )
    like: str = knob(
        "", "The scale that it starts from. Grids without an entry for this scale use their entry for that one."
    )
    instead: str = knob(
        "",
        "The scale to take where the weights of its trunks are not at hand, for it trains none. Grids without an "
        "entry for it take that scale too. Empty for scales that train their trunks.",
    )
    set: dict[str, Any] = knob({}, "Knob -> value, before the grid's own.")
    pins: dict[str, Any] = knob(
        {},
        "Knob -> value in place of the base system's, so that a later correction of a system changes no run. Where a "
        "grid compares whole systems, each keeps its own.",
    )
    trunk: dict[str, Any] = knob(
        {}, "Knob -> value of the pretraining from which cells continue where a grid sets ``training.start: trunk``."
    )
    checkpoints: dict[str, Any] | None = knob(
        None, "Fine-tuning knob -> value for `ablations finetune`, which needs this section."
    )
