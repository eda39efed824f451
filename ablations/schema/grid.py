"""The contents of a grid file.

A *grid* is one YAML file: a question, a base system, axes over its knobs, scales, metrics, claims, published tables.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from ablations.schema.claim import Claim
from ablations.schema.metrics import LABELS, better
from ablations.schema.scale import Scale
from lightning_modules.config import Settings, knob, required
from lightning_modules.parents import OF_TASK

SYSTEM_AXIS = "system"  # the axis whose values are names of whole systems


STEPS = "training.steps"  # the knob that an equal-tokens or equal-FLOPs budget sets


START = "training.start"  # the knob that names the pretraining which cells continue


# the knobs that describe other trainings
PARENTS = (START, "objectives.distillation.teacher", "finetuning.distillation.teacher")


FIRST_SEARCH_SEED = 1000  # searches use seeds from here on; evaluations use seeds below


VALIDATION = "validation_share"  # the setting of a fine-tuning that only trials of a search have


FINETUNING = OF_TASK  # prefix of the knobs of `FineTuning`


MEASURING = "measuring."  # prefix of the knobs of `Measurement`


AFTERWARDS = (FINETUNING, MEASURING)  # prefixes of what is done with a system; other knobs belong to its pretraining


# raw HTML; directives of Sphinx, behind any mark of a list or quotation
_NO_MARKDOWN = re.compile(  # HTML; directives, roles, comments and targets of MyST; links but to pages and files below
    r"<(?=[A-Za-z/!?])\S*|^[\s\d.)>*+-]*(?:(?:`{3,}|~{3,})[ \t]*\{.*|:{3,}.*)|(?<!`)\{[\w:+-]{1,36}\}(?=`[^`\n])"
    r"|^\s*\(.+\)=\s*$|^\s{0,3}(?:%|\+\+\+).*"
    r"|\]\((?!https://|(?![^)\n]*\.\.)[\w-][\w./-]*[)#])[^)\n]*|^[\s\d.)>*+-]*\[[^\]]*\]:.*",
    re.MULTILINE,
)
_FENCE = re.compile(r"^\s*(?:`{3,}|~{3,})", re.MULTILINE)


class Budget(Settings):
    """The budget that all cells of a grid share."""

    equal: Literal["steps", "tokens", "flops"] = knob(
        "steps",
        "With steps, training.steps stays. With tokens or flops, each cell gets the steps that use those of the "
        "baseline.",
    )


class Search(Settings):
    """A search that every cell makes before its evaluation, with seeds that no evaluation uses.

    Every combination is trained from the search's seeds; the cell's own seeds are trained with the combination that has
    the best mean. So each variant is compared at its best, after searches of equal size.
    """

    axes: dict[str, tuple[Any, ...]] = required("Knob -> values to try, in all combinations.", min_length=1)
    set: dict[str, Any] = knob({}, "Knob -> value in every trial, and in no evaluation.")
    metric: str = required("The metric that chooses, by its mean over the search's seeds.")
    seeds: int = knob(1, "Number n of seeds: 1000 to 1000 + n-1. Evaluations use seeds below 1000.", ge=1, le=1000)
    length: float = knob(1.0, "Share of an evaluation's pretraining steps that a trial trains for.", gt=0, le=1)
    extend: int = knob(
        0,
        "How many more combinations a cell tries at most where its best lies at an end of a range, each a step beyond.",
        ge=0,
        le=10,
    )


class Ladder(Settings):
    """The way from the base system to another one; gives the axis ``rung``."""

    to: str = required("The system at the top.")
    rungs: dict[str, tuple[str, ...]] = required(
        "Name of a rung -> its knobs, in the order in which rungs are taken. Every difference of the two systems once.",
        min_length=2,
    )


class Exclusion(Settings):
    """Combinations that are left out, with the reason."""

    when: dict[str, Any] = required("Axis -> value or list of values. Leaves out the cells that agree.", min_length=1)
    reason: str = required("Printed in the plan.", min_length=1)


class Mean(Settings):
    """A row that no run has: the mean of the probabilities that two cells give to each class of an example.

    It is computed when tables are made, from two fine-tunings of one seed and task.
    """

    at: dict[str, str] = required("Axis -> the name of the row. No value of the axis.", min_length=1, max_length=1)
    of: tuple[dict[str, Any], ...] = required("The two cells, as axis -> value.", min_length=2, max_length=2)


class Saving(Settings):
    """A number that no run has: with how many times as many labels one side is as good as the other."""

    a: dict[str, Any] = required("Axis -> value of the side that saves labels.", min_length=1)
    b: dict[str, Any] = required("Axis -> value of the side whose curve over labels is read.", min_length=1)
    metric: str = required("The metric, better when higher.")


class Metric(Settings):
    """One measured column."""

    name: str = required("A key of a record's metrics, such as heldout.loss.")
    label: str = knob("", "Heading of the column. By default the usual one, or the name.")

    @model_validator(mode="before")
    @classmethod
    def _usual(cls, given: Any) -> Any:
        """A name alone is enough."""
        given = {"name": given} if isinstance(given, str) else given
        return {"label": LABELS.get(given.get("name", ""), "")} | given if isinstance(given, dict) else given

    @property
    def better(self) -> Literal["lower", "higher"]:
        """The better direction."""
        return better(self.name)


class PublishedTable(Settings):
    """The source of published values of a grid's cells."""

    file: str = required("A file in ablations/published/.")
    table: str = knob("", "One table of the file. Empty for all.")
    match: dict[str, str] = knob({}, "Column of the file -> axis with the same values. Empty: of no cell, shown whole.")
    where: dict[str, str] = knob({}, "Column of the file -> the value of the rows to use.")
    metrics: tuple[str, ...] = knob((), "Published metrics to show, in order.")


class FigureAxes(Settings):
    """The axes of a grid's figure."""

    x: str = required("An axis.")
    y: str | tuple[str, ...] = required("A metric, or several with one panel each.")
    linear: bool = knob(False, "Numbers on x are to scale, also where each is a multiple of the one before.")

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics as a tuple."""
        return (self.y,) if isinstance(self.y, str) else self.y


class Grid(Settings):
    """One ablation, as its YAML file states it."""

    name: str = required("Stem of the file.", pattern=r"^[a-z][a-z0-9_]*$")
    question: str = required("The question that the grid answers.", min_length=1)
    paper: str = knob("", "The paper and table of the published ablation.")
    about: str = knob(
        "", "What there is to know beforehand: what papers found, what a row is, what is held equal. Markdown."
    )
    base: str = required("The system that cells start from.")
    set: dict[str, Any] = knob({}, "Knob -> value in every cell.")
    axes: dict[str, tuple[Any, ...]] = required("Knob -> values to try. 'system' tries whole systems.", min_length=1)
    variants: dict[str, dict[str, dict[str, Any]]] = knob(
        {}, "Axis that is no knob -> name of a variant -> the knobs of the variant."
    )
    ladder: Ladder | None = knob(None, "The way from the base system to another one, as the axis ``rung``.")
    zip: tuple[tuple[str, ...], ...] = knob((), "Groups of axes whose values are paired.")
    exclude: tuple[Exclusion, ...] = knob((), "Combinations that are left out.")
    baseline: dict[str, Any] = knob({}, "Axis -> value of the cell that the others are compared with.")
    seeds: int = knob(1, "Number of seeds of the first look.", ge=1, le=1000)
    looks: tuple[Annotated[int, Field(ge=1, le=1000)], ...] = knob(
        (), "Numbers of seeds at which claims are judged, the first as in 'seeds'. By default once, with 'seeds'."
    )
    first_seed: int = knob(
        0, "The smallest seed. Seeds that were looked at before a change of design stay below it.", ge=0, lt=1000
    )
    means: tuple[Mean, ...] = knob((), "Rows that are means of the probabilities of two cells.")
    savings: tuple[Saving, ...] = knob((), "Savings in labels, of cells that differ in finetuning.train_examples.")
    variance_groups: tuple[dict[str, Any], ...] = knob(
        (), "Axis -> value or list of values: cells whose runs vary alike. Each cell is in one group. By default all."
    )
    tasks: tuple[str, ...] = knob((), "Downstream tasks on which every pretrained model is fine-tuned.")
    measure: tuple[str, ...] = knob(
        (), "Zero-shot tasks on which every pretrained model is evaluated, without training."
    )
    budget: Budget = knob(Budget(), "The budget that all cells share.")
    search: Search | None = knob(None, "The search of every cell. By default none.")
    scales: dict[str, Scale] = required("Name -> changes to the scale's own file.", min_length=1)
    metrics: tuple[Metric, ...] = required("The metrics that are compared. The first is the main one.", min_length=1)
    claims: tuple[Claim, ...] = knob((), "Published statements that the grid tests.")
    published: tuple[PublishedTable, ...] = knob((), "Published values next to the measured ones.")
    figure: FigureAxes | None = knob(None, "The axes of the figure.")

    @field_validator("about")
    @classmethod
    def _markdown_alone(cls, about: str) -> str:
        """Pages, the site and notebooks show the text: neither HTML nor a directive in it may act there."""
        if found := _NO_MARKDOWN.search(about):
            what = "Write `&lt;` for <, [text](https://...) for a link, and neither directives nor comments."
            raise ValueError(f"'{found[0].strip()[:40]}' is no plain Markdown. {what}")
        if len(_FENCE.findall(about)) % 2:
            raise ValueError("a block of code does not end. Close it with ```.")
        if hidden := [c for c in about if not c.isprintable() and c != "\n"]:
            raise ValueError(f"has the invisible character {hidden[0]!r}")
        return about.strip("\n")

    def looks_at(self, scale: str) -> tuple[int, ...]:
        """The numbers of seeds at which claims are judged at a scale; the scale's own settings win."""
        own = self.scales.get(scale) or Scale()
        return own.looks or ((own.seeds,) if own.seeds else self.looks or (self.seeds,))

    def first_seed_at(self, scale: str) -> int:
        """The smallest seed at a scale."""
        own = self.scales.get(scale) or Scale()
        return self.first_seed if own.first_seed is None else own.first_seed
