"""Makes cells of combinations: their searches, and for each seed its pretraining, fine-tunings and measurements."""

from collections.abc import Container, Sequence
from typing import Any

from ablations.core.counted import counted
from ablations.core.store import Lookup
from ablations.planning.afterwards import check_askable, examples_of, measured_at, tasks_at
from ablations.planning.cells import Values, Workshop, label, stand_ins
from ablations.planning.search import ONLY_TRIALS, beyond, choose, combinations, search_at, shortened, tasks_behind
from ablations.planning.search import seeds as seeds_of
from ablations.schema.cell import Cell, Trial
from ablations.schema.grid import FINETUNING, FIRST_SEARCH_SEED, VALIDATION, Grid, Search
from ablations.schema.run import Run, current_numerics, of_files
from lightning_modules import NUMERICS
from lightning_modules.config import ConfigError, Problem, identity
from lightning_modules.data import Data
from lightning_modules.data.pins import fingerprint as fingerprint_of
from lightning_modules.probing.table import PREFIX
from lightning_modules.probing.table import fingerprints as probes
from lightning_modules.systems import SYSTEMS
from lightning_modules.tasks import TASKS, fingerprint, fitting

_MOST_KEPT = 100_000
# Grid, scale, label and seeds -> what the cell was made from, and the cell. The pages of a folder and the calls of a
# study ask for the same cells again and again.
_known: dict[tuple[str, str, str, range], tuple[list[Any], Cell]] = {}


class Resolver:
    """Makes the cells of a grid at a scale.

    Args:
        grid: The grid.
        scale: One of its scales.
        baseline: A value for each axis; its system defines equal budgets.
        seeds: Number of evaluation seeds of a cell, judged once; None for the grid's looks.
        records: The records with the outcomes of searches.

    Attributes:
        looks: The numbers of seeds at which claims are judged.
    """

    def __init__(self, grid: Grid, scale: str, baseline: Values, seeds: int | None, records: Lookup) -> None:
        self.grid, self.scale, self.records = grid, scale, records
        self.looks = (seeds,) if seeds else grid.looks_at(scale)
        self.first_seed = grid.first_seed_at(scale)
        self.search = search_at(grid, scale)
        self._workshop = Workshop(grid, scale, baseline)
        self._tasks = {task: fingerprint(task) for task in tasks_at(grid, scale)}
        self._measured = measured_at(grid, scale)
        self._asked: dict[str, dict[str, str]] = {}  # kind of tokenizer -> task -> fingerprint
        self._texts: dict[str, str] = {}  # name -> fingerprint
        self._name = identity([grid.to_dict(), baseline])
        rows = [TASKS[task] for task in self._tasks]
        self._common = [self._tasks, rows, self.looks, dict(NUMERICS), dict(SYSTEMS)]

    def cells(self, kept: Sequence[Values], further: Container[str] = ()) -> tuple[Cell, ...]:
        """One cell per combination, with the seeds of the first look.

        Args:
            kept: The combinations.
            further: Labels of cells with the seeds of the last look.

        Raises:
            ConfigError: With every problem once, and one cell that has it.
        """
        wrong: dict[str, Problem] = {}
        cells = []
        for values in counted(kept, "planning cells"):
            try:
                count = self.looks[-1 if further and label(values) in further else 0]
                seeds = range(self.first_seed, self.first_seed + count)
                cells.append(self._searched(values, seeds, self.search) if self.search else self._kept(values, seeds))
            except ConfigError as error:
                for problem in error.problems:
                    wrong.setdefault(
                        str(problem),
                        Problem(problem.path, f"{problem.message.removesuffix('.')} (cell {label(values)})"),
                    )
        if wrong:
            raise ConfigError(wrong.values())
        return tuple(cells)

    def _kept(self, values: Values, seeds: range) -> Cell:
        """The cell of a combination, made again if a text, a data set, a system or the numerics are others."""
        key = self._name, self.scale, label(values), seeds
        before, cell = _known.get(key, (None, None))
        if (
            cell is None
            or before != [self._common, self._asking(cell.system.data)]
            or not self._is_current(cell.runs[0])
        ):
            cell = self._cell(values, seeds)
            if len(_known) >= _MOST_KEPT:
                _known.clear()
            _known[key] = [self._common, self._asking(cell.system.data)], cell
        return cell

    def _is_current(self, run: Run) -> bool:
        """Whether a pretraining has the present texts and numerics."""
        files = of_files(run.system)
        texts = all((files.get(name) or self._fingerprint(name)) == known for name, known in run.fingerprints.items())
        return texts and run.numerics == current_numerics(run.kind, run.system)

    def _fingerprint(self, name: str) -> str:
        """The present fingerprint of a corpus or of a probe."""
        if name not in self._texts:
            probe = name.removeprefix(PREFIX)
            self._texts[name] = fingerprint_of(name) if probe == name else probes((probe,))[name]
        return self._texts[name]

    def _fingerprints(self, corpora: Sequence[str]) -> dict[str, str]:
        return {name: self._fingerprint(name) for name in corpora}

    def _asking(self, data: Data) -> dict[str, str]:
        """Zero-shot task -> fingerprint of its examples, under the tokenizer of the data."""
        kind = data.tokenizer.kind
        if kind not in self._asked:
            self._asked[kind] = {task: examples_of(task, kind) for task in self._measured}
        return self._asked[kind]

    def _cell(self, values: Values, seeds: Sequence[int]) -> Cell:
        made = self._made(values, seeds, tuple(self._tasks))
        printed = stand_ins(self.grid, self.scale, values)
        return Cell(values=values, label=label(values), looks=self.looks, printed=printed, **made)

    def _searched(self, values: Values, seeds: Sequence[int], search: Search) -> Cell:
        """A cell with a search; until that is complete, the cell has no runs of its own."""
        tasks = tasks_behind(search.metric, self._tasks)

        def trial(tried: Values) -> Trial:
            made = self._made({**values, **search.set, **tried}, seeds_of(search), tasks, search)
            return Trial(values=tried, label=label({**values, **tried}), **made)

        trials = [trial(tried) for tried in combinations(search)]
        while (best := choose(trials, search, self.records)) is not None and (
            further := beyond(search, [one.values for one in trials], best)
        ):
            trials.append(trial(further))
        made = self._made({**values, **trials[best or 0].values}, seeds, tuple(self._tasks))
        chosen = {} if best is None else trials[best].values
        more: dict[str, Any] = {"search": tuple(trials), "chosen": chosen, "looks": self.looks}
        if best is None:
            more["awaited"] = (*made["runs"], *made["finetunings"], *made["zero_shot"])
            made |= {"runs": (), "finetunings": (), "zero_shot": ()}
        printed = stand_ins(self.grid, self.scale, values)
        return Cell(values=values, label=label(values), printed=printed, **made, **more)

    def _made(
        self, values: Values, seeds: Sequence[int], tasks: Sequence[str], search: Search | None = None
    ) -> dict[str, Any]:
        """The system of a combination and its runs; of a trial with a search."""
        system = self._workshop.system(values)
        if search:
            system = shortened(system, search)
        settings = {task: self._workshop.finetuning(values, task) for task in tasks}
        if system.checkpoint and not tasks:
            text = "a released checkpoint is fine-tuned, and there is no task: name some in the grid, or leave it out"
            raise ConfigError([Problem("checkpoint", text)])
        for task, tuning in settings.items():
            fitting.check(system, task, tuning)
        if seeds[0] < FIRST_SEARCH_SEED and any(tuning.validation_share for tuning in settings.values()):
            raise ConfigError([Problem(FINETUNING + VALIDATION, ONLY_TRIALS)])
        runs = tuple(Run.pretraining(system, seed, self._fingerprints(system.corpora)) for seed in seeds)
        finetunings = tuple(
            Run.finetuning_of(run, task, self._tasks[task], settings[task]) for run in runs for task in tasks
        )
        asked = {} if search else self._asking(system.data)  # a search chooses by no zero-shot task
        check_askable(system, tuple(asked))
        asking = {task: self._workshop.measuring(values, task) for task in asked}
        zero_shot = tuple(Run.measuring_of(run, task, asked[task], asking[task]) for run in runs for task in asked)
        return {"system": system, "runs": runs, "finetunings": finetunings, "zero_shot": zero_shot}
