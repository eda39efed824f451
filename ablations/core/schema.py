"""What a grid file may say, and what the harness keeps: Grid, Cell, Run, Record.

A *grid* is one YAML file: a question, a base system, axes over its knobs, scales, claims. A *cell* is one point of a
grid at a scale: a value for each axis, and the system they make. A *run* is one training: a system and a seed; its
``id`` is a hash of everything that determines its numbers. A *record* is what a run leaves: the only source of tables.
"""

import hashlib
import json
from functools import cached_property
from typing import Any, Literal

from pydantic import Field

from lightning_modules import NUMERICS
from lightning_modules.config import Settings, identity, knob
from lightning_modules.system import System
from lightning_modules.tasks import FineTuning, fingerprint

SYSTEM_AXIS = "system"  # the axis whose values are names of whole systems
STEPS = "training.steps"  # the knob that an equal-tokens or equal-FLOPs budget sets
FIRST_SEARCH_SEED = 1000  # the seeds of searches are numbered from here on; those of evaluations lie below

ROOMS = {  # kind of run -> rooms whose numerics it depends on
    "pretrain": ("data", "pretrain", "evaluate"),
    "finetune": ("data", "pretrain", "evaluate", "finetune"),
}
TUNING = "finetuning."  # before a knob of `FineTuning`; every other knob is one of the pretrained system

Outcome = Literal["done", "diverged", "invalid", "oom", "failed", "killed", "timeout"]
FINAL: tuple[Outcome, ...] = ("done", "diverged", "invalid")  # the others are attempts, made again on a rerun


def _required(doc: str, **constraints: Any) -> Any:
    return Field(description=doc, **constraints)


class Budget(Settings):
    """What is held equal across the cells of a grid."""

    equal: Literal["steps", "tokens", "flops"] = knob(
        "steps", "steps: training.steps as it stands; tokens, flops: steps such that each cell uses the baseline's."
    )


class Tune(Settings):
    """A search that every cell makes for itself before its evaluation, with seeds that no evaluation has.

    Every combination is trained from the search's seeds; the one with the best mean is what the cell's own seeds are
    trained with. So variants are compared each at its own best, after searches of equal size.
    """

    axes: dict[str, tuple[Any, ...]] = _required("Knob -> values to try, in every combination.", min_length=1)
    metric: str = _required("What decides, by its mean over the search's seeds.")
    better: Literal["lower", "higher"] | None = knob(None, "Which direction is better; by default the grid's metrics'.")
    seeds: int = knob(1, "Seeds 1000 to 1000 + n-1; those of evaluations are below 1000.", ge=1, le=1000)


class ScaleTune(Settings):
    """What a scale changes about its grid's search."""

    axes: dict[str, tuple[Any, ...]] = knob({}, "Searched knob -> values that replace the grid's at this scale.")
    seeds: int | None = knob(None, "The search's seeds; by default the grid's.", ge=1, le=1000)


class Scale(Settings):
    """One size at which a grid can be run."""

    description: str = knob("", "What it takes and what it shows, in a line.")
    seeds: int | None = knob(None, "Seeds 0 to n-1; by default the grid's.", ge=1, le=1000)
    tasks: tuple[str, ...] | None = knob(None, "Downstream tasks; by default the grid's.")
    axes: dict[str, tuple[Any, ...]] = knob({}, "Axis -> values that replace the grid's at this scale.")
    set: dict[str, Any] = knob({}, "Knob -> value, after the grid's own.")
    stands_for: dict[str, tuple[Any, ...]] = knob(
        {}, "Axis -> the published values that its values here stand for, in order, such as shares of a larger size."
    )
    tune: ScaleTune | None = knob(ScaleTune(), "What differs in the grid's search; null for no search at this scale.")


class Exclusion(Settings):
    """Combinations that are left out, and why."""

    when: dict[str, Any] = _required("Axis -> value or list of values; cells that agree are left out.", min_length=1)
    reason: str = _required("Printed in the plan.", min_length=1)


class Metric(Settings):
    """One measured column."""

    name: str = _required("A key of a record's metrics, such as heldout.loss.")
    better: Literal["lower", "higher"] = _required("Which direction is better.")
    label: str = knob("", "Heading of its column; by default the name.")


class Claim(Settings):
    """One published statement in a form that can be tested."""

    id: str = _required("Unique within the grid.", pattern=r"^[a-z0-9][a-z0-9_.]*$")
    of: str = knob("", "The published claim that it tests, where its id is another.")
    statement: str = _required("The claim in words.", min_length=1)
    source: str = _required("Paper and table.", min_length=1)
    published_metric: str = knob("", "What the paper measured.")
    published: dict[str, float] = knob({}, "The paper's values of the sides: {a: value, b: value}, and on by letters.")
    metric: str = _required("What is measured here.")
    official: str = knob(
        "", "The same metric on the official data set, in place of 'metric' at scales that fine-tune on that."
    )
    better: Literal["lower", "higher"] = _required("Which direction of our metric is better.")
    a: dict[str, Any] = knob({}, "Axis -> value of the first side.")
    b: dict[str, Any] = knob({}, "Axis -> value of the second side.")
    sides: tuple[dict[str, Any], ...] = knob(
        (), "In place of a and b: ordering, trend: the sides, best first; interaction: a, b, c, d of (a - b) - (c - d)."
    )
    against: str = knob("", "A metric of side a that stands for b, such as a majority baseline.")
    relation: Literal[">", "~", "ratio", "ordering", "trend", "interaction", "spread"] = knob(
        ">", "'>': a is better than b; '~': they differ by less than margin; the others: ablations/relations.py."
    )
    margin: float | None = knob(None, "Largest difference that still counts as equal, in the metric's unit.", gt=0)
    ratio: float | None = knob(None, "How many times as good as b a is at least.", gt=0)
    proxy: str = knob("", "How our measurement differs from the paper's.")

    @property
    def asked(self) -> tuple[dict[str, Any], ...]:
        """The sides in the order of the claim, as axis -> value; one where ``against`` stands for the second."""
        return self.sides or tuple(side for side in (self.a, self.b) if side)


class PublishedTable(Settings):
    """Where the published values of a grid's cells stand."""

    file: str = _required("A file of ablations/published/.")
    table: str = knob("", "Which table of it; empty for all.")
    match: dict[str, str] = knob({}, "Column of the file -> axis with the same values.")
    where: dict[str, str] = knob({}, "Column of the file -> the one value of it that is meant.")
    metrics: tuple[str, ...] = knob((), "Published metrics to show, in order.")


class FigureAxes(Settings):
    """What the figure of a grid shows."""

    x: str = _required("An axis.")
    y: str | tuple[str, ...] = _required("A metric, or several, a panel each.")

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics, one or several."""
        return (self.y,) if isinstance(self.y, str) else self.y


class Grid(Settings):
    """One ablation, as its YAML file states it."""

    name: str = _required("Stem of the file.", pattern=r"^[a-z][a-z0-9_]*$")
    question: str = _required("What is asked.", min_length=1)
    paper: str = knob("", "Where the published ablation is.")
    base: str = _required("The system that cells start from.")
    set: dict[str, Any] = knob({}, "Knob -> value in every cell.")
    axes: dict[str, tuple[Any, ...]] = _required("Knob -> values to try; 'system' tries whole systems.", min_length=1)
    variants: dict[str, dict[str, dict[str, Any]]] = knob(
        {}, "Axis that is no knob -> name of each of its values -> the knobs that the name stands for."
    )
    zip: tuple[tuple[str, ...], ...] = knob((), "Groups of axes that move together.")
    exclude: tuple[Exclusion, ...] = knob((), "Combinations that are left out.")
    baseline: dict[str, Any] = knob({}, "Axis -> value that the others are compared with.")
    seeds: int = knob(1, "Seeds 0 to n-1.", ge=1, le=1000)
    tasks: tuple[str, ...] = knob((), "Downstream tasks that every pretrained model is fine-tuned on.")
    budget: Budget = knob(Budget(), "What is held equal.")
    tune: Tune | None = knob(None, "What every cell searches for itself; by default nothing.")
    scales: dict[str, Scale] = _required("Name -> scale.", min_length=1)
    metrics: tuple[Metric, ...] = _required("What is compared; the first is the main one.", min_length=1)
    claims: tuple[Claim, ...] = knob((), "Published statements that the grid tests.")
    published: tuple[PublishedTable, ...] = knob((), "Published values beside the measured ones.")
    figure: FigureAxes | None = knob(None, "What the figure shows.")


class Run(Settings):
    """One unit of work: a system trained from a seed on pinned text, or fine-tuned, by code of a known generation."""

    kind: Literal["pretrain", "finetune"] = _required("What is done.")
    system: System = _required("What is trained, or was before fine-tuning.")
    seed: int = _required("Initialisation, order, corruption and dropout follow from it.", ge=0)
    fingerprints: dict[str, str] = _required("Corpus or task -> fingerprint of its text.")
    numerics: dict[str, int] = _required("Room -> generation of the numbers it produces.")
    task: str = knob("", "What it is fine-tuned on.", neutral="")
    finetuning: FineTuning | None = knob(None, "How it is fine-tuned.", neutral=None)
    parents: tuple[str, ...] = knob((), "Ids of the runs whose weights this one starts from.", neutral=())

    @classmethod
    def pretraining(cls, system: System, seed: int, fingerprints: dict[str, str]) -> "Run":
        """The pretraining that the code at hand would make."""
        run = cls(
            kind="pretrain", system=system, seed=seed, fingerprints=fingerprints, numerics=current_numerics("pretrain")
        )
        return run._with_parents()

    @classmethod
    def tuning(cls, pretrained: "Run", task: str, fingerprint: str, finetuning: FineTuning) -> "Run":
        """The fine-tuning of a pretrained system on a task, from the same seed."""
        run = cls(
            kind="finetune",
            system=pretrained.system,
            seed=pretrained.seed,
            fingerprints={**pretrained.fingerprints, **_first(finetuning), task: fingerprint},
            numerics=current_numerics("finetune"),
            task=task,
            finetuning=finetuning,
        )
        return run._with_parents()

    def of_generation(self, numerics: dict[str, int]) -> "Run":
        """The same run, and those it starts from, as code of other generations of the rooms would make them."""
        return self.but(numerics=numerics, parents=[])._with_parents()

    def _with_parents(self) -> "Run":
        parent = self.parent
        return self.model_copy(update={"parents": (parent.id,)}) if parent else self

    @cached_property
    def parent(self) -> "Run | None":
        """The run whose weights this one starts from: it follows from this one's own settings."""
        if self.finetuning is not None and self.finetuning.from_scratch:
            return None
        if self.finetuning is not None and (first := self.finetuning.first):
            before = {"task": first, "finetuning": self.finetuning.but(first=None), "parents": ()}
            fingerprints = {name: self.fingerprints[name] for name in (*self.system.data.corpora, first)}
            return self.model_copy(update={**before, "fingerprints": fingerprints})._with_parents()
        system = self.system if self.kind == "finetune" else self.system.shallower()
        if system is None:
            return None
        rooms, corpora = ROOMS["pretrain"], self.system.data.corpora
        return Run(
            kind="pretrain",
            system=system,
            seed=self.seed,
            fingerprints={name: self.fingerprints[name] for name in corpora},
            numerics={room: self.numerics[room] for room in rooms},
        )._with_parents()

    @cached_property
    def id(self) -> str:
        """16 hexadecimal digits of the identity of all that determines the numbers."""
        return identity(self.essence())[:16]


def _first(finetuning: FineTuning) -> dict[str, str]:
    """The fingerprint of the task that comes before, where there is one."""
    return {finetuning.first: fingerprint(finetuning.first)} if finetuning.first else {}


def current_numerics(kind: str) -> dict[str, int]:
    """The generations of the rooms that a kind of run depends on."""
    return {room: NUMERICS[room] for room in ROOMS[kind]}


class Trial(Settings):
    """A system trained from several seeds: one combination of a search, or the evaluation of a cell."""

    values: dict[str, Any] = _required("Axis or searched knob -> value.")
    label: str = _required("Readable and stable.")
    system: System = _required("Everything resolved, the budget included.")
    runs: tuple[Run, ...] = _required("The pretraining of each seed.")
    tuned: tuple[Run, ...] = knob((), "The fine-tuning of each seed on each task.")

    @property
    def work(self) -> tuple[Run, ...]:
        """All of them, without those that they start from."""
        return (*self.runs, *self.tuned)


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
        return tuple(dict.fromkeys(run.task for run in (*self.tuned, *self.awaited) if run.task))


class Record(Settings):
    """What a run leaves: how it was configured, how it ended, what was measured, what it cost, where it ran."""

    schema_version: Literal[1] = 1
    id: str = _required("The run.", pattern=r"^[0-9a-f]{16}$")
    kind: Literal["pretrain", "finetune"] = _required("What was done.")
    config: dict[str, Any] = _required("The run as plain data.")
    outcome: Outcome = _required("How it ended.")
    detail: str = knob("", "Why, where it did not end well.", max_length=4000)
    metrics: dict[str, float | bool] = knob({}, "Final measurements.")
    curve: dict[str, list[float]] = knob({}, "Measurements along the way, at most 64 points each.")
    layers: dict[str, list[float]] = knob({}, "Statistics by layer, from the first.")
    examples: dict[str, str] = knob({}, "One number a dev example, packed: answer, and how right it is.")
    cost: dict[str, float] = knob({}, "Seconds, tokens, FLOPs, parameters.")
    provenance: dict[str, Any] = knob({}, "Commit, device, versions, times: none of it part of the identity.")
    checksum: str = knob("", "SHA-256 of everything else.")

    @property
    def final(self) -> bool:
        """Whether a rerun leaves it alone."""
        return self.outcome in FINAL

    def run(self) -> Run:
        """The run it belongs to.

        Raises:
            ConfigError: If this version of the project cannot read its configuration.
        """
        return Run.read(self.config)


def checksum(record: dict[str, Any]) -> str:
    """SHA-256 of a record's plain data without its checksum, keys sorted, numbers as they are written."""
    rest = {key: value for key, value in record.items() if key != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
