"""Checks of the search of a grid: its knobs can be searched, and its metric can choose."""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

from ablations.core.strict_yaml import Document, Path_
from ablations.literature.published_values import same
from ablations.measurements.derived import DERIVED, possible
from ablations.planning.afterwards import tasks_at
from ablations.planning.cells import Values, Workshop, label, layout, probes, too_many
from ablations.planning.checks.grid_checks import known_knobs, known_metrics
from ablations.planning.search import (
    ONLY_TRIALS,
    combinations,
    extendable,
    farthest,
    is_validation,
    search_at,
    tasks_behind,
)
from ablations.schema.grid import FINETUNING, MEASURING, STEPS, SYSTEM_AXIS, Grid, Search
from ablations.schema.metrics import COST
from ablations.schema.scale import ScaleSearch
from lightning_modules.config import ConfigError, canonical
from lightning_modules.tasks import TASKS
from lightning_modules.zero_shot.table import ZERO_SHOT

_MEASURING = (
    "data.",
    "evaluation.",
    MEASURING,
)  # knobs that change the measurement, so that no metric can choose between their values
_TOKENS_A_STEP = ("training.batch_size", "format.sequence_length", "format.first_share", "format.first_length")
_MOST_BUILT = 500  # systems per scale that reading a grid builds; a plan builds all its systems


def names(grid: Grid, document: Document) -> None:
    """Adds the problems with names of knobs and of the metric in ``search``, and with knobs that only trials have."""
    for where in _set_for_all(grid):
        if is_validation(str(where[-1])):
            document.complain(where, ONLY_TRIALS)
    if grid.search is None:
        for name, scale in grid.scales.items():
            if scale.search not in (None, ScaleSearch()):
                document.complain(
                    ("scales", name, "search"), "the grid has no 'search' to change. Add one or leave this out."
                )
        return
    _check_names(grid, grid.search, document)
    metrics = {**known_metrics(), **dict.fromkeys(metric.name for metric in grid.metrics)}
    if not grid.search.metric.startswith(COST) and grid.search.metric not in metrics:
        message = f"there is no metric '{grid.search.metric}'."
        document.slip(("search", "metric"), message, metrics, grid.search.metric)


def _check_names(grid: Grid, search: Search, document: Document) -> None:
    for section, path in _named(search):
        if path not in known_knobs() and path not in grid.axes and path != SYSTEM_AXIS:
            document.slip(("search", section, path), "there is no such knob.", known_knobs())
    for name, scale in grid.scales.items():
        for path in scale.search.axes if scale.search else ():
            if path not in search.axes:
                document.slip(("scales", name, "search", "axes", path), "is not searched by this grid.", search.axes)


def values(grid: Grid, document: Document) -> None:
    """Adds the problems with the values and the metric of ``search``."""
    if grid.search is None:
        return
    faults = len(document.problems)
    for section, path in _named(grid.search):
        _check_knob(grid, grid.search, section, path, document)
    for where, _, options in _values(grid, grid.search):
        if not options:
            document.complain(where, "a search needs at least one value")
        for n, value in enumerate(options):
            if any(same(value, earlier) for earlier in options[:n]):
                document.complain((*where, n), f"{value!r} is listed twice")
    for name in grid.scales:
        if (search := search_at(grid, name)) and (problem := too_many(map(len, search.axes.values()))):
            document.complain(("search", "axes"), f"at scale '{name}': {problem}")
        if search := search_at(grid, name):
            _check_extension(grid, name, search, document)
    if _check_metric(grid, grid.search, document) and len(document.problems) == faults:
        with contextlib.suppress(ConfigError):  # of axes that make no cells, which is reported already
            for scale in grid.scales:
                if search := search_at(grid, scale):
                    _check_systems(grid, scale, search, document)


def _check_extension(grid: Grid, scale: str, search: Search, document: Document) -> None:
    """Something to choose from; and where the search goes beyond its ends, that they mean something."""
    if len(combinations(search)) < 2:
        where = _where(grid, scale, "axes")
        text = "a search of one combination chooses nothing. Give a knob two values, or set it without a search."
        document.complain(where, f"at scale '{scale}': {text}")
    elif search.extend and not extendable(search):
        text = "has no knob to continue with. A knob with two positive numbers or more has ends."
        document.complain(_where(grid, scale, "extend"), f"at scale '{scale}': {text}")
    elif search.extend and search.length < 1:
        text = "needs trials of full length, as short ones favour one end. Leave 'length' out, or set it to 1."
        document.complain(_where(grid, scale, "extend"), f"at scale '{scale}': {text}")


def _where(grid: Grid, scale: str, key: str) -> Path_:
    """Where the file says a part of a scale's search."""
    own = grid.scales[scale].search
    return ("scales", scale, "search", key) if own is not None and getattr(own, key) else ("search", key)


def _named(search: Search) -> list[tuple[str, str]]:
    return [*(("axes", path) for path in search.axes), *(("set", path) for path in search.set)]


def _set_for_all(grid: Grid) -> Iterable[Path_]:
    """Where a grid sets or varies a knob of its own runs, or searches one."""
    yield from (("set", path) for path in grid.set)
    yield from (("axes", path) for path in grid.axes)
    yield from (("scales", name, "set", path) for name, scale in grid.scales.items() for path in scale.set)
    for axis, variants in grid.variants.items():
        yield from (("variants", axis, name, path) for name, knobs in variants.items() for path in knobs)
    yield from (("search", "axes", path) for path in (grid.search.axes if grid.search else ()))


def _values(grid: Grid, search: Search) -> Iterable[tuple[Path_, str, tuple[Any, ...]]]:
    yield from ((("search", "axes", path), path, values) for path, values in search.axes.items())
    for name, scale in grid.scales.items():
        own = scale.search.axes if scale.search else {}
        yield from ((("scales", name, "search", "axes", path), path, values) for path, values in own.items())


def _check_knob(grid: Grid, search: Search, section: str, path: str, document: Document) -> None:
    where, known = ("search", section, path), known_knobs()
    by_variants = [axis for axis in grid.variants if _compares(grid, axis, path)]
    if path == SYSTEM_AXIS:
        document.complain(where, "systems cannot be searched. Make 'system' an axis.")
    elif section == "set" and path in search.axes:
        document.complain(where, "is searched. Trials have the values that the search tries.")
    elif path in grid.axes or by_variants:
        named = f"the axis '{path if path in grid.axes else by_variants[0]}'"
        document.complain(where, f"is varied by {named}. A knob is either compared or searched.")
    elif (known[path].json_schema_extra or {}).get("label"):
        document.complain(where, "is a label and changes no number. Leave it out.")
    elif path == STEPS:
        document.complain(where, f"cannot be searched. The budget (equal: {grid.budget.equal}) sets it.")
    elif path in _TOKENS_A_STEP and grid.budget.equal == "steps":
        document.complain(
            where, "changes the tokens per step, so larger values win under equal steps. Use 'budget: {equal: tokens}'."
        )
    elif path.startswith(_MEASURING):
        document.complain(where, "changes what is measured, so its values cannot be compared. Leave it out.")
    elif path.startswith(FINETUNING):
        _check_finetuning(search, where, path, document)


def _compares(grid: Grid, axis: str, path: str) -> bool:
    """Whether variants of an axis differ in nothing but a knob. Where they differ in more, as frozen encoders that have
    a rate of their own, the knob of a variant is what holds without a search, and trials replace it.
    """
    variants = list(grid.variants[axis].values())
    rest = [canonical({name: value for name, value in knobs.items() if name != path}) for knobs in variants]
    return any(path in knobs for knobs in variants) and len(set(rest)) < len(set(map(canonical, variants)))


def _check_finetuning(search: Search, where: Path_, path: str, document: Document) -> None:
    """A fine-tuning knob needs a search metric that it affects."""
    behind = tasks_behind(search.metric, TASKS)
    task = path.removeprefix(FINETUNING).partition(".")[0]
    if not behind:
        text = f"does not affect the search metric '{search.metric}'. Fine-tuning knobs need a task's metric."
        document.complain(where, text)
    elif task in TASKS and task not in behind:
        document.complain(where, f"does not affect the search metric '{search.metric}'")


def _check_metric(grid: Grid, search: Search, document: Document) -> bool:
    before = len(document.problems)
    if search.metric.startswith(COST):
        document.complain(
            ("search", "metric"), f"'{search.metric}' is a cost and would choose the cheapest combination. Use a score."
        )
    elif search.metric.partition(".")[0] in ZERO_SHOT:
        text = f"'{search.metric}' is measured without training, which no trial does. Use a loss or a task's score."
        document.complain(("search", "metric"), text)
    for name, scale in grid.scales.items():
        if scale.search is not None and not _is_measured(search.metric, tasks_at(grid, name)):
            text = f"needs fine-tuning, which scale '{name}' lacks. Add tasks there or set 'search: null'."
            document.complain(("search", "metric"), f"'{search.metric}' {text}")
    return len(document.problems) == before


def _is_measured(metric: str, tasks: Sequence[str]) -> bool:
    task = metric.partition(".")[0]
    return possible(metric, tasks) if metric in DERIVED else task in tasks or task not in TASKS


def _check_systems(grid: Grid, scale: str, search: Search, document: Document) -> None:
    """Combinations that do not build, and knobs that change no cell."""
    start, tried = layout(grid, scale), combinations(search)
    workshop, tasks = Workshop(grid, scale, start.baseline), tasks_behind(search.metric, tasks_at(grid, scale))
    few = list(probes(grid, scale))
    reported: set[tuple[Path_, str]] = set()
    beyond = farthest(search)
    others = bool(document.problems)  # which need not be searched knobs' and are reported already
    for values in [*few, *(row for row in start.kept[: _MOST_BUILT // len(tried)] if row not in few)]:
        for combination in [*tried, *beyond]:
            try:
                _essence(workshop, {**values, **search.set, **combination}, tasks)
            except ConfigError as error:
                for problem in error.problems:
                    far = combination in beyond and problem.path in extendable(search)
                    where = _where(grid, scale, "extend") if far else _written(grid, scale, combination, problem.path)
                    is_new = (where, problem.message) not in reported
                    reported.add((where, problem.message))
                    if is_new and not (others and where == ("search",)):
                        named = label({**values, **combination})
                        example = f" (for example with {named})" if where[-1] in ("search", "extend") else ""
                        document.complain(where, f"{problem}{example}" if example else problem.message)
    if reported:
        return
    for path, options in search.axes.items():
        rows = [[{**values, **search.set, **tried[0], path: option} for option in options] for values in few]
        if len(options) > 1 and all(len({_essence(workshop, cell, tasks) for cell in row}) == 1 for row in rows):
            where = ("scales", scale, "search", "axes", path)
            own = grid.scales[scale].search
            text = f"does not change '{search.metric}' at scale '{scale}'. Leave it out."
            document.complain(where if own and path in own.axes else where[2:], text)


def _essence(workshop: Workshop, values: Values, tasks: Sequence[str]) -> str:
    """Everything that determines the search metric."""
    system = workshop.system(values)
    return canonical([system.essence(), *(workshop.finetuning(values, task).essence() for task in tasks)])


def _written(grid: Grid, scale: str, combination: Values, path: str) -> Path_:
    """Where the file sets a searched knob."""
    own = grid.scales[scale].search
    if own is None or grid.search is None or path not in {**grid.search.set, **combination}:
        return ("search",)
    if path in grid.search.set:
        return ("search", "set", path)
    where: Path_ = ("scales", scale, "search", "axes", path) if path in own.axes else ("search", "axes", path)
    options = own.axes.get(path, grid.search.axes[path])
    return (*where, next(n for n, option in enumerate(options) if same(option, combination[path])))
