"""``ablations note``: what somebody wants to remember of a run or of the runs of a cell."""

from typing import Annotated

import typer

from ablations.commands.terminal import USUAL, As, Format, Results, Shown, existing, reporting_errors, tell


def command(
    what: Annotated[str, typer.Argument(help="A run id, its first digits, or a grid.")],
    words: Annotated[list[str], typer.Argument(metavar="[CELL] TEXT", help="A grid's cell, and the note. '' removes.")],
    scale: Shown = USUAL,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Notes a text of a run, or of all runs of a grid's cell. `show` and `frame` have it in a column.

    It is kept in notes.json next to the records, never in them, and moves no id and no number.
    """
    from ablations.core.disk.notes import note
    from ablations.inspection.trained import recorded
    from ablations.planning import grids
    from ablations.study import Study
    from lightning_modules.config import ConfigError, Problem, did_you_mean

    with reporting_errors():
        records, *cell = existing(results_dir), *words[:-1]
        if what in grids.available():
            study = Study(what, scale, results_dir=results_dir)
            records, cells = study.records, {one.label: one for one in study.resolve().cells}
            if len(cell) != 1 or cell[0] not in cells:
                named = " ".join(cell)
                text = f"there is no cell '{named}'.{did_you_mean(named, cells, listed=True)}"
                raise ConfigError([Problem("cell", text)])
            ids = [run.id for run in cells[cell[0]].work if records.get(run.id)]
        elif cell:
            raise ConfigError(
                [Problem(what, f"is no grid, so one text follows it.{did_you_mean(what, grids.available())}")]
            )
        else:
            ids = [recorded(what, records).id]
        note(records.folder, ids, words[-1])
        people = f"noted of {len(ids)} run{'s' * (len(ids) != 1)}: {words[-1]}" if words[-1] else "removed"
        tell({"runs": ids, "note": words[-1]}, form, "runs", people)
