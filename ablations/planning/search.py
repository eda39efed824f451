"""The search of each cell of a grid: its combinations, its seeds, and its choice.

A search sweeps over all combinations, the same for every cell (Lan et al. 2019 and Liu et al. 2019 print theirs in a
table; most papers print only the winner). It chooses by its own seeds and by no seed of an evaluation: the best of
several noisy means is optimistic, so a seed that chose must not also judge.
"""

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ablations.core.store import Lookup
from ablations.measurements.derived import DERIVED
from ablations.measurements.measurements import indexed, is_silent, measured
from ablations.planning.cells import Values
from ablations.schema.cell import Trial
from ablations.schema.grid import FINETUNING, FIRST_SEARCH_SEED, VALIDATION, Grid, Search
from ablations.schema.metrics import better
from ablations.schema.run import Run
from lightning_modules.system import System
from lightning_modules.tasks import TASKS

ONLY_TRIALS = (
    "is for the trials of a search, 'search: {set: {finetuning.validation_share: 0.1}}': runs that are compared are "
    "scored on the dev set"
)


def search_at(grid: Grid, scale: str) -> Search | None:
    """The search of a grid's cells at a scale; None without a search."""
    own = grid.scales[scale].search if scale in grid.scales else None
    if grid.search is None or own is None:
        return None
    axes = {path: own.axes.get(path, values) for path, values in grid.search.axes.items()}
    changes = {"axes": axes, "seeds": own.seeds or grid.search.seeds, "length": own.length or grid.search.length}
    changes["extend"] = grid.search.extend if own.extend is None else own.extend
    return grid.search.model_copy(update=changes)


def combinations(search: Search) -> list[Values]:
    """The combinations that a search tries; the last knob varies fastest.

    >>> combinations(Search(axes={"optimizer.peak_lr": (1e-3, 3e-3)}, metric="heldout.loss"))
    [{'optimizer.peak_lr': 0.001}, {'optimizer.peak_lr': 0.003}]
    """
    return [dict(zip(search.axes, values, strict=True)) for values in itertools.product(*search.axes.values())]


def beyond(search: Search, tried: Sequence[Values], best: int) -> Values | None:
    """The combination that a cell tries next, one step beyond an end of a range at which its best lies.

    A step multiplies by as much as the last one towards that end, rounded to three digits; the other knobs stay at
    their best values. The first knob of the file that is at an end goes first.

    >>> search = Search(axes={"optimizer.peak_lr": (1e-3, 2e-3)}, metric="heldout.loss", extend=1)
    >>> beyond(search, combinations(search), best=1)
    {'optimizer.peak_lr': 0.004}

    Args:
        search: From `search_at`.
        tried: Its combinations, and what was tried beyond them.
        best: The place of the best of these.

    Returns:
        None if the best lies within all ranges, or as many were tried as the search allows.
    """
    if len(tried) - len(combinations(search)) >= search.extend:
        return None
    chosen = tried[best]
    for path in extendable(search):
        others = {**chosen, path: None}
        row = sorted(values[path] for values in tried if {**values, path: None} == others)
        for end in (row, row[::-1]):
            if chosen[path] == end[-1]:
                return {**chosen, path: _next(*end[-2:])}
    return None


def extendable(search: Search) -> list[str]:
    """The knobs whose range goes on: two positive numbers or more."""
    return [
        path
        for path, values in search.axes.items()
        if len(values) > 1
        and all(isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 for value in values)
    ]


def farthest(search: Search) -> list[Values]:
    """The last combinations that a search may try beyond the ends of its ranges."""
    first, found = combinations(search)[0], []
    for path in extendable(search) if search.extend else ():
        row = sorted(search.axes[path])
        for before, end in (row[-2:], row[1::-1]):
            for _ in range(search.extend):
                before, end = end, _next(before, end)
            found.append({**first, path: end})
    return found


def _next(before: float, end: float) -> float:
    """The number that follows two of a geometric sequence; whole after whole ones."""
    value = float(f"{end * end / before:.3g}")
    return max(1, round(value)) if isinstance(before, int) and isinstance(end, int) else value


def validation_share(search: Search) -> float | None:
    """The share of the training examples on which trials are scored; None if they are scored on the dev set."""
    return next((value for path, value in search.set.items() if is_validation(path)), None)


def is_validation(path: str) -> bool:
    """Whether a knob says on what trials are scored, for all tasks or for one."""
    return path.startswith(FINETUNING) and path.rpartition(".")[2] == VALIDATION


def shortened(system: System, search: Search) -> System:
    """The system of a trial: trained for the search's share of the steps, and probed only where a probe chooses."""
    steps = max(1, round(search.length * system.training.steps))
    probes = system.evaluation.probes if search.metric.startswith("probes.") else ()
    return system.model_copy(
        update={
            "training": system.training.model_copy(update={"steps": steps}),
            "evaluation": system.evaluation.model_copy(update={"probes": probes}),
        }
    )


def seeds(search: Search) -> range:
    """The seeds of a search; no evaluation has them."""
    return range(FIRST_SEARCH_SEED, FIRST_SEARCH_SEED + search.seeds)


def tasks_behind(metric: str, tasks: Iterable[str]) -> tuple[str, ...]:
    """The tasks that a metric needs fine-tuning on; none for metrics of pretraining."""
    if metric in DERIVED:
        return tuple(task for task in tasks if not DERIVED[metric].tasks or task in DERIVED[metric].tasks)
    name = metric.partition(".")[0]
    return tuple(task for task in tasks if task == name and task in TASKS)


@dataclass(frozen=True)
class Score:
    """The score of one combination.

    Attributes:
        mean: Mean of the metric over the seeds that have it; None if no seed has it.
        n: Number of seeds with the metric.
        lost: Seeds that will never have it: their run, or its parent, diverged, is invalid, or
            answers every dev example alike.
        unended: Runs that are not final: not made yet, or made again on a rerun.
        unmeasured: Seeds with runs that are done but lack the metric.
    """

    mean: float | None
    n: int
    lost: int
    unended: tuple[Run, ...]
    unmeasured: tuple[int, ...]

    @property
    def is_known(self) -> bool:
        """Whether the score can be compared with others."""
        return not self.unended and not self.unmeasured


def score(trial: Trial, metric: str, records: Lookup) -> Score:
    """The score of a combination by the records."""
    ends = [(run, _end(run, records)) for run in trial.work]
    lost = {run.seed for run, end in ends if end == "lost"}
    unended = tuple(run for run, end in ends if not end)
    rows = indexed(tuple(measured(trial, records))).get((trial.label, metric), {})
    values = {seed: row.value for seed, row in rows.items() if seed not in lost}
    unmeasured = sorted({run.seed for run in trial.runs} - values.keys() - lost - {run.seed for run in unended})
    mean = statistics.fmean(values.values()) if values else None
    return Score(mean, len(values), len(lost), unended, tuple(unmeasured))


def _end(run: Run, records: Lookup) -> Literal["done", "lost", ""]:
    record = records.get(run.id)
    if record is not None and record.final:
        return "done" if record.outcome == "done" and not is_silent(record, run.task) else "lost"
    return "lost" if any(_end(parent, records) == "lost" for parent in run.by_role.values()) else ""


def choose(trials: Sequence[Trial], search: Search, records: Lookup) -> int | None:
    """The index of the best combination; None until all runs of all combinations are final.

    Fewest lost seeds first, since a diverged run is worse than any other; then the best mean; among equals the first
    in the file.
    """
    scores = [score(trial, search.metric, records) for trial in trials]
    if not all(score.is_known for score in scores):
        return None
    sign = -1 if better(search.metric) == "higher" else 1
    return min(range(len(scores)), key=lambda n: (scores[n].lost, sign * (scores[n].mean or 0.0)))
