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

METRICS: dict[str, str] = {
    "heldout.loss": "mean loss of the predictions on held-out text, nats",
    "heldout.accuracy": "share of held-out predictions that are right, 0 to 1",
    "heldout.unigram_loss": "the same loss of word frequencies alone, nats",
    "heldout.bigram_loss": "the same loss of counts of left and right neighbours, nats",
    "heldout.next_loss": "mean loss of next tokens on held-out text, from those on their left, nats",
    "heldout.next_accuracy": "share of next tokens that are predicted rightly, 0 to 1",
    "heldout.next_unigram_loss": "the same loss of word frequencies alone, nats",
    "heldout.next_bigram_loss": "the same loss of counts of left neighbours, nats",
    "heldout.previous_loss": "mean loss of previous tokens on held-out text, from those on their right, nats",
    "heldout.previous_accuracy": "share of previous tokens that are predicted rightly, 0 to 1",
    "heldout.previous_unigram_loss": "the same loss of word frequencies alone, nats",
    "heldout.previous_bigram_loss": "the same loss of counts of right neighbours, nats",
    "heldout.pairs_loss": "mean loss of the predictions on held-out pairs of segments of one text, nats",
    "heldout.pairs_accuracy": "share of those predictions that are right, 0 to 1",
    "heldout.pairs_next_loss": "mean loss of next tokens on the same pairs, nats",
    "heldout.pairs_next_accuracy": "share of those predictions that are right, 0 to 1",
    "heldout.pairs_previous_loss": "mean loss of previous tokens on the same pairs, nats",
    "heldout.pairs_previous_accuracy": "share of those predictions that are right, 0 to 1",
    "heldout.nsp_accuracy": "share of held-out pairs right: does the second segment follow, or is it from elsewhere?",
    "heldout.nsp_majority": "the same share for always giving the commoner answer",
    "heldout.nsp_bow": "the same share for a linear classifier of word counts",
    "heldout.nsp_overlap": "the same for the words alone that both segments have",
    "heldout.sop_accuracy": "share of held-out pairs right: are the two segments in order, or swapped?",
    "heldout.sop_majority": "the same share for always giving the commoner answer",
    "heldout.sop_bow": "the same share for a linear classifier of word counts",
    "heldout.sop_overlap": "the same for the words alone that both segments have",
    "heldout.plateau": "whether the model is no better than those neighbour counts",
    "train.loss": "mean training loss since the last measurement, nats",
    "glue.bert_average": "mean of the nine scores of BERT's Table 1, on dev sets: both of MNLI, F1 of QQP and MRPC, "
    "Spearman of STS-B, Matthews of CoLA, no WNLI; 0 to 1",
    "glue.average": "mean over the nine tasks of GLUE, on dev sets, each by the mean of its measures; 0 to 1",
    "tasks.mean": "plain mean of the main metric of each task at this scale, no published average; 0 to 1",
}

HELDOUT = ("heldout.loss", "heldout.next_loss", "heldout.previous_loss")  # of masked models, of those that look one way

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
    published: dict[str, float] = knob({}, "The paper's values of the two sides: {a: value, b: value}.")
    metric: str = _required("What is measured here.")
    official: str = knob(
        "", "The same metric on the official data set, in place of 'metric' at scales that fine-tune on that."
    )
    better: Literal["lower", "higher"] = _required("Which direction of our metric is better.")
    a: dict[str, Any] = _required("Axis -> value of the first side.", min_length=1)
    b: dict[str, Any] = knob({}, "Axis -> value of the second side.")
    against: str = knob("", "A metric of side a that stands for b, such as a majority baseline.")
    relation: Literal[">", "~"] = knob(">", "'>': a is better than b; '~': they differ by less than margin.")
    margin: float | None = knob(None, "Largest difference that still counts as equal, in the metric's unit.", gt=0)
    proxy: str = knob("", "How our measurement differs from the paper's.")


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


class Cell(Settings):
    """One point of a grid at a scale."""

    values: dict[str, Any] = _required("Axis -> value.")
    label: str = _required("Readable and stable.")
    printed: dict[str, Any] = knob({}, "Axis -> the value that papers print for it, where it is not the cell's own.")
    system: System = _required("Everything resolved, the budget included.")
    runs: tuple[Run, ...] = _required("The pretraining of each seed.")
    tuned: tuple[Run, ...] = knob((), "The fine-tuning of each seed on each task.")


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
