"""What stood for a text in the fine-tunings of a page, in words."""

from collections.abc import Iterable, Sequence

from ablations.schema.cell import Cell
from ablations.schema.run import Run
from lightning_modules.tasks import TASKS
from lightning_modules.tasks.reading.layout import LAYOUTS
from lightning_modules.tasks.reading.text_vectors import READERS


def rule(cells: Sequence[Cell]) -> str:
    """A sentence that names what stands for a text, task by task; empty if no task reads a text as a whole.

    Where cells read differently it names each way, that of the first cell first.
    """
    tasks_by_way: dict[str, list[str]] = {}
    runs = [run for cell in cells for run in cell.finetunings if run.task in TASKS and TASKS[run.task].shape.reads]
    for task in dict.fromkeys(run.task for run in runs):
        ways = _listed(dict.fromkeys(_way(run) for run in runs if run.task == task), "or")
        tasks_by_way.setdefault(ways, []).append(TASKS[task].title.partition(":")[0])
    read = (f"{ways} ({_listed(tasks, 'and')})" for ways, tasks in tasks_by_way.items())
    return f"What stands for a text or a pair of texts: {'; '.join(read)}." if tasks_by_way else ""


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
