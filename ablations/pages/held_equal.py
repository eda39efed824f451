"""What is equal in all cells of a page, in words: compute, seeds, knobs, and the stand-in of a text in fine-tunings."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ablations.core.formatting import markdown_code, markdown_text, path_text, value_text
from ablations.literature.published_values import same
from ablations.measurements import trunks
from ablations.measurements.variances import about
from ablations.planning import search_text
from ablations.planning.cells import stand_in_pairs
from ablations.schema.cell import Cell
from ablations.schema.grid import Grid
from ablations.schema.run import Run
from lightning_modules.config import flat
from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS
from lightning_modules.tasks import TASKS
from lightning_modules.tasks.reading.layout import LAYOUTS
from lightning_modules.tasks.reading.text_vectors import READERS


class Planned(Protocol):
    """The part of a plan that a page needs."""

    @property
    def grid(self) -> Grid:
        """The grid."""
        ...

    @property
    def scale(self) -> str:
        """The name of the scale."""
        ...

    @property
    def cells(self) -> Sequence[Cell]:
        """The cells, in order."""
        ...

    @property
    def excluded(self) -> Sequence[tuple[Mapping[str, Any], str]]:
        """Values of cells that are left out, with the reason."""
        ...

    @property
    def folder_name(self) -> str:
        """The scale; another name if the grid was overridden."""
        ...

    @property
    def states(self) -> Mapping[str, str]:
        """Run id -> its state in the store."""
        ...

    @property
    def overrides(self) -> Mapping[str, Any]:
        """What differs from the grid at this scale."""
        ...


def lines(plan: Planned) -> list[str]:
    """What every cell gets, and what replaces published values or is left out, as lines of Markdown."""
    grid = plan.grid
    amount = {
        "steps": "the number of optimisation steps",
        "tokens": "the number of training tokens",
        "flops": "the number of floating-point operations",
    }[grid.budget.equal]
    told = [
        f"Every cell gets {amount} of the baseline.",
        _seeds(plan),
        f"{markdown_text(about(grid, plan.cells))}",
        f"Every cell starts from the system {markdown_code(grid.base)}. Only the knobs in the table differ.",
    ]
    scale = grid.scales.get(plan.scale)
    told += map(markdown_text, search_text.rules(grid, plan.scale))
    if fixed := _common(plan):
        told_of = {path: markdown_text(value_text(path, value)) or "its defaults" for path, value in fixed.items()}
        knobs = ", ".join(f"{markdown_code(path)} = {text}" for path, text in told_of.items())
        told.append(f"Set in every cell: {knobs}.")
    if reading := rule(plan.cells):
        told.append(f"{markdown_text(reading)}")
    for path in scale.stands_for if scale else ():
        pairs = stand_in_pairs(grid, plan.scale, path)
        listed = ", ".join(f"{value_text(path, ours)} for {value_text(path, theirs)}" for ours, theirs in pairs)
        told.append(f"Stand-ins for published values of {markdown_text(path_text(path))}: {markdown_text(listed)}.")
    for values, reason in plan.excluded:
        left_out = ", ".join(f"{path_text(path)} {value_text(path, value)}" for path, value in values.items())
        told.append(f"Left out: {markdown_text(left_out)}: {markdown_text(reason)}.")
    return told


def _common(plan: Planned) -> dict[str, Any]:
    """What the grid or its scale sets against its base system, with this value in every cell; other knobs vary."""
    grid, scale = plan.grid, plan.grid.scales.get(plan.scale)
    every = {**grid.set, **scale.base, **scale.set} if scale else grid.set
    searched = {path for cell in plan.cells for trial in cell.search for path in trial.values}
    systems, base = [flat(cell.system.resolved()) for cell in plan.cells], flat(SYSTEMS[grid.base].resolved())
    return {
        path: value
        for path, value in every.items()
        if path not in searched
        and not (path in base and same(base[path], value))
        and all(_has(system, path, value) for system in systems)
    }


def _has(system: Mapping[str, Any], path: str, value: Any) -> bool:
    """Whether a system, as leaves by path, has a value. A mapping matches a part that is there."""
    if path in system:
        return same(system[path], value)
    is_part = any(name.startswith(f"{path}.") for name in system)
    is_elsewhere = path.partition(".")[0] not in System.model_fields  # such as a knob of fine-tunings
    return is_elsewhere or (is_part and isinstance(value, Mapping))


_SEED_SETS = {  # by where the rows of streams start, if all cells read streams
    "": "A seed sets initialisation, data order and corruption.",
    "even": "A seed sets initialisation and corruption. All seeds read the same stream in the same order.",
    "drawn": "A seed sets initialisation, corruption and where the rows of its stream begin, and so what they read.",
}


def _seeds(plan: Planned) -> str:
    """What a seed sets, and what it has to do with comparisons."""
    if all(cell.system.checkpoint for cell in plan.cells):
        sets = "A seed sets the head, the order of the examples and which of them are drawn. Cells have the same seeds"
        return f"{sets}, and one released encoder. Comparisons take them as separate draws."
    starts = {cell.system.format.row_starts if cell.system.format.kind == "stream" else "" for cell in plan.cells}
    sets = f"{_SEED_SETS[starts.pop() if len(starts) == 1 else '']} Cells have the same seeds"
    if found := trunks.of_cells(plan.cells):
        own = f"{found[0].system.training.steps:,} steps"
        who = "Each continues" if all(cell.system.training.start for cell in plan.cells) else "A continued one starts"
        return (
            f"{sets}. {who} from the trunk of its seed, a pretraining of {own} that all share. Optimiser "
            "state, learning rate, order and masks start again. This is "
            f"*{trunks.WORD}*, another question than pretraining from random weights."
        )
    if any(cell.tuned for cell in plan.cells):
        return f"{sets}. {trunks.OF_TUNED}"
    if any(cell.system.training.start_parts for cell in plan.cells):
        return f"{sets}. Runs that start from parts of one model are compared seed by seed, others as separate draws."
    return f"{sets}. Comparisons take them as separate draws, because runs of one seed are no more alike than others."


def rule(cells: Sequence[Cell]) -> str:
    """A sentence that names what represents a text, task by task. It is empty if no task reads a text as a whole.

    Where cells read differently it names each way, that of the first cell first.
    """
    tasks_by_way: dict[str, list[str]] = {}
    runs = [run for cell in cells for run in cell.finetunings if run.task in TASKS and TASKS[run.task].shape.reads]
    for task in dict.fromkeys(run.task for run in runs):
        ways = _listed(dict.fromkeys(_way(run) for run in runs if run.task == task), "or")
        tasks_by_way.setdefault(ways, []).append(TASKS[task].title.partition(":")[0])
    read = (f"{ways} ({_listed(tasks, 'and')})" for ways, tasks in tasks_by_way.items())
    return f"The vector of a text or a pair of texts: {'; '.join(read)}." if tasks_by_way else ""


def _way(run: Run) -> str:
    assert run.finetuning is not None
    shape = TASKS[run.task].shape
    settings = shape.settled(run.finetuning).reading(run.system.model.direction)
    way, layout = READERS[settings.reader or "first"].words, LAYOUTS[settings.layout]
    if layout.new:
        way += f" in a row {layout.words[shape.reads - 1]}"
    if settings.both_orders:
        way += ", added over both orders of the texts"
    return way + ("" if settings.pooler else ", without BERT's pooler")


def _listed(names: Iterable[str], last: str) -> str:
    *most, end = names
    return f"{', '.join(most)} {last} {end}" if most else end
