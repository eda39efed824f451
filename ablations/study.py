"""The object for notebooks: a grid at a scale, from its plan to its published page.

Notebooks display what its methods return, terminals print it. For further work, tables hold their numbers as a
DataFrame in ``.data``, and figures are matplotlib figures.
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from ablations.claims import hypotheses, power
from ablations.claims.headline import headline
from ablations.core import formatting, strict_yaml
from ablations.core.counted import counted
from ablations.core.formatting import markdown_code, markdown_text
from ablations.core.shown import Shown
from ablations.core.store import Records
from ablations.literature import published_tables, systems
from ablations.measurements.measurements import Measurements
from ablations.measurements.summaries import runs, summary
from ablations.pages import alignment_table, equal_compute, heading, judged, runs_table, tables, task_table
from ablations.pages.lead import conclusion
from ablations.planning import filling, grids, ladder, search_text
from ablations.planning.plan import Plan, plan
from ablations.planning.recorded import at_hand
from ablations.running import estimate
from ablations.running.execute import Asked, Summary, execute_phases
from ablations.running.progress import display
from ablations.schema.cell import Cell
from ablations.schema.grid import FINETUNING, MEASURING, PARENTS, START
from ablations.schema.metrics import HELDOUT
from ablations.schema.record import Record
from lightning_modules import places
from lightning_modules.config import ConfigError, Problem, as_data, did_you_mean, diff
from lightning_modules.system import System
from lightning_modules.tasks import FineTuning
from lightning_modules.training.execution import Execution, Strategy, check_logger

if TYPE_CHECKING:
    from ablations.figures.style import Drawing


class Study:
    """A grid at a scale.

    Args:
        grid: A name from ``ablations list``, or the path of a YAML file.
        scale: One of the grid's scales, or any that has a file in ``ablations/scales``,
            unless the grid varies a size of models that this file sets.
        axes: Axis -> values instead of the grid's. None keeps the grid's; a text such as ``"[0.15, 0.4]"``, which
            papermill's ``-p`` makes of a list, also works.
        set: Knob that the grid does not vary -> its value in every cell, such as ``{"training.steps": 400}``.
        seeds: Number of seeds instead of the grid's, judged once.
        filters: Axis -> value or list of values; keeps only cells that match all.
        results_dir: The folder of records and pages, relative to the working directory. By default ``results``, or
            ``results/unpublished`` for trials and grids of one's own; see `grids.results_dir`.

    Raises:
        ConfigError: With all faults of the grid or the request.
    """

    def __init__(
        self,
        grid: str | Path,
        scale: str,
        *,
        axes: Mapping[str, Sequence[Any] | str | None] | str | None = None,
        set: Mapping[str, Any] | str | None = None,
        seeds: int | None = None,
        filters: Mapping[str, Any] | str | None = None,
        results_dir: str | Path | None = None,
    ) -> None:
        self._stated = stated = grids.read(grid)
        self.source = os.path.abspath(grid) if str(grid).endswith(grids.ENDINGS) else str(grid)
        self.grid, self.scale = filling.at(stated, scale), scale
        changed = _mapping("axes", axes)
        self._request: dict[str, Any] = {
            "axes": {path: _listed(path, values) for path, values in changed.items() if values is not None} or None,
            "set": _mapping("set", set) or None,
            "seeds": seeds,
            "filters": _mapping("filters", filters) or None,
            "look": None,
        }
        self.records = Records(results_dir or grids.results_dir(str(grid), scale))
        self.resolve()

    def at_look(self, look: int | None) -> "Study":
        """This study at a look of its grid: 2 adds the further seeds of cells whose claims are open after the first.

        Args:
            look: None is the look that the records have reached, as in a new study.

        Raises:
            ConfigError: For a look that the grid does not have, and for the second before the first is finished.
        """
        if look != self._request["look"]:
            self._request["look"] = look
            self.resolve()
        return self

    def resolve(self) -> Plan:
        """The plan for the current records."""
        self._plan = plan(self.grid, self.scale, **self._request, records=self.records)
        return self._plan

    def _check_page(self) -> None:
        """Checks that the page of this study would be that of its grid as the file has it, and of no other file."""
        if grids.read(self.source) != self._stated:
            text = "was edited since this study was opened: open it again, records of its runs stay"
            raise ConfigError([f"{grids.locate(self.source)}: {text}"])
        from ablations.pages.publishing import check_page  # half a second of matplotlib

        check_page(self.source, self.folder)

    @property
    def measurements(self) -> Measurements:
        """The measurements of the cells in the current records."""
        return Measurements(self.grid, self._plan.cells, self.records)

    @property
    def folder(self) -> Path:
        """The folder of this study's page."""
        return self.records.folder / self.grid.name / self._plan.folder_name

    def about(self, brief: bool = False) -> Shown:
        """The question, what the grid says about it, the source, and how each cell differs from the baseline.

        Args:
            brief: Whether to leave out what the grid says about it.
        """
        lines = [
            f"**{markdown_text(self.grid.question)}**",
            *filter(None, ["" if brief else self.grid.about, heading.overridden(self._plan)]),
            *([f"Published: {markdown_text(self.grid.paper)}."] if self.grid.paper else []),
        ]
        baseline = self._plan.baseline
        if baseline is not None:
            others = [cell for cell in self._plan.cells if cell.label != baseline.label]
            beside = ladder.neighbours(self._plan.cells) if self.grid.ladder else {}
            how = ", each against the one it is a rung away from" if beside else ""
            lines.append(f"Baseline: {markdown_text(baseline.label)}. The other cells change{how}:")
            compared = counted(others, "comparing cells")
            changes = ((cell.label, _against(beside.get(cell.label, baseline), cell)) for cell in compared)
            lines.append("\n".join(f"* {markdown_text(name)}: {_changes(change)}" for name, change in changes))
        lines.append(f"Equal across cells: {self.grid.budget.equal}.")
        lines += [markdown_text(line) for line in search_text.rules(self.grid, self.scale)]
        return Shown("\n\n".join(lines))

    def published(self) -> Shown:
        """The published tables of the grid, with values as the papers print them; one row per value in ``data``."""
        printed = published_tables.of_grid(self.grid)
        if not printed:
            return Shown("*The papers print no table of this question.*")
        rows = [row.to_dict() for table in printed for row in table.rows]
        return Shown("\n".join(map(published_tables.text, printed)), pd.DataFrame(rows))

    def hypotheses(self) -> Shown:
        """The claims before any run: what each states, which cells test it at this scale, what would replicate it."""
        stated = hypotheses.hypotheses(self.grid, self._plan.cells)
        if not stated:
            return Shown("*This grid tests no claim.*")
        text = "\n\n".join(filter(None, [heading.judged(self._plan), hypotheses.text(stated)]))
        return Shown(text, pd.DataFrame([hypothesis.to_dict() for hypothesis in stated]))

    def plan(
        self, devices: int = 1, num_nodes: int = 1, strategy: Strategy = "ddp", activation_checkpointing: bool = False
    ) -> Shown:
        """The cells and their cost, before any run.

        Args:
            devices, num_nodes, strategy, activation_checkpointing: As in `run`. The memory of each device is reported.
        """
        execution = Execution(devices, num_nodes, strategy, activation_checkpointing)
        planned = self.resolve()
        rows = planned.table()
        shown = pd.DataFrame({"cell": rows["cell"]})
        for name in ("parameters", "flops a token", "flops a step", "tokens a run", "flops a run"):
            source = rows[name.removesuffix(" a run")]
            shown[name.replace("flops", "FLOPs").replace(" a ", " per ")] = source.map(formatting.quantity)
            if name == "parameters" and len(set(rows["embeddings"])) > 1:
                shown["of which embeddings"] = rows["embeddings"].map(formatting.quantity)
        if len(set(rows["predictions a token"].round(9))) > 1:
            shown["predictions per step"] = rows["predictions a step"].map(formatting.quantity)
            shown["predictions per 100 tokens"] = (100 * rows["predictions a token"]).map("{:.1f}".format)
        rows["bytes a device"] = estimate.memory(counted(planned.cells, "tracing memory"), execution)
        needed = dict(zip(rows["cell"], rows["bytes a device"], strict=True))
        shown["memory per device"] = rows["bytes a device"].map(estimate.gigabytes)
        shown["time per run"] = rows["seconds a run"].map(formatting.duration)
        shown["seeds"], shown["state"] = rows["seeds"], rows["state"]
        if "search runs" in rows:
            shown["+ search"], shown["chosen"] = search_text.planned(rows), rows["chosen"]
        notes = [markdown_text(line) for line in systems.told_of(cell.system for cell in planned.cells)]
        notes += [markdown_text(f"Left out: {values}: {reason}") for values, reason in planned.excluded]
        notes[:0] = [*estimate.notes(planned, self.records), *estimate.fits(needed, execution)]
        notes += [markdown_text(note) for note in search_text.missing(planned, self.records)]
        return Shown("\n\n".join([formatting.frame_table(shown), estimate.cost(planned), *notes]), rows)

    def prospects(self) -> list[power.Prospect]:
        """What each claim can show at each look, by the noise of the finished runs at this or another scale."""
        return self._prospects()[0]

    def _prospects(self) -> tuple[list[power.Prospect], list[str]]:
        """The prospects, and the scales left out because they cannot be planned here."""
        measured, left_out = {self.scale: self.measurements}, []
        records = [record for _, record in self.records.survey() if isinstance(record, Record)]
        told = power.prospects(self.grid, self.scale, measured, records)
        if all(prospect.pilot or prospect.exact or prospect.untestable for prospect in told):
            return told, []
        for name in self.grid.scales:
            if name != self.scale:
                try:
                    cells = plan(self._stated, name, records=self.records).cells if at_hand(self._stated, name) else ()
                except ConfigError:  # a text that is neither pinned nor available
                    cells = ()
                if cells:
                    measured[name] = Measurements(self.grid, cells, self.records)
                else:
                    left_out.append(name)
        return power.prospects(self.grid, self.scale, measured, records), left_out

    def power(self) -> Shown:
        """What each claim can show at each look: the smallest visible difference, and the power of equality."""
        told, left_out = self._prospects()
        if not told:
            return Shown("*This grid tests no claim.*")
        notes = [markdown_text(f"Scale '{name}' gave no pilot: its data are not available.") for name in left_out]
        text = "\n\n".join(
            filter(None, [formatting.markdown(power.sheet(told, self.grid)), heading.judged(self._plan), *notes])
        )
        return Shown(text, pd.DataFrame([prospect.to_dict() for prospect in told]))

    def run(
        self,
        executor: Asked = "local",
        retries: int = 1,
        *,
        devices: int = 1,
        num_nodes: int = 1,
        strategy: Strategy = "ddp",
        activation_checkpointing: bool = False,
        compile_layers: bool = False,
        slice: Mapping[str, Any] | None = None,
        until: float | None = None,
        logger: str = "",
    ) -> Summary:
        """Trains missing runs; can be interrupted and resumed. Lists outcomes other than ``done``, does not raise them.

        Searches run first, then, in the same call, the runs with the chosen settings.

        Args:
            executor: ``local``: a process per core or GPU, which makes run after run; ``inline``: this process;
                ``slurm`` and ``ray``: jobs on a cluster. With options a mapping:
                ``{"kind": "slurm", "partition": "gpu"}``; ``{"kind": "local", "fresh_process": True}`` isolates runs.
            retries: How often to retry a run that failed or was killed.
            devices: GPUs, or processes on a machine without them, that share each pretraining. Its id stays the same.
            num_nodes: Machines with so many devices each that share them (``slurm``).
            strategy: What each of several devices has: ``ddp``, all weights; ``fsdp``, its part of them.
            activation_checkpointing: Whether layers of pretrainings keep their input alone and are computed again in
                the backward pass: the same numbers, less memory, a third more time.
            compile_layers: Whether transformer layers are compiled, which changes the rounding. Records say so.
            slice: The part of the plan that is trained, as in `Plan.sliced`; by default all of it.
            until: The moment of the monotonic clock at which the active runs write their checkpoints and stop. No run
                begins whose estimate ends later, unless it takes longer than all the time from now on. None for no
                limit.
            logger: ``csv``, ``tensorboard``, ``wandb`` or ``mlflow``: draws live curves of the trainings, below
                ``curves`` of the cache. It is no part of a run, and a logger that fails stops no run.

        Raises:
            ConfigError: Before any run, as `publish`; for what cannot be executed.
        """
        execution = Execution(devices, num_nodes, strategy, activation_checkpointing, compile_layers)
        if logger:
            check_logger(logger)
            execution = replace(execution, logger=logger, curves=str(places.cache() / "curves"))
        self._check_page()
        again = {**self._request, "slice": dict(slice or {})}
        how = {"retries": retries, "watch": display, "execution": execution, "until": until, "again": again}
        return execute_phases(lambda: self.resolve().sliced(slice or {}), self.records, executor, **how)

    def frame(self, *, curves: bool = False) -> pd.DataFrame:
        """Every measurement of every run, one a row, for your own analyses; ``docs/records.md`` has the columns.

        Args:
            curves: Those during pretrainings, with columns ``step`` and ``tokens``, in place of those at their end.
        """
        make = runs_table.curves if curves else runs_table.frame
        return make(self._plan.folder_name, self.measurements)

    def written(self, notation: Literal["md", "tex", "csv"]) -> str:
        """The tables of the page in Markdown or LaTeX; as CSV the rows of `frame`."""
        if notation == "csv":
            return runs_table.comma_separated(self._plan.folder_name, self.measurements)
        from ablations.pages import report  # half a second of matplotlib

        return report.rendered(self.scale, self.measurements, notation)

    def runs(self) -> pd.DataFrame:
        """One row per pretraining: knobs, seed, outcome, and a column for each metric and cost."""
        return runs(self.measurements)

    def table(self, at: str = "") -> Shown:
        """One row per cell: means with intervals, differences to the baseline, published values.

        Args:
            at: ``steps``, ``tokens``, ``flops`` or ``seconds``: shows held-out losses at equal amounts of it instead.
        """
        if at:
            sheet = equal_compute.single(self.measurements, _unit(at))
            return Shown(formatting.markdown(sheet), pd.DataFrame(self.at_equal(at)))
        measured = self.measurements
        return Shown(formatting.markdown(tables.results(measured)[0]), summary(measured))

    def at_equal(self, at: str) -> list[dict[str, Any]]:
        """The numbers of `table(at)`, one row per cell."""
        return equal_compute.compare(self.measurements, _unit(at)).to_dicts()

    def tasks(self) -> Shown:
        """Downstream tasks one by one: spread over seeds, degenerate runs, the vote of all seeds."""
        sheets = task_table.per_task(self.measurements)
        if not sheets:
            some = any(cell.finetunings for cell in self._plan.cells)
            return Shown(f"*{'No fine-tuning has finished' if some else 'This grid fine-tunes no model'}.*")
        return Shown(formatting.markdown(sheets[0]), _unrounded(sheets[1]))

    def claims(self) -> Shown:
        """The claims and their verdicts."""
        verdicts = judged.verdicts(self.scale, self.measurements)
        if not verdicts:
            return Shown("*This grid tests no claim.*")
        sentences = "\n".join(
            f"* *{markdown_text(verdict.claim.statement)}* {markdown_text(verdict.sentence)}" for verdict in verdicts
        )
        reading, numbers, _ = tables.claims(verdicts)
        return Shown(sentences + "\n\n" + formatting.markdown(reading), _unrounded(numbers))

    def aligned(self) -> Shown:
        """What claims about losses compare, at equal tokens, FLOPs and multiples of the crossing: speed or quality?"""
        sheets = alignment_table.sheets(judged.verdicts(self.scale, self.measurements))
        if not sheets:
            return Shown("*No claim with finished runs compares losses along their curves.*")
        return Shown(formatting.markdown(sheets[0]), _unrounded(sheets[1]))

    def figure(self) -> "Drawing | Shown":
        """The main metric over the knob, with published values below on axes of their own."""
        return self._drawn("knob")

    def curves(self, metric: str = "") -> "Drawing | Shown":
        """Held-out loss over training tokens: by default the first that the grid asks for, or that of another kind."""
        return self._drawn("curves", metric=metric)

    def layers(self) -> "Drawing | Shown":
        """How far each layer moves its input (Lan et al. 2020, Figure 1)."""
        return self._drawn("layers")

    def pictures(self, folder: str | Path, ending: Literal["png", "pdf"] = "png", *, slide: bool = False) -> list[str]:
        """Writes the figures of the page as ``<grid>-<scale>-<figure>.png`` or ``.pdf``; returns their paths.

        Args:
            folder: Where to; made if missing.
            slide: 16:9 with larger letters, for a talk.

        Raises:
            ConfigError: If no run has finished that a figure could show.
        """
        from ablations.figures import grid_figures

        written: list[str] = []
        for name in grid_figures.FIGURES:
            drawn = self._drawn(name, **({"brief": True} if slide and name == "knob" else {}))
            if not isinstance(drawn, Shown):
                path = Path(folder) / f"{self.grid.name}-{self._plan.folder_name}-{name}.{ending}"
                written.append(str(grid_figures.save(grid_figures.for_slide(drawn) if slide else drawn, path)))
        if not written:
            where = f"{self.grid.name} at scale {self.scale}"
            raise ConfigError([Problem(where, "no run has finished that a figure could show. Train it first: "
                                              f"ablations run {self.grid.name} --scale {self.scale}")])  # fmt: skip
        return written

    def _drawn(self, name: str, **options: Any) -> "Drawing | Shown":
        from ablations.figures import grid_figures

        measured = self.measurements
        verdicts = judged.verdicts(self.scale, measured)
        quoted = conclusion.quoted(conclusion.stated(self._plan), measured, verdicts)
        answer = headline(measured, verdicts, quoted)
        drawn = grid_figures.draw(name, measured, heading.subtitle(self._plan, measured), answer, **options)
        if drawn is not None:
            return drawn
        some = any(measured.finished(cell) for cell in measured.cells)
        return Shown(f"*Nothing to draw: {'the runs measure nothing of the kind' if some else 'no run has finished'}.*")

    def tokens_to_reach(self, loss: float | None = None) -> Shown:
        """How many training tokens each cell needs to reach a held-out loss.

        Args:
            loss: In nats; by default the highest final loss, which every run reaches.
        """
        measured = self.measurements
        finals = [value for cell in measured.cells for value in measured.values(cell, HELDOUT[0]).values()]
        if not finals:
            return Shown("*No run has finished.*")
        target = math.ceil(max(finals) * 100) / 100 if loss is None else loss
        rows = tables.tokens_to_reach(measured, target)
        shown = pd.DataFrame({"cell": rows["cell"]})
        ended = zip(rows["reached"], rows["done"], strict=True)
        shown["reached it"] = [f"{reached} of {done}" for reached, done in ended]
        shown[f"tokens to a held-out loss of {target:.2f} nats"] = [_tokens(row) for row in rows.itertuples()]
        return Shown(formatting.frame_table(shown), rows)

    def publish(self) -> Shown:
        """Writes the page of this study, and the index of all pages.

        Raises:
            ConfigError: If the grid's file was edited since the study was opened, or another file of the same name has
                the page.
        """
        from ablations.pages.publishing import publish

        self._check_page()
        written = publish(self.source, self.resolve(), self.records)
        lines = "\n".join(f"* {markdown_code(_shown_path(path))}" for path in written.values())
        return Shown(f"Written:\n\n{lines}")


def _unit(name: str) -> str:
    if name not in equal_compute.UNITS:
        raise ConfigError([Problem("at", f"'{name}' is no unit.{did_you_mean(name, equal_compute.UNITS)}")])
    return name


def _mapping(name: str, request: Mapping[str, Any] | str | None) -> dict[str, Any]:
    if isinstance(request, str):  # papermill's -p
        request = strict_yaml.value(request)
    if request is None:
        return {}
    if not isinstance(request, Mapping):
        raise ConfigError(
            [Problem(name, f"must be a mapping, for example {{model.num_layers: [2, 4]}}, not {request!r}")]
        )
    return dict(request)


def _listed(path: str, values: Any) -> list[Any]:
    if isinstance(values, str):
        values = strict_yaml.value(values)
    if isinstance(values, str) and re.fullmatch(r"\(.*,.*\)", values, re.DOTALL):
        text = f"must be a list, for example [1, 2], not the text {values!r}. papermill makes such a text of a tuple"
        raise ConfigError([Problem(path, text)])
    return list(values) if isinstance(values, (list, tuple)) else [values]


def _against(baseline: Cell, cell: Cell) -> dict[str, tuple[Any, Any]]:
    """What a cell changes against the baseline, except the knobs it searches."""
    searched = {path for trial in cell.search for path in trial.values}
    changes = diff(baseline.system, cell.system) | _later_changes(baseline, cell)
    for path in [path for path in PARENTS if path in changes]:
        changes[path] = _described(path, baseline), _described(path, cell)
    return {path: both for path, both in changes.items() if path not in searched}


def _described(path: str, cell: Cell) -> str | None:
    """The training that a knob describes, by what differs from the one that has the knob; None without the knob."""
    tuning = cell.finetunings[0].finetuning if cell.finetunings else None
    tuning = tuning.resolved() if tuning else None
    described = _value(path, cell.system, tuning)
    if described is None:
        return None
    if path == START and not cell.system.resolved().get(START):
        return "none"
    own = {inner: value for inner, value in described.items() if as_data(_value(inner, cell.system, tuning)) != value}
    others = formatting.value_text(path, {inner: value for inner, value in own.items() if value not in ([], None)})
    return f"another training ({others})" if others else "another training"


def _value(path: str, system: System, tuning: FineTuning | None) -> Any:
    """The value of a knob of a pretraining, or of a fine-tuning if there is one."""
    if path in ("seed", "task"):
        return None
    if not path.startswith(FINETUNING):
        return system.get(path)
    return None if tuning is None else tuning.get(path.removeprefix(FINETUNING))


def _later_changes(baseline: Cell, cell: Cell) -> dict[str, tuple[Any, Any]]:
    """How fine-tuning differs between two cells, on the first task, and how evaluation on each zero-shot task does."""
    found: dict[str, tuple[Any, Any]] = {}
    for a, b in zip(baseline.finetunings[:1], cell.finetunings[:1], strict=False):
        if a.finetuning is not None and b.finetuning is not None:
            found |= {FINETUNING + path: both for path, both in diff(a.finetuning, b.finetuning).items()}
    asked = {run.task: run.measuring for run in baseline.zero_shot}
    for run in cell.zero_shot:
        before = asked.get(run.task)
        if before is not None and run.measuring is not None:
            changes = diff(before, run.measuring).items()
            found |= {f"{MEASURING}{run.task}.{path}": both for path, both in changes}
    return found


def _changes(change: Mapping[str, tuple[Any, Any]]) -> str:
    """The changes knob by knob; a part that one of the two lacks, such as an objective, is named as a whole."""
    groups: dict[str, dict[str, tuple[Any, Any]]] = {}
    for path, both in change.items():
        if path not in ("name", "paper"):
            groups.setdefault(".".join(path.split(".")[:2]), {})[path] = both
    texts = []
    for part, knobs in groups.items():
        old, new = zip(*knobs.values(), strict=True)
        if len(knobs) > 1 and not any(value is not None for value in new):
            texts.append(f"without {markdown_code(part)}")
        elif len(knobs) > 1 and not any(value is not None for value in old):
            settings = (markdown_text(f"{path.removeprefix(part + '.')} {value}") for path, (_, value) in knobs.items())
            texts.append(f"with {markdown_code(part)} ({', '.join(settings)})")
        else:
            texts += [
                f"{markdown_code(path)} {markdown_text(f'{before} → {after}')}"
                for path, (before, after) in knobs.items()
            ]
    return ", ".join(texts)


def _unrounded(sheet: formatting.Sheet) -> pd.DataFrame:
    return pd.DataFrame(list(sheet.rows), columns=list(sheet.headings))


def _tokens(row: Any) -> str:
    if pd.isna(row.mean):
        return "not reached by all"
    interval = "" if pd.isna(row.low) else f" [{formatting.quantity(row.low)}, {formatting.quantity(row.high)}]"
    return formatting.quantity(row.mean) + interval


def _shown_path(path: Path) -> str:
    from lightning_modules.places import project

    return str(path.relative_to(project())) if path.is_relative_to(project()) else str(path)
