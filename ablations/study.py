"""The object a notebook holds: a grid at a scale, from its plan to its published page.

What its methods return is displayed by a notebook and printed by a terminal, and is something to go on from: tables
have their numbers as a DataFrame in ``.data``, figures are matplotlib figures.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ablations.claims import hypotheses, judging, power
from ablations.core import formatting, strict_yaml
from ablations.core.metrics import HELDOUT
from ablations.core.shown import Shown
from ablations.core.store import Records
from ablations.figures import grid_figures
from ablations.figures.style import Drawing
from ablations.literature import published_tables
from ablations.measurements.summaries import frame, summary
from ablations.measurements.table import Measurements
from ablations.pages import equal_compute, report, tables, task_table
from ablations.pages.publishing import publish
from ablations.planning import grids, scales, search_text
from ablations.planning.plan import Plan, plan
from ablations.running.execute import Summary, execute_phases
from ablations.running.progress import display
from ablations.schema.cell import Cell
from ablations.schema.grid import FINETUNING
from lightning_modules.config import ConfigError, Problem, did_you_mean, diff


class Study:
    """A grid at a scale.

    Args:
        grid: A name from ``ablations list``, or the path of a YAML file.
        scale: One of the grid's scales, or any that has a file in ``ablations/scales``.
        axes: Axis -> values instead of the grid's; a value of None, or a text such as ``"[0.15, 0.4]"`` (which is
            what papermill's ``-p`` makes of a list), is understood.
        set: Knob that the grid does not vary -> its value in every cell, such as ``{"training.steps": 400}``.
        seeds: How many seeds instead of the grid's.
        filters: Axis -> value or list of values; only cells that agree with all are kept.
        results_dir: Where records and pages are kept; by default the project's ``results``. A relative path is
            relative to the project.

    Raises:
        ConfigError: With everything wrong with the grid or the request.
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
        self.source = str(grid)
        self.grid, self.scale = scales.added(grids.read(grid), scale), scale
        wanted = _mapping("axes", axes)
        self._request: dict[str, Any] = {
            "axes": {path: _listed(values) for path, values in wanted.items() if values is not None} or None,
            "set": _mapping("set", set) or None,
            "seeds": seeds,
            "filters": _mapping("filters", filters) or None,
        }
        self.records = Records(results_dir)
        self.resolve()

    def resolve(self) -> Plan:
        """The plan as the records stand now."""
        self._plan = plan(self.grid, self.scale, **self._request, records=self.records)
        return self._plan

    @property
    def measurements(self) -> Measurements:
        """What the runs of the cells have measured, as the records stand now."""
        return Measurements(self.grid, self._plan.cells, self.records)

    @property
    def folder(self) -> Path:
        """Where the page of this study is published."""
        return self.records.folder / self.grid.name / self._plan.folder_name

    def about(self) -> Shown:
        """The question, the source, and what each cell changes against the baseline."""
        lines = [
            f"**{formatting.markdown_text(self.grid.question)}**",
            *([f"Published: {formatting.markdown_text(self.grid.paper)}."] if self.grid.paper else []),
        ]
        home = self._plan.baseline
        if home is not None:
            lines.append(f"Baseline: {formatting.markdown_text(home.label)}. Against it,")
            others = (cell for cell in self._plan.cells if cell.label != home.label)
            changes = ((cell.label, _against(home, cell)) for cell in others)
            lines.append(
                "\n".join(f"* {formatting.markdown_text(name)}: {_changes(change)}" for name, change in changes)
            )
        lines.append(f"Equal across cells: {self.grid.budget.equal}.")
        lines += [formatting.markdown_text(line) for line in search_text.rules(self.grid, self.scale)]
        return Shown("\n\n".join(lines))

    def published(self) -> Shown:
        """The published tables of the grid, value by value as the papers print them; one row a value in ``data``."""
        found = published_tables.of_grid(self.grid)
        if not found:
            return Shown("*The papers print no table of this.*")
        rows = [row.to_dict() for table in found for row in table.rows]
        return Shown("\n".join(map(published_tables.text, found)), pd.DataFrame(rows))

    def hypotheses(self) -> Shown:
        """The claims before anything runs: what each says, what is compared at this scale, what would be agreement."""
        found = hypotheses.hypotheses(self.grid, self._plan.cells)
        if not found:
            return Shown("*This grid tests no claim.*")
        return Shown(hypotheses.text(found), pd.DataFrame([one.to_dict() for one in found]))

    def plan(self) -> Shown:
        """Cells and what they cost, before anything runs."""
        found = self.resolve()
        rows = found.table()
        shown = pd.DataFrame({"cell": rows["cell"]})
        for name in ("parameters", "flops a token", "flops a step", "tokens a run", "flops a run"):
            source = rows[name.removesuffix(" a run")]
            shown[name.replace("flops", "FLOPs")] = source.map(formatting.quantity)
        shown["time a run"] = rows["seconds a run"].map(formatting.duration)
        shown["seeds"], shown["state"] = rows["seeds"], rows["state"]
        if "search runs" in rows:
            shown["+ search"], shown["chosen"] = search_text.planned(rows), rows["chosen"]
        notes = [f"Left out: {values}: {reason}" for values, reason in found.excluded]
        notes += [formatting.markdown_text(note) for note in search_text.missing(found, self.records)]
        return Shown("\n\n".join([_frame_table(shown), cost_line(found), *notes]), rows)

    def needs(self) -> list[power.Need]:
        """How many seeds each claim needs, from the spread of what has finished at this or another scale.

        A request for fewer seeds or cells says what is to run; a pilot is all that has finished.
        """
        return self._needs()[0]

    def _needs(self) -> tuple[list[power.Need], list[str]]:
        """The needs, and the scales that were no help because they cannot be planned here."""
        planned = max((len(cell.planned) for cell in self.resolve().cells), default=0)
        usual = self.grid.scales[self.scale].seeds or self.grid.seeds
        whole = self._request | {"filters": None, "seeds": max(planned, usual)}
        measured = {self.scale: self._measured(self.scale, whole)}
        found, left_out = power.needs(self.grid, self.scale, measured, planned), []
        if all(need.pilot or need.exact for need in found):
            return found, []
        for name in self.grid.scales:
            if name != self.scale:
                try:
                    measured[name] = self._measured(name, {})
                except ConfigError:  # data without a pin that are not at hand
                    left_out.append(name)
        return power.needs(self.grid, self.scale, measured, planned), left_out

    def _measured(self, scale: str, request: Mapping[str, Any]) -> Measurements:
        cells = plan(self.grid, scale, **request, records=self.records).cells
        return Measurements(self.grid, cells, self.records)

    def power(self) -> Shown:
        """The seeds that each claim needs, as a table."""
        found, left_out = self._needs()
        if not found:
            return Shown("*This grid tests no claim.*")
        notes = [f"No pilot was looked for at scale '{name}': its data are not at hand." for name in left_out]
        text = "\n\n".join([formatting.markdown(power.sheet(found, self.grid, self.scale)), *notes])
        return Shown(text, pd.DataFrame([need.to_dict() for need in found]))

    def run(self, executor: str = "local", retries: int = 1) -> Summary:
        """Trains what is missing, resumably; outcomes that are not ``done`` are listed, not raised.

        Searches come first and then, in the same call, the runs that they chose.

        Args:
            executor: ``local``, one process a run and core or GPU; or ``inline``, in this process.
            retries: How often a run that failed or was killed is tried again.
        """
        return execute_phases(self.resolve, self.records, executor, retries=retries, watch=display)

    def frame(self) -> pd.DataFrame:
        """One row a run, for analyses of one's own."""
        return frame(self.measurements)

    def table(self, at: str = "") -> Shown:
        """One row a cell: means with intervals, differences to the baseline, published values apart.

        Args:
            at: ``steps``, ``tokens``, ``flops`` or ``seconds``: held-out losses at equal amounts of it, from curves.
        """
        if at:
            sheet = equal_compute.single(self.measurements, _unit(at))
            return Shown(formatting.markdown(sheet), pd.DataFrame(self.readings(at)))
        measured = self.measurements
        return Shown(formatting.markdown(tables.results(measured)[0]), summary(measured))

    def readings(self, at: str) -> list[dict[str, Any]]:
        """The numbers of `table(at)`, one row a cell."""
        found = equal_compute.read(self.measurements, _unit(at))
        return [equal_compute.plain(found, one) for one in found.cells]

    def tasks(self) -> Shown:
        """Downstream tasks one by one: spread over seeds, runs that learnt nothing, the vote of all seeds."""
        found = task_table.per_task(self.measurements)
        if not found:
            return Shown("*Nothing has been fine-tuned.*")
        return Shown(formatting.markdown(found[0]), _unrounded(found[1]))

    def claims(self) -> Shown:
        """The published claims and the measured answers."""
        found = judging.verdicts(self.measurements)
        if not found:
            return Shown("*This grid tests no published claim.*")
        sentences = "\n".join(
            f"* *{formatting.markdown_text(verdict.claim.statement)}* {formatting.markdown_text(verdict.sentence)}"
            for verdict in found
        )
        reading, numbers, _ = tables.claims(found)
        return Shown(sentences + "\n\n" + formatting.markdown(reading), _unrounded(numbers))

    def figure(self) -> Drawing | Shown:
        """The main metric over the knob, published values below on their own axis."""
        return self._drawn(grid_figures.knob)

    def curves(self, metric: str = HELDOUT[0]) -> Drawing | Shown:
        """Held-out loss over training tokens: of masked models, or of those that predict next or previous tokens."""
        return self._drawn(functools.partial(grid_figures.curves, metric=metric))

    def layers(self) -> Drawing | Shown:
        """How far each layer moves what passes through it (Lan et al. 2020, Figure 1)."""
        return self._drawn(grid_figures.layers)

    def _drawn(self, draw: Any) -> Drawing | Shown:
        measured = self.measurements
        drawn = draw(measured, report.subtitle(self._plan, measured))
        return Shown("*Nothing to draw: no run has finished.*") if drawn is None else drawn

    def tokens_to_reach(self, loss: float | None = None) -> Shown:
        """How many training tokens each cell needs to reach a held-out loss.

        Args:
            loss: In nats; by default the highest final loss of all runs, which every run reaches.
        """
        measured = self.measurements
        finals = [value for cell in measured.cells for value in measured.values(cell, HELDOUT[0]).values()]
        if not finals:
            return Shown("*No run has finished.*")
        wanted = math.ceil(max(finals) * 100) / 100 if loss is None else loss
        rows = tables.tokens_to_reach(measured, wanted)
        shown = pd.DataFrame({"cell": rows["cell"]})
        shown["reached it"] = [f"{row.reached} of {row.done}" for row in rows.itertuples()]
        shown[f"tokens to a held-out loss of {wanted:.2f} nats"] = [_tokens(row) for row in rows.itertuples()]
        return Shown(_frame_table(shown), rows)

    def publish(self) -> Shown:
        """Writes the page of this study, and the index of all pages."""
        written = publish(self.source, self.resolve(), self.records)
        lines = "\n".join(f"* `{_shown_path(path)}`" for path in written.values())
        return Shown(f"Written:\n\n{lines}")


def cost_line(found: Plan) -> str:
    """What executing a plan takes, in a sentence."""
    if not found.pending:
        return f"All {len(found.runs)} runs are finished: nothing will be trained.{search_text.to_follow(found)}"
    follow = f" and {len(found.awaited)} that follow their searches" if found.awaited else ""
    return (
        f"{len(found.pending)} of {len(found.runs)} runs to train{follow}, {found.slots} at a time: "
        f"{formatting.quantity(found.tokens)} tokens, {formatting.quantity(found.flops)} FLOPs, about "
        f"{formatting.duration(found.seconds)} ({found.speed_source}), {found.disk / 1e6:.0f} MB of disk."
        + search_text.to_follow(found)
    )


def _unit(name: str) -> str:
    if name not in equal_compute.UNITS:
        raise ConfigError([Problem("at", f"there is no unit '{name}'.{did_you_mean(name, equal_compute.UNITS)}")])
    return name


def _mapping(name: str, given: Mapping[str, Any] | str | None) -> dict[str, Any]:
    if isinstance(given, str):  # papermill's -p
        given = strict_yaml.value(given)
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(
            [Problem(name, f"must name knobs and their values, such as {{model.num_layers: [2, 4]}}, not {given!r}")]
        )
    return dict(given)


def _listed(values: Any) -> list[Any]:
    if isinstance(values, str):
        values = strict_yaml.value(values)
    return list(values) if isinstance(values, (list, tuple)) else [values]


def _against(home: Cell, cell: Cell) -> dict[str, tuple[Any, Any]]:
    """What a cell changes against the baseline, less what each of them searches for."""
    searched = {path for trial in cell.search for path in trial.values}
    changes = diff(home.system, cell.system) | _retuned(home, cell)
    return {path: both for path, both in changes.items() if path not in searched}


def _retuned(home: Cell, cell: Cell) -> dict[str, tuple[Any, Any]]:
    """What changes in fine-tuning from one cell to another, on the first task."""
    pairs = zip(home.finetunings[:1], cell.finetunings[:1], strict=False)
    return {FINETUNING + path: both for a, b in pairs for path, both in diff(a.finetuning, b.finetuning).items()}


def _changes(change: Mapping[str, tuple[Any, Any]]) -> str:
    """Knob by knob; an objective or another part that one of the two lacks is named as a whole."""
    groups: dict[str, dict[str, tuple[Any, Any]]] = {}
    for path, both in change.items():
        if path not in ("name", "paper"):
            groups.setdefault(".".join(path.split(".")[:2]), {})[path] = both
    said = []
    for part, knobs in groups.items():
        old, new = zip(*knobs.values(), strict=True)
        if len(knobs) > 1 and not any(value is not None for value in new):
            said.append(f"without `{part}`")
        elif len(knobs) > 1 and not any(value is not None for value in old):
            settings = (f"{path.removeprefix(part + '.')} {value}" for path, (_, value) in knobs.items())
            said.append(f"with `{part}` ({', '.join(settings)})")
        else:
            said += [f"`{path}` {before} → {after}" for path, (before, after) in knobs.items()]
    return ", ".join(said)


def _unrounded(sheet: formatting.Sheet) -> pd.DataFrame:
    return pd.DataFrame(list(sheet.rows), columns=list(sheet.headings))


def _frame_table(rows: pd.DataFrame) -> str:
    head = "| " + " | ".join(rows.columns) + " |\n|" + " --- |" * len(rows.columns)
    lines = (
        "| " + " | ".join(formatting.markdown_text(str(value)) for value in row) + " |" for row in rows.values.tolist()
    )
    return "\n".join([head, *lines])


def _tokens(row: Any) -> str:
    if pd.isna(row.mean):
        return "not reached by all"
    interval = "" if pd.isna(row.low) else f" [{formatting.quantity(row.low)}, {formatting.quantity(row.high)}]"
    return formatting.quantity(row.mean) + interval


def _shown_path(path: Path) -> str:
    from lightning_modules.places import project

    return str(path.relative_to(project())) if path.is_relative_to(project()) else str(path)
