"""The sides of a claim: their cells, their measurements, what keeps them from being compared, and their names."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from string import ascii_lowercase
from typing import Any

from ablations.claims.outcomes import Reason
from ablations.claims.relations import RELATIONS
from ablations.claims.sample import Sample
from ablations.core.estimates import NO_EXAMPLES
from ablations.core.formatting import cell_text, value_text
from ablations.literature.published_values import same
from ablations.measurements import trunks, variances
from ablations.measurements.derived import DERIVED
from ablations.measurements.example_scores import scores
from ablations.measurements.measurements import BySeed, Measurements
from ablations.measurements.references import compared
from ablations.measurements.selection import side_of
from ablations.measurements.sides import Compared, comparable, one_text
from ablations.schema.cell import Cell
from ablations.schema.claim import Claim
from ablations.schema.grid import Grid
from ablations.schema.metrics import EXACT
from ablations.schema.run import Run
from lightning_modules.tasks import TASKS
from lightning_modules.zero_shot.table import ZERO_SHOT

_LOST = ("diverged", "invalid")  # outcomes without a result
_NO_RUNS = Sample((), ())


@dataclass(frozen=True)
class Sides:
    """The sides of a claim with their data.

    Attributes:
        names: The names of the sides for people; later ones are short.
        cells: The cell of each side; only the first with ``against``.
        sample: The numbers of the sides; with ``against`` one side, the score minus that of the simple method.
        runs: The run ids of each side, by seed.
        behind: Every run that the verdict needs, parents included.
        notes: What is left out and why, one sentence each.
        floor: For each side, whether at least half of its runs are at the floor of their held-out losses.
        lost: Phrases about planned runs that ended without a result.
        silent: The number of fine-tunings that answer every example alike.
        unended: The number of planned runs that have not ended.
        begun: Whether every side has a record.
        missing: Why a side has no cell; empty if all have one.
        apart: Why sides cannot be compared at all, such as different held-out text; empty if they can.
        apart_for: The same as a reason.
        trunks: The pretrainings that its runs continue or are taught by; they are behind the verdict too.
        continued: Whether some of its runs continue one.
    """

    names: tuple[str, ...]
    cells: tuple[Cell, ...] = ()
    sample: Sample = field(default_factory=lambda: _NO_RUNS)
    runs: tuple[tuple[str, ...], ...] = ()
    behind: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    floor: tuple[bool, ...] = ()
    lost: tuple[str, ...] = ()
    silent: int = 0
    unended: int = 0
    begun: bool = False
    missing: str = ""
    apart: str = ""
    apart_for: Reason = Reason.NONE
    trunks: tuple[str, ...] = ()
    continued: bool = False

    @property
    def n(self) -> int:
        """The number of runs of the side that has fewest."""
        return self.sample.n

    @property
    def has_examples(self) -> bool:
        """Whether the noise of examples is counted."""
        return bool(self.sample.scores)


def asked_cells(claim: Claim, grid: Grid, cells: Sequence[Cell]) -> tuple[list[Cell], str]:
    """The cell of each side of a claim, and why these cells cannot test it; empty if they can."""
    found: list[Cell] = []
    for letter, side in zip(ascii_lowercase, claim.asked, strict=False):
        fitting = side_of(grid, cells, side)
        if len(fitting) != 1:
            fault = "is not among the cells" if not fitting else f"fits {len(fitting)} cells"
            return [], f"side {letter} ({cell_text(side)}) {fault} of this scale"
        found.append(fitting[0])
    missing = unmeasured(claim, cells)
    return ([], missing) if missing else (found, "")


def unmeasured(claim: Claim, cells: Sequence[Cell]) -> str:
    """Why no cell of a scale measures what a claim asks; empty if one does. Which cells were chosen does not matter."""
    task = claim.metric.partition(".")[0]
    if (task in TASKS or task in ZERO_SHOT) and not any(task in cell.tasks for cell in cells):
        return f"no model is {'asked' if task in ZERO_SHOT else 'fine-tuned on'} {task} at this scale"
    return ""


def official(claim: Claim, cells: Sequence[Cell]) -> Claim:
    """The claim with the metric on official data if cells are fine-tuned on it; a stand-in's control goes with it."""
    task = claim.official.partition(".")[0]
    is_official = any(task in cell.tasks for cell in cells) and bool(task)
    return claim.model_copy(update={"metric": claim.official, "positive_control": None}) if is_official else claim


def collect(table: Measurements, claim: Claim) -> Sides:
    """The sides of a claim among the cells of a scale, with the measurements of their finished runs."""
    cells, missing = asked_cells(claim, table.grid, table.cells)
    if missing:
        return Sides(names(claim, ()), missing=missing)
    measuring = [measuring_runs(cell, claim.metric) for cell in cells]
    within = claim.metric not in EXACT and trunks.are_shared(measuring)
    compared = comparable([_rows(table, claim, cell) for cell in cells], within)
    apart_for, apart = _apart(claim, cells, measuring)
    distinct = {run.id: run for runs in measuring for run in runs}.values()
    awaited = sum(len(cell.awaited) for cell in cells)
    return Sides(
        names=names(claim, cells),
        cells=tuple(cells),
        sample=replace(_sample(table, claim, cells, compared), blocked=within, crossed=trunks.are_tuned(measuring)),
        runs=compared.runs,
        behind=_behind(measuring, compared),
        notes=() if claim.against else compared.notes,
        floor=compared.floor,
        lost=_lost(distinct, table),
        silent=sum(len(table.silent(cell, claim.metric)) for cell in cells),
        unended=awaited + sum(not _has_ended(run, table) for run in distinct),
        begun=all(any(table.get(run.id) for run in runs) for runs in measuring),
        apart=apart,
        apart_for=apart_for,
        trunks=tuple(dict.fromkeys(one.id for runs in measuring for run in runs for one in trunks.shared_by(run))),
        continued=any(trunks.trunks_of(run) for runs in measuring for run in runs),
    )


def _rows(table: Measurements, claim: Claim, cell: Cell) -> BySeed:
    """The measurements of a side by seed; with ``against`` the score minus that of the simple method."""
    rows = dict(table.of(cell, claim.metric))
    if RELATIONS[claim.relation].counts_silent:
        rows |= table.silent(cell, claim.metric)
    if not claim.against:
        return rows
    simple = table.of(cell, claim.against)
    return {seed: row._replace(value=row.value - simple[seed].value) for seed, row in rows.items() if seed in simple}


def _sample(table: Measurements, claim: Claim, cells: Sequence[Cell], compared: Compared) -> Sample:
    values = tuple(tuple(side.values()) for side in compared.values)
    named = variances.names([*table.cells, *table.means], lambda cell: _rows(table, claim, cell))
    keys = tuple(named[cell.label] for cell in cells)
    if claim.metric in EXACT:
        return Sample(keys, values, known=dict.fromkeys(keys, NO_EXAMPLES))
    groups = variances.samples(table, cells, lambda cell: _rows(table, claim, cell))
    return Sample(keys, values, groups, scores=scores(compared.runs, claim.metric, table, claim.against))


def measuring_runs(cell: Cell, metric: str) -> tuple[Run, ...]:
    """The runs that measure a metric: those on a task for ``<task>.<metric>`` and averages, else pretrainings."""
    task = metric.partition(".")[0]
    return cell.finetunings if metric in DERIVED else tuple(r for r in cell.children if r.task == task) or cell.runs


def _outcome(run: Run, table: Measurements) -> str:
    """How a run ended without a result, or the run that it starts from; empty if neither did."""
    records = [table.get(member.id) for member in run.lineage]
    return next((record.outcome for record in records if record and record.outcome in _LOST), "")


def _has_ended(run: Run, table: Measurements) -> bool:
    record = table.get(run.id)
    return bool((record is not None and record.final) or _outcome(run, table))


def _lost(runs: Sequence[Run] | Any, table: Measurements) -> tuple[str, ...]:
    ended: dict[str, int] = {}
    for outcome in filter(None, (_outcome(run, table) for run in runs)):
        ended[outcome] = ended.get(outcome, 0) + 1
    return tuple(f"{count} run{'s' * (count > 1)} {outcome}" for outcome, count in sorted(ended.items()))


def _behind(measuring: Sequence[Sequence[Run]], compared: Compared) -> tuple[str, ...]:
    used = (run for runs, side in zip(measuring, compared.sides, strict=True) for run in runs if run.seed in side)
    return tuple(dict.fromkeys(member.id for run in used for member in run.lineage))


def _apart(claim: Claim, cells: Sequence[Cell], measuring: Sequence[Sequence[Run]]) -> tuple[Reason, str]:
    """Why these cells do not compare: they are one model, their losses are of different texts, or questions differ.

    An interaction subtracts differences, each of which is within one text: text with a property and its control.
    """
    compared = [] if claim.against else RELATIONS[claim.relation].compared(len(cells))
    if any(measuring[a] and measuring[a] == measuring[b] for a, b in compared):
        return Reason.UNTESTABLE, "two sides are the same runs"
    if not all(one_text((cells[a], cells[b]), claim.metric) for a, b in compared):
        return Reason.TEXT, "the held-out texts of the sides differ, so their losses do not compare"
    if claim.metric not in EXACT and trunks.ask_different_questions(measuring):
        return Reason.QUESTION, f"one side is {trunks.WORD}, the other starts {trunks.FROM_SCRATCH}"
    return Reason.NONE, ""


@dataclass(frozen=True)
class Computing:
    """The cost of the runs behind a verdict, parents included, trunks apart: several verdicts share them.

    Attributes:
        runs: Distinct runs with a record.
        seconds: Training time, summed over runs, simultaneous ones too.
        flops: Floating-point operations of training.
    """

    runs: int = 0
    seconds: float = 0.0
    flops: float = 0.0


def computing(ids: Sequence[str], table: Measurements) -> Computing:
    """The cost of runs, each counted once."""
    records = [record for id in dict.fromkeys(ids) if (record := table.get(id)) is not None]
    seconds, flops = (sum(record.cost.get(key, 0.0) for record in records) for key in ("seconds", "flops"))
    return Computing(len(records), seconds, flops)


def names(claim: Claim, cells: Sequence[Cell]) -> tuple[str, ...]:
    """``masking rate 40 %`` and ``15 %``: the names of the sides by the values of their cells; later ones are short.

    A claim names its sides by published values; where a small scale has stand-ins, the name has both:
    ``num_layers 4 (for 12)``. Later sides leave out what all sides share.
    """
    sides, theirs = [dict(side) for side in claim.asked], [""] * len(claim.asked)
    shared = _shared(sides) if len(sides) > 2 else set()
    for n, (side, cell) in enumerate(zip(sides, cells, strict=False)):
        named = side.keys() - (shared if n else set())
        stood_for = [value_text(path, cell.printed[path]) for path in side if path in cell.printed and path in named]
        theirs[n] = f" (for {', '.join(stood_for)})" if stood_for else ""
        side |= {path: cell.values[path] for path in side}
    first = cell_text(sides[0]) + theirs[0]
    if claim.against:
        simple = {metric: f"the {name}" for name, metric in compared(claim.metric).items()}
        return first, simple.get(claim.against, claim.against)
    later = [{path: value for path, value in side.items() if path not in shared} for side in sides[1:]]
    alike = all(side.keys() == sides[0].keys() for side in sides)
    has_one_axis = alike and len(sides[0]) - len(shared) == 1
    short = [value_text(*next(iter(side.items()))) if has_one_axis else cell_text(side) for side in later]
    return first, *(text + their for text, their in zip(short, theirs[1:], strict=True))


def _shared(sides: Sequence[dict[str, Any]]) -> set[str]:
    first, *others = sides
    return {path for path in first if all(path in side and same(side[path], first[path]) for side in others)}
