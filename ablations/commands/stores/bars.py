"""``ablations bars``: what counting reaches on held-out words, and later methods on tasks, kept with the records."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ablations.commands.terminal import USUAL, As, Format, Results, Shown, aside, complain, listing, reporting_errors

if TYPE_CHECKING:
    from ablations.core.store import Records
    from ablations.schema.record import Record
    from ablations.schema.run import Run


def command(
    grid: Annotated[
        str | None, typer.Argument(help="Only the held-out words of this grid's runs. Default: those of all records.")
    ] = None,
    scale: Shown = USUAL,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Lists what counting reaches on held-out words, and computes what is missing: about a minute each.

    A run computes its own when it ends. So do simple methods of tasks that are newer than a record. Exits with 1 if one
    could not be computed, as where its text is not at hand.
    """
    from ablations.core.bars import complete, complete_methods
    from ablations.core.disk import bars
    from ablations.core.store import Records
    from lightning_modules.config import ConfigError
    from lightning_modules.measures import heldout_text

    with reporting_errors():
        records, rows, problems = Records(results_dir), {}, []
        for run in _runs(records, grid, scale):
            names = [bars.name(run, target) for target in heldout_text.targets(run.system)]
            if all(name in rows for name in names):
                continue
            computed: set[str] = set()
            try:
                with aside(form):
                    computed = {bar.name for bar in complete(run, records)}
            except ConfigError as error:
                problems += [f"{', '.join(names)}: {problem}" for problem in error.problems]
            for name in names:
                state = "computed" if name in computed else "kept" if bars.is_kept(records.folder, name) else "missing"
                rows[name] = {"bar": name, "state": state, "floor": "", "nats": None, "others": ""}
                if state != "missing":
                    bar = bars.read(records.folder, name)
                    assert isinstance(bar, bars.Bar)
                    others = (f"{nats:.3f} ({method})" for method, nats in bar.scores.items() if method != bar.floor)
                    rows[name] |= {"floor": bar.floor, "nats": round(bar.level, 4), "others": "; ".join(others)}
        for record in _without_methods(records, grid, scale):
            name = bars.methods_name(record.run())
            if name in rows:
                continue
            state = "missing"
            try:
                with aside(form):
                    state = "computed" if complete_methods(record, records) else "kept"
            except ConfigError as error:
                problems += [f"{name}: {problem}" for problem in error.problems]
            scores = bars.Bars(records.folder).of_methods(record) if state != "missing" else {}
            others = "; ".join(f"{score:.3f} ({metric})" for metric, score in scores.items())
            rows[name] = {"bar": name, "state": state, "floor": "", "nats": None, "others": others}
        listing([rows[name] for name in sorted(rows)], form, "bar")
        complain(problems)
        if problems:
            raise typer.Exit(1)


def _runs(records: "Records", grid: str | None, scale: str) -> "Iterator[Run]":
    """The pretrainings of a grid at a scale, or those that have records."""
    from ablations.planning import grids
    from ablations.planning.plan import plan

    if grid is not None:
        for cell in plan(grids.read(grid), scale, records=records).cells:
            yield from cell.runs[:1]
        return
    for record in records.all():
        if record.kind == "pretrain" and record.outcome == "done":
            yield record.run()


def _without_methods(records: "Records", grid: str | None, scale: str) -> "Iterator[Record]":
    """The fine-tunings of a grid at a scale, or all, that were recorded before some of the simple methods."""
    from ablations.core.disk import bars
    from ablations.planning import grids
    from ablations.planning.plan import plan

    known = records.all()
    if grid is not None:
        cells = plan(grids.read(grid), scale, records=records).cells
        wanted = {run.id for cell in cells for run in cell.finetunings}
        known = [record for record in known if record.id in wanted]
    yield from (record for record in known if bars.lacking(record))
