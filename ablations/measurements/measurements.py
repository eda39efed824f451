"""The table of measurements: one row per cell, run and metric. Everything printed comes from it.

Lookups by cell and metric give only runs that are ``done``; other runs have rows too, with their outcome.
"""

import copy
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ablations.core.disk.bars import Bar, Bars
from ablations.core.store import Lookup
from ablations.measurements.derived import DERIVED
from ablations.measurements.layer_metrics import LAYER_METRICS
from ablations.measurements.mean_of_two import mean_of_two
from ablations.measurements.probe_metrics import gains
from ablations.measurements.selection import mean_cells, paths_of
from ablations.schema.cell import Cell, Trial
from ablations.schema.grid import Grid
from ablations.schema.metrics import ASKED_OF, COST, PLATEAU
from ablations.schema.record import Record
from ablations.schema.run import Run
from lightning_modules.config import ConfigError, canonical
from lightning_modules.data.baselines.bigram import prefix
from lightning_modules.tasks import TASKS, Task
from lightning_modules.tasks.measured_baselines import references
from lightning_modules.tasks.scores.kept import PROBABILITY, unpack
from lightning_modules.tasks.validation import examples
from lightning_modules.zero_shot.settings import Measurement as Asked
from lightning_modules.zero_shot.task import SAME_TOKENS

_ANSWER = "answer"


class Completed(NamedTuple):
    """Records with the metrics that their answers give.

    Attributes:
        records: All records by run.
        computed: Metric -> how many records got it.
        absent: Metric -> how many records lack it because the dev examples are not available, or are others.
    """

    records: dict[str, Record]
    computed: Counter[str]
    absent: Counter[str]


def completed(records: Mapping[str, Record]) -> Completed:
    """Adds the metrics of its task that a record lacks and its answers give.

    Reads the dev examples, and only where a metric is missing. A record stays as it is where they are not available,
    or where they and its answers do not give what it says of right and wrong.
    """
    dev: dict[tuple[str, float | None], Any] = {}
    found, counts, absent = dict(records), Counter[str](), Counter[str]()
    for id, record in records.items():
        task = TASKS.get(str(record.config.get("task"))) if record.kind == "finetune" else None
        if task is None or _ANSWER not in record.examples or record.metrics.keys() >= set(_names(task)):
            continue
        try:
            run = record.run()
            assert run.finetuning is not None
            tuning = run.finetuning
            key = (task.name, tuning.validation_share)
            if key not in dev:
                dev[key] = None  # unless they can be read
                dev[key] = examples(task.name, "dev", tuning.validation_share)
            added = _computed(record, task, dev[key])
            simple = references(*key, tuning.train_examples, run.seed) if added else {}
        except ConfigError:
            added, simple = {}, {}
        metrics = {**simple, **added, **record.metrics}  # what was recorded stays
        absent.update(set(_names(task)) - metrics.keys())
        counts.update(metrics.keys() - record.metrics.keys())
        found[id] = record.model_copy(update={"metrics": metrics})
    return Completed(found, counts, absent)


def _names(task: Task) -> list[str]:
    """The metrics that a record of a task has: its own, and that of the majority class."""
    return [f"{task.name}.{metric}" for metric in (*task.metrics, f"{task.main}.majority")]


def _computed(record: Record, task: Task, dev: Any) -> dict[str, float]:
    """The metrics of a record; none where the examples are not those that it answers."""
    answers = unpack(record.examples[_ANSWER])
    if dev is None or len(answers) != len(dev):
        return {}
    scored = task.shape.score(answers, dev, task.metrics)
    if any(scored.kept.get(name) != packed for name, packed in record.examples.items() if name != PROBABILITY):
        return {}
    return {f"{task.name}.{metric}": value for metric, value in scored.metrics.items()}


SEVERAL = " and "  # between the devices of the fine-tunings behind an average
_NO_BARS = Bars(None)
STREAM = "heldout_stream"  # the task that reads a held-out stream
SILENT = "all outputs equal"  # of a fine-tuning that answers every dev example alike: an outcome, not a score


class Measurement(NamedTuple):
    """One number of one run.

    Attributes:
        cell: The label of the cell.
        seed: The seed of the run.
        run: Its id; for an average over tasks that of the pretraining.
        task: The task of a fine-tuning or measurement; empty for pretrainings and averages.
        outcome: How the run ended; ``SILENT`` for one that answers every example of its task alike.
        device: Its device class.
        floor: Whether the cell's pretraining from this seed is at the floor. None if it has not finished or nobody can
            know (`at_floor`), and for costs, which do not depend on it.
        metric: The name of the metric; costs begin with ``cost.``.
        value: In the metric's unit.
    """

    cell: str
    seed: int
    run: str
    task: str
    outcome: str
    device: str
    floor: bool | None
    metric: str
    value: float


BySeed = Mapping[int, Measurement]


class Measurements:
    """The measurements of a grid's cells.

    Args:
        grid: The grid.
        cells: Its cells at a scale, the baseline first.
        records: Gives the records of their runs; each is looked up once.

    Attributes:
        means: The rows of the grid's ``means``, which are no cells.
        apart: Row of ``means`` -> why some of its fine-tunings give no mean, one sentence each.
        computed: Metrics that are computed from the answers in records -> how many records lacked them.
        absent: Metrics that could be, but whose dev examples are not available -> how many records lack them.
    """

    def __init__(self, grid: Grid, cells: Iterable[Cell], records: Lookup) -> None:
        self.grid, self.cells = grid, tuple(cells)
        by_id = {id: records.get(id) for id in dict.fromkeys(_ids(self.cells))}
        known = {id: record for id, record in by_id.items() if record is not None}
        self._records, self.computed, self.absent = completed(known)
        self._sums, self._bars = getattr(records, "sums", _no_sums), Bars(getattr(records, "folder", None))
        self.rows = tuple(row for cell in self.cells for row in measured(cell, self._records, self._bars))
        self.means = tuple(mean_cells(grid, self.cells))
        self.apart: dict[str, list[str]] = {}
        own = (*self.rows, *(row for cell in self.means for row in self._rows_of_mean(cell)))
        self._index, self._silent = indexed(own), indexed(own, SILENT)

    def _rows_of_mean(self, cell: Cell) -> Iterator[Measurement]:
        """The rows of a mean of two cells; its records are computed here."""
        pairs: dict[tuple[int, str], list[Run]] = {}
        for run in cell.finetunings:
            pairs.setdefault((run.seed, run.task), []).append(run)
        for (seed, task), runs in pairs.items():
            records = [record for run in runs if (record := self._records.get(run.id)) and record.outcome == "done"]
            if len(records) < 2:
                continue
            try:
                mean = mean_of_two(records[0], records[1], task)
            except ConfigError as error:
                self.apart.setdefault(cell.label, []).append(f"seed {seed}: {error.problems[0]}")
                continue
            name = SEVERAL.join(record.id for record in records)
            device = SEVERAL.join(sorted({device_class(record) for record in records}))
            self._records[name] = mean
            outcome = SILENT if is_silent(mean, task) else "done"
            where = Measurement(cell.label, seed, name, task, outcome, device, None, "", 0)
            yield from (where._replace(metric=metric, value=float(value)) for metric, value in mean.metrics.items())

    def of(self, cell: Cell, metric: str) -> BySeed:
        """The measurements of a metric in a cell's finished runs, by seed.

        Of a method without a network they are those on the tokens that the model predicts, where records have them.
        """
        found = self._index.get((cell.label, metric), {})
        same = self._index.get((cell.label, f"{metric}{SAME_TOKENS}"))
        return {**found, **same} if same else found

    def silent(self, cell: Cell, metric: str) -> BySeed:
        """The measurements of a metric in a cell's fine-tunings that answer every dev example alike, by seed."""
        return self._silent.get((cell.label, metric), {})

    def of_trial(self, trial: Trial, metric: str) -> BySeed:
        """The measurements of a metric in the finished runs of a search's combination, by seed."""
        return indexed(self.rows_of(trial)).get((trial.label, metric), {})

    def rows_of(self, trial: Trial) -> tuple[Measurement, ...]:
        """Every row of a search's combination."""
        return tuple(measured(trial, self._records, self._bars))

    def sums(self, run_id: str) -> Mapping[str, Any] | None:
        """The held-out losses of a run by sequence, as `Records.sums` gives them; None if none were kept."""
        return self._sums(run_id)

    def bars(self, cell: Cell) -> Mapping[str, Bar]:
        """Metric -> what counting reaches on the words that it asks for, as far as bars are kept with the records.

        A held-out stream that is read once more as a whole asks for the same words.
        """
        found = {bar.metric: bar for bar in self._bars.of(cell.runs[0]).values()} if cell.runs else {}
        read = [run.measuring or Asked() for run in cell.zero_shot if run.task == STREAM]
        if (bar := found.get("heldout.next_loss")) and read and not any(one.lead or one.examples for one in read):
            found[f"{STREAM}.loss"] = bar
        return found

    def floors(self, cell: Cell) -> int:
        """How many of a cell's finished pretrainings are at the floor."""
        return sum(bool(at_floor(cell, record, self._bars)) for record in self.finished(cell).values())

    @property
    def looks(self) -> tuple[int, ...]:
        """The numbers of seeds at which claims are judged."""
        fixed = max((cell.looks for cell in self.cells), key=len, default=())
        return fixed or (max((len(cell.planned) for cell in self.cells), default=1) or 1,)

    def at_look(self, look: int) -> "Measurements":
        """The measurements of the seeds of a look, from 1: later seeds never enter what an earlier look decides."""
        count = self.looks[look - 1]
        chosen = copy.copy(self)
        chosen.cells = tuple(_first_seeds(cell, count) for cell in self.cells)
        chosen.means = tuple(mean_cells(self.grid, chosen.cells))
        seeds = {cell.label: {run.seed for run in cell.planned} for cell in (*chosen.cells, *chosen.means)}
        chosen._index, chosen._silent = (
            {key: {seed: row for seed, row in rows.items() if seed in seeds[key[0]]} for key, rows in index.items()}
            for index in (self._index, self._silent)
        )
        return chosen

    def with_values(self, metric: str, values: Mapping[str, float]) -> "Measurements":
        """The same measurements with other values of a metric, run id -> value, such as those earlier on its curve.

        A cell with a finished run that has none is left out, as a mean over the others would flatter it. Losses by
        sequence are those of the end of a training, and are left out too.
        """
        changed = copy.copy(self)
        changed._sums = _no_sums
        changed._index = dict(self._index)
        for cell in self.cells:
            rows = self._index.get((cell.label, metric), {})
            known = all(row.run in values for row in rows.values())
            changed._index[cell.label, metric] = {
                seed: row._replace(value=values[row.run]) for seed, row in rows.items() if known
            }
        return changed

    def values(self, cell: Cell, metric: str) -> dict[int, float]:
        """The values of a metric in a cell's finished runs, by seed."""
        return {seed: row.value for seed, row in self.of(cell, metric).items()}

    def finished(self, cell: Cell, task: str = "") -> dict[int, Record]:
        """The records of a cell's finished pretrainings by seed, or of what was done with them on a task."""
        return finished(cell, self._records, task)

    def get(self, run_id: str) -> Record | None:
        """The record of a run of the cells or their searches, or of a run that these start from."""
        return self._records.get(run_id)

    def in_order(self) -> "Measurements":
        """The same measurements with the cells in the order of tables: numbers ascend, names keep the plan's order."""
        ordered = copy.copy(self)
        ordered.cells = tuple(_in_order(self.cells))
        return ordered


def _no_sums(run_id: str) -> None:
    return None


def _first_seeds(cell: Cell, count: int) -> Cell:
    kept = {run.seed for run in cell.planned[:count]}
    if len(kept) == len(cell.planned):
        return cell
    parts = {name: tuple(run for run in getattr(cell, name) if run.seed in kept)
             for name in ("runs", "finetunings", "zero_shot", "awaited")}  # fmt: skip
    return cell.model_copy(update=parts)


def _ids(cells: tuple[Cell, ...]) -> Iterator[str]:
    for cell in cells:
        for run in (*cell.work, *(run for trial in cell.search for run in trial.work)):
            yield from (member.id for member in run.lineage)


def device_class(record: Record) -> str:
    """The device of a run, as one comparable word."""
    device = record.provenance.get("device", "")
    return device if isinstance(device, str) else canonical(device)


def finished(trial: Trial, records: Lookup, task: str = "") -> dict[int, Record]:
    """The records of the finished pretrainings of a cell or trial by seed, or of what was done with them on a task."""
    runs = [run for run in trial.children if run.task == task] if task else list(trial.runs)
    if trial.system.checkpoint and not task:  # nothing is pretrained: a seed is finished when its fine-tunings are
        known = [(run.seed, records.get(run.id)) for run in trial.children]
        waiting = {seed for seed, record in known if record is None or record.outcome != "done"}
        runs = [run for run in runs if run.seed not in waiting]
    by_seed = {run.seed: records.get(run.id) for run in sorted(runs, key=lambda run: run.seed)}
    return {seed: record for seed, record in by_seed.items() if record is not None and record.outcome == "done"}


def on_plateau(trial: Trial, record: Record) -> bool | None:
    """Whether a pretraining of a cell or trial is no better than the bigram baseline.

    None where nobody can know. Held-out text asks for single pieces. A model that hid words or spans never had to
    predict a piece of a word whose other pieces it sees.
    """
    return _told(trial, bool(record.metrics.get(PLATEAU, False)))


def _told(trial: Trial, flat: bool) -> bool | None:
    masked = trial.system.objectives.mlm
    return None if flat and masked and masked.masking.units.kind != "pieces" else flat


def at_floor(trial: Trial, record: Record, bars: Bars) -> bool | None:
    """Whether no held-out loss of a pretraining of a cell or trial is better than what counting reaches.

    Where no bar of a loss is kept, it is compared with the bigram baseline. None as for `on_plateau`.
    """
    kept = bars.of(trial.runs[0]) if trial.runs else {}
    if not kept:
        return on_plateau(trial, record)
    kinds = [f"heldout.{prefix(target)}" for target in trial.system.heldout_objective.targets]
    levels = {bar.metric: bar.level for bar in kept.values()}
    flat = all(
        record.metrics[f"{kind}loss"] > levels.get(f"{kind}loss", record.metrics.get(f"{kind}bigram_loss", math.inf))
        for kind in kinds
        if f"{kind}loss" in record.metrics
    )
    return _told(trial, flat)


def measured(trial: Trial, records: Lookup, bars: Bars = _NO_BARS) -> Iterator[Measurement]:
    """Every row of one cell or trial: its pretrainings, its fine-tunings, averages over these, its measurements."""
    pretrained = finished(trial, records)
    flags = {seed: at_floor(trial, record, bars) for seed, record in pretrained.items()}
    for run in trial.work:
        record = records.get(run.id)
        if record is not None:
            how = SILENT if is_silent(record, run.task) else record.outcome
            named = (trial.label, run.seed, run.id, run.task)
            where = Measurement(*named, how, device_class(record), flags.get(run.seed), "", 0)
            yield from record_rows(where, record)
            for metric, value in bars.of_methods(record).items():
                yield where._replace(metric=metric, value=value)
            yield from _trained_question(trial, where, record)
    if trial.finetunings:
        yield from _averages(trial, records, flags)


def _trained_question(trial: Trial, where: Measurement, record: Record) -> Iterator[Measurement]:
    """The scores of a pretraining on the question about pairs that its sentence objective asks, by one name for all."""
    asked = ASKED_OF.get(trial.system.format.negatives) if trial.system.objectives.sentence else None
    if asked is None or where.task:
        return
    for name in ("accuracy", "majority"):
        value = record.metrics.get(f"heldout.{asked}_{name}")
        if value is not None:
            yield where._replace(metric=f"heldout.sentence_{name}", value=float(value))


def is_silent(record: Record, task: str) -> bool:
    """Whether a record is of a finished run that answers every example of its task alike."""
    return record.outcome == "done" and bool(task) and bool(record.metrics.get(f"{task}.all_equal"))


def record_rows(where: Measurement, record: Record) -> Iterator[Measurement]:
    """The rows of one record; they differ only in metric, value and floor."""
    for metric, value in _metrics(record).items():
        floor = None if metric.startswith(COST) else where.floor
        yield where._replace(metric=metric, value=value, floor=floor)


def _metrics(record: Record) -> dict[str, float]:
    numbers = {name: float(value) for name, value in record.metrics.items()}
    if record.layers:
        summaries = {name: of(record.layers.get(statistic, ())) for name, (statistic, of) in LAYER_METRICS.items()}
        numbers |= {name: value for name, value in summaries.items() if value is not None}
    numbers |= gains(numbers)
    return numbers | {f"{COST}{name}": float(value) for name, value in record.cost.items()}


def _averages(trial: Trial, records: Lookup, flags: Mapping[int, bool | None]) -> Iterator[Measurement]:
    """Averages over the tasks of each pretraining; they name all devices of its fine-tunings."""
    for run in trial.runs:
        children = [child for child in trial.finetunings if child.seed == run.seed]
        known = [(child, records.get(child.id)) for child in children]
        done = [
            record
            for child, record in known
            if record is not None and record.outcome == "done" and not is_silent(record, child.task)
        ]
        scores = {name: float(value) for record in done for name, value in record.metrics.items()}
        device = SEVERAL.join(sorted({device_class(record) for record in done}))
        for metric, average in DERIVED.items():
            value = average.of(scores, [child.task for child in children]) if done else None
            if value is not None:
                yield Measurement(trial.label, run.seed, run.id, "", "done", device, flags.get(run.seed), metric, value)


def indexed(rows: tuple[Measurement, ...], outcome: str = "done") -> dict[tuple[str, str], dict[int, Measurement]]:
    """The rows of runs of an outcome by cell and metric, then by seed; costs are those of pretrainings."""
    index: dict[tuple[str, str], dict[int, Measurement]] = {}
    for row in sorted(rows, key=lambda row: row.seed):
        if row.outcome == outcome and (not row.task or row.metric.startswith(f"{row.task}.")):
            index.setdefault((row.cell, row.metric), {})[row.seed] = row
    return index


def _in_order(cells: tuple[Cell, ...]) -> list[Cell]:
    paths = paths_of(cells)
    seen = {path: list(dict.fromkeys(json.dumps(cell.values.get(path)) for cell in cells)) for path in paths}

    def place(path: str, value: Any) -> float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return value if is_number else seen[path].index(json.dumps(value))

    return sorted(cells, key=lambda cell: [place(path, cell.values.get(path)) for path in paths])
