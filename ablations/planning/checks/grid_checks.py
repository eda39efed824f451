"""Checks of a well-formed grid: knobs exist, values build, references resolve."""

import contextlib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ablations.core.strict_yaml import Document, Path_
from ablations.literature import published_values
from ablations.literature.published_values import repeated, same
from ablations.measurements import probe_metrics
from ablations.measurements.derived import DERIVED, missing, possible
from ablations.planning.afterwards import PROTOCOL, tasks_at
from ablations.planning.cells import (
    Layout,
    Values,
    Workshop,
    agrees,
    as_printed,
    axes_at,
    dimensions,
    label,
    layout,
    names_of,
    own_values,
    probes,
    too_many,
    varied,
)
from ablations.planning.checks import asking_checks, claim_checks, mean_checks
from ablations.planning.search import combinations, search_at
from ablations.schema.grid import FINETUNING, START, STEPS, SYSTEM_AXIS, Grid
from ablations.schema.metrics import COSTS, METRICS, better
from lightning_modules.config import ConfigError, did_you_mean, diff, knob, paths
from lightning_modules.objectives import Objectives
from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS
from lightning_modules.tasks import TASKS, FineTuning, fitting
from lightning_modules.tasks.protocols import PROTOCOLS
from lightning_modules.tasks.settings import OF_SOME_SHAPES

_TRAINED_ON = f"{FINETUNING}train_examples"


def check(grid: Grid, rows: Mapping[str, Sequence[Values]], document: Document) -> None:
    """Adds the problems with savings: their cells, their metrics, and grids whose cells have equally many labels.

    Args:
        rows: Scale -> the combinations of its cells, in published values.
    """
    every = [row for of_scale in rows.values() for row in of_scale]
    if grid.savings and _TRAINED_ON not in varied(grid):
        text = f"are of cells with several numbers of labels. Add an axis of {_TRAINED_ON}, or variants that set it."
        document.complain(("savings",), text)
    for n, saving in enumerate(grid.savings):
        if saving.metric.partition(".")[0] not in TASKS or better(saving.metric) == "lower":
            text = f"'{saving.metric}' is no score of a task that is better when higher"
            document.complain(("savings", n, "metric"), text)
        if saving.a == saving.b:
            document.complain(("savings", n), "a and b are the same side")
        for name, side in (("a", saving.a), ("b", saving.b)):
            if set(side) <= set(grid.axes) and not any(agrees(row, side) for row in every):
                document.complain(("savings", n, name), f"no cell of any scale has {label(side)}")


_KNOB = re.compile(r"[a-z][a-z0-9_.]*")
_LABELS = {"name", "paper"}
_ORDER = "format.sentence_order"
_MOST_BUILT = 2_000  # cells per scale that reading a grid builds; a plan builds all its cells


def names(grid: Grid, document: Document) -> None:
    """Adds the problems with names of knobs, systems, tasks and metrics."""
    if grid.base not in SYSTEMS:
        document.slip(("base",), f"there is no system '{grid.base}'.", SYSTEMS, grid.base)
    for axis, named in grid.variants.items():
        for name, knobs in named.items():
            for path in knobs:
                _check_knob(grid, ("variants", axis, name, path), path, document)
    _check_tasks(grid, document)
    asking_checks.names(grid, document)
    for path in grid.axes:
        _check_knob(grid, ("axes", path), path, document, axis=True)
    for path in grid.set:
        _check_knob(grid, ("set", path), path, document)
    for name, scale in grid.scales.items():
        for path in scale.set:
            _check_knob(grid, ("scales", name, "set", path), path, document)
    for where, path, values in _axis_values(grid):
        _check_names_of(where, path, values, names_of(grid, path), document)
    _check_metrics(grid, document)


def references(grid: Grid, document: Document) -> None:
    """Adds the problems with axes and metrics that other sections than ``axes`` and ``metrics`` mention."""
    for where, path in _mentioned(grid):
        if path not in grid.axes:
            is_key = where[-1] == path
            message = f"{'' if is_key else repr(path) + ' '}is not an axis of this grid."
            document.slip(where, message, grid.axes, None if is_key else path)
    for n, claim in enumerate(grid.claims):
        _check_measured(grid, ("claims", n, "metric"), claim.metric, document)
        if claim.official:
            _check_measured(grid, ("claims", n, "official"), claim.official, document)
    for n, saving in enumerate(grid.savings):
        _check_measured(grid, ("savings", n, "metric"), saving.metric, document)
    claim_checks.check_judged(grid, document)
    figure = grid.figure
    if figure is None:
        return
    for n, name in enumerate(figure.metrics):
        place: Path_ = ("figure", "y") if isinstance(figure.y, str) else ("figure", "y", n)
        _check_measured(grid, place, name, document)


def _mentioned(grid: Grid) -> Iterable[tuple[Path_, str]]:
    """Every axis that a section mentions, with its place in the file."""
    yield from ((("baseline", path), path) for path in grid.baseline)
    for name, scale in grid.scales.items():
        yield from ((("scales", name, "axes", path), path) for path in scale.axes)
        yield from ((("scales", name, "stands_for", path), path) for path in scale.stands_for)
    for n, rule in enumerate(grid.exclude):
        yield from ((("exclude", n, "when", path), path) for path in rule.when)
    for n, group in enumerate(grid.variance_groups):
        yield from ((("variance_groups", n, path), path) for path in group)
    for n, claim in enumerate(grid.claims):
        yield from (((*where, path), path) for where, side in claim_checks.places(n, claim) for path in side)
    yield from mean_checks.mentioned(grid)
    for n, saving in enumerate(grid.savings):
        for name, side in (("a", saving.a), ("b", saving.b)):
            yield from ((("savings", n, name, path), path) for path in side)
    for n, source in enumerate(grid.published):
        yield from ((("published", n, "match", column), path) for column, path in source.match.items())
    for n, group in enumerate(grid.zip):
        yield from ((("zip", n, m), path) for m, path in enumerate(group))
    if grid.figure:
        yield ("figure", "x"), grid.figure.x


def baseline(grid: Grid, document: Document) -> None:
    """Adds the problems with names of variants and systems in the baseline."""
    for path, value in grid.baseline.items():
        known = names_of(grid, path)
        if known is not None and value not in known:
            document.slip(("baseline", path), f"there is no {path} {value!r}.", known, str(value))


def values(grid: Grid, document: Document) -> None:
    """Adds the problems with values, one by one and together."""
    claim_checks.check(grid, document)
    claim_checks.check_looks(grid, document)
    _check_published(grid, document)
    if not _check_axes(grid, document):
        return
    fits = _check_zips(grid, document)
    grid = grid if fits else grid.model_copy(update={"zip": ()})  # each axis alone can still be checked
    if not _check_size(grid, document):
        return
    if not fits:
        for scale in grid.scales:
            _check_settings(grid, scale, layout(grid, scale), document)
        return
    _check_stand_ins(grid, document)
    layouts = {scale: layout(grid, scale) for scale in grid.scales}
    wrong: set[Path_] = set()
    _check_baseline(grid, layouts, document)
    for scale, plan in layouts.items():
        _check_idle(grid, scale, plan, document)
        asking_checks.idle(grid, scale, plan, document)
        if not plan.kept:
            document.complain(("scales", scale), "every combination is excluded. Keep at least one.")
        elif not (found := _check_settings(grid, scale, plan, document)) and _check_cells(grid, scale, plan, document):
            _check_starts(grid, scale, plan, document)
        else:
            wrong |= found
    _check_selections(grid, layouts, document, wrong)


def _axis_values(grid: Grid) -> Iterable[tuple[Path_, str, tuple[Any, ...]]]:
    yield from ((("axes", path), path, values) for path, values in grid.axes.items())
    for name, scale in grid.scales.items():
        yield from ((("scales", name, "axes", path), path, values) for path, values in scale.axes.items())


def _check_names_of(
    where: Path_, path: str, values: tuple[Any, ...], names: list[str] | None, document: Document
) -> None:
    for index, value in enumerate(values):
        if names is not None and value not in names:
            document.slip((*where, index), f"there is no {path} {value!r}.", names, str(value))


def _check_axes(grid: Grid, document: Document) -> bool:
    """An axis has a value, and none twice; returns whether all have a value."""
    zipped = {path for group in grid.zip for path in group}
    for where, path, values in _axis_values(grid):
        if not values and where not in document.kept:  # else it has values, all of them wrong
            document.complain(where, "an axis needs at least one value")
        for index in repeated(() if path in zipped else values):
            document.complain((*where, index), f"{values[index]!r} is listed twice")
    return all(values for _, _, values in _axis_values(grid))


def _check_tasks(grid: Grid, document: Document) -> None:
    places: list[tuple[Path_, tuple[str, ...]]] = [(("tasks",), grid.tasks)]
    places += [(("scales", name, "tasks"), scale.tasks or ()) for name, scale in grid.scales.items()]
    for where, tasks in places:
        for n, task in enumerate(tasks):
            if task not in TASKS:
                document.slip((*where, n), f"there is no task '{task}'.", TASKS, task)


def _check_knob(grid: Grid, where: Path_, path: str, document: Document, axis: bool = False) -> None:
    known = known_knobs()
    if axis and (path in grid.variants or path == SYSTEM_AXIS):
        return
    if path == SYSTEM_AXIS:
        document.slip(where, "cannot be set. Choose a system with 'base' or an axis 'system'.", ())
    elif not _KNOB.fullmatch(path):
        document.slip(where, "a knob must be lower-case letters, digits, _ and dots, and start with a letter", ())
    elif path not in known:
        document.slip(where, "there is no such knob.", known)
    elif axis and (known[path].json_schema_extra or {}).get("label"):
        document.slip(where, "is a label and changes no number. Remove this axis.", ())
    elif axis and path == STEPS and grid.budget.equal != "steps":
        text = f"the budget (equal: {grid.budget.equal}) sets the steps. Remove this axis or the budget."
        document.slip(where, text, ())


def _check_metrics(grid: Grid, document: Document) -> None:
    listed = [metric.name for metric in grid.metrics]
    for n, name in enumerate(listed):
        if name not in known_metrics() and not name.startswith("train."):
            document.slip(("metrics", n, "name"), f"there is no metric '{name}'.", known_metrics(), name)
        if name in listed[:n]:
            document.complain(("metrics", n, "name"), f"'{name}' is listed twice")
        if name in DERIVED and not any(possible(name, tasks_at(grid, scale)) for scale in grid.scales):
            document.complain(("metrics", n, "name"), missing(name, grid.tasks))


def _check_published(grid: Grid, document: Document) -> None:
    for n, source in enumerate(grid.published):
        try:
            rows = published_values.read(source.file, source.table)
        except ConfigError as error:
            for problem in error.problems:
                document.complain(("published", n, "file"), str(problem))
            continue
        for kind, column in [("match", c) for c in source.match] + [("where", c) for c in source.where]:
            if rows and column not in rows[0].columns:
                hint = did_you_mean(column, rows[0].columns)
                document.complain(("published", n, kind, column), f"is not a column of {source.file}.{hint}")


def known_metrics() -> dict[str, str]:
    """Every metric that a record may have, with its description."""
    tasks = {f"{name}.{metric}": f"{metric} on {task.title}" for name, task in TASKS.items() for metric in task.metrics}
    objectives = Objectives.kinds().values()
    own = {f"heldout.{name}": text for kind in objectives for name, text in kind.measures.items()}
    return METRICS | COSTS | own | tasks | asking_checks.known_metrics() | probe_metrics.known()


def known_knobs() -> dict[str, Any]:
    """Every knob that a grid may vary or set: of systems, of fine-tuning and of measurements, for all tasks or one."""
    return {**_trained_knobs(System, tuple(TASKS), tuple(PROTOCOLS)), **asking_checks.known_knobs()}


@lru_cache(maxsize=8)
def _trained_knobs(system: type[System], tasks: tuple[str, ...], protocols: tuple[str, ...]) -> dict[str, Any]:
    protocol = knob("", f"Published settings to start from, task by task: {', '.join(protocols)}.")
    for_all = {FINETUNING + path: info for path, info in paths(FineTuning).items()}
    for_one = {f"{FINETUNING}{task}.{path}": info for task in tasks for path, info in paths(FineTuning).items()}
    return {**paths(system), **for_all, **for_one, FINETUNING + PROTOCOL: protocol}


def _check_measured(grid: Grid, where: Path_, name: str, document: Document) -> None:
    listed = [metric.name for metric in grid.metrics]
    if name not in listed:
        document.slip(where, f"'{name}' is not among the metrics.", listed, name)


def _check_stand_ins(grid: Grid, document: Document) -> None:
    for name, scale in grid.scales.items():
        for path, theirs in scale.stands_for.items():
            count = len(axes_at(grid, name)[path])
            if len(theirs) != count:
                text = f"{len(theirs)} published values for the {count} values of the axis at scale '{name}'"
                document.complain(("scales", name, "stands_for", path), text)


def _check_zips(grid: Grid, document: Document) -> bool:
    before = len(document.problems)
    placed: set[str] = set()
    for n, group in enumerate(grid.zip):
        for m, path in enumerate(group):
            if path in placed:
                document.complain(("zip", n, m), f"'{path}' is in two groups. Keep it in one.")
            placed.add(path)
    if len(document.problems) > before:
        return False
    for scale in grid.scales:
        try:
            dimensions(axes_at(grid, scale), grid.zip)
        except ConfigError as error:
            for problem in error.problems:
                document.complain(("zip",), f"at scale '{scale}': {problem.message}")
    return len(document.problems) == before


def _check_size(grid: Grid, document: Document) -> bool:
    before = len(document.problems)
    for name, scale in grid.scales.items():
        if problem := too_many(map(len, dimensions(axes_at(grid, name), grid.zip))):
            document.complain(("scales", name, "axes") if scale.axes else ("axes",), f"at scale '{name}': {problem}")
    return len(document.problems) == before


def _check_baseline(grid: Grid, layouts: Mapping[str, Layout], document: Document) -> None:
    for scale, plan in layouts.items():
        own = own_values(grid, scale, grid.baseline)
        absent = [p for p, v in own.items() if p in plan.axes and not any(same(v, o) for o in plan.axes[p])]
        for path in absent:
            listed = ", ".join(map(str, plan.axes[path]))
            text = f"{grid.baseline[path]!r} is not among its values at scale '{scale}': {listed}"
            document.complain(("baseline", path), text)
        known = {path: value for path, value in own.items() if path in plan.axes}
        if not absent and known and plan.kept and not any(agrees(row, known) for row in plan.kept):
            text = f"no cell has these values at scale '{scale}'. They are excluded or not combined."
            document.complain(("baseline",), text)


def _check_selections(grid: Grid, layouts: Mapping[str, Layout], document: Document, wrong: set[Path_]) -> None:
    """Exclusions that exclude nothing and sides of claims without a cell, at any scale.

    A side is not checked where a value of its axes is among the ``wrong`` ones: it may be the one that is meant.
    """
    doubtful = {where[where.index("axes") + 1] for where in wrong if "axes" in where}
    rows = {scale: [as_printed(grid, scale, row) for row in plan.kept] for scale, plan in layouts.items()}
    claim_checks.check_groups(grid, rows, document)
    mean_checks.check(grid, rows, document)
    check(grid, rows, document)
    every = [row for of_scale in rows.values() for row in (*of_scale, *mean_checks.rows_of(grid, of_scale))]
    dropped: list[Values] = [row for plan in layouts.values() for row, _ in plan.excluded]
    for n, rule in enumerate(grid.exclude):
        if set(rule.when) <= set(grid.axes) and not any(agrees(row, rule.when) for row in dropped):
            document.complain(("exclude", n), "excludes nothing. No combination has these values at any scale.")
    for n, claim in enumerate(grid.claims):
        for where, side in claim_checks.places(n, claim):
            at = {**grid.baseline, **side}
            if set(side) <= set(grid.axes) - doubtful and not any(agrees(row, at) for row in every):
                document.complain(where, f"no cell of any scale has {label(side)}")


def _check_idle(grid: Grid, scale: str, plan: Layout, document: Document) -> None:
    """Axes over settings of a fine-tuning that act on none of a scale's tasks, as readers where no text is read."""
    tasks, variants = tasks_at(grid, scale), grid.variants
    bundles = [variants[axis][value] for axis, values in plan.axes.items() if axis in variants for value in values]
    varied = {path.removeprefix(FINETUNING) for path in (*plan.axes, *itertools.chain(*bundles))}
    for name in sorted(varied & OF_SOME_SHAPES.keys()):
        reasons = [f"{task} {TASKS[task].shape.idle[name]}" for task in tasks if name in TASKS[task].shape.idle]
        if reasons and len(reasons) == len(tasks):
            text = f"{FINETUNING}{name} acts on none of its tasks: {'; '.join(reasons)}. Add a task that it acts on"
            document.complain(("scales", scale), text)


def _check_settings(grid: Grid, scale: str, plan: Layout, document: Document) -> set[Path_]:
    """Values that do not build, each at its own line; varies one direction and keeps the baseline in the others.

    Returns where they are.
    """
    workshop = Workshop(grid, scale, plan.baseline)
    noted: set[tuple[Path_, str]] = set()
    for values in probes(grid, scale):
        try:
            system = workshop.system(values)
            for task in tasks_at(grid, scale) or ("",):
                tuning = workshop.finetuning(values, task)
                if task:
                    fitting.check(system, task, tuning)
            asking_checks.build(grid, scale, workshop, values)
        except ConfigError as error:
            for problem in error.problems:
                where = _written(grid, scale, values, problem.path)
                if (where, problem.message) not in noted:
                    noted.add((where, problem.message))
                    shared = f" and what scales/{scale}.yaml sets" if grid.scales[scale].base else ""
                    example = f" (for example with {label(values)}{shared})" if where == ("scales", scale) else ""
                    document.complain(where, f"{problem}{example}" if example else problem.message)
    return {where for where, _ in noted}


def _written(grid: Grid, scale: str, values: Values, path: str) -> Path_:
    """Where the file sets a knob: a variant, an axis value, the scale's or the grid's ``set``, or the scale."""
    if path.startswith(f"{START}."):
        where = _written(grid, scale, values, START)
        return where if where == ("scales", scale) else (*where, path.removeprefix(f"{START}."))
    for axis, variants in grid.variants.items():
        if path in variants[values[axis]]:
            return ("variants", axis, values[axis], path)
    if path in values:
        own = grid.scales[scale].axes
        where: Path_ = ("scales", scale, "axes", path) if path in own else ("axes", path)
        options, value = own.get(path, grid.axes[path]), values[path]
        itself = (n for n, option in enumerate(options) if option is value)  # ten thousand wrong values: quick enough
        return (*where, next(itself, None) or next(n for n, option in enumerate(options) if same(option, value)))
    if path in grid.scales[scale].set:
        return ("scales", scale, "set", path)
    return ("set", path) if path in grid.set else ("scales", scale)


def _check_cells(grid: Grid, scale: str, plan: Layout, document: Document) -> bool:
    """Values that build alone but not together."""
    workshop, reasons = Workshop(grid, scale, plan.baseline), set()
    for values in plan.kept[:_MOST_BUILT]:
        try:
            workshop.system(values)
        except ConfigError as error:
            why = "; ".join(map(str, error.problems))
            if why not in reasons:
                reasons.add(why)
                text = f"{label(values)} do not go together: {why}. Exclude such combinations and give the reason"
                document.complain(("scales", scale), text)
    return not reasons


def _check_starts(grid: Grid, scale: str, plan: Layout, document: Document) -> None:
    """Cells that would continue from different pretrainings, which cannot be compared seed by seed.

    Of a chain the first one counts, whose chance all have.
    """
    workshop, ancestors = Workshop(grid, scale, plan.baseline), []
    continued = [row for row in plan.kept[:_MOST_BUILT] if workshop.system(row).training.is_continued]
    search = search_at(grid, scale) if continued else None
    for row in continued:
        for combination in combinations(search) if search else [{}]:
            with contextlib.suppress(ConfigError):  # of the search, which has checks of its own
                ancestors.append(workshop.system({**row, **combination}).trunks[-1])
    orders = {ancestor.format.sentence_order for ancestor in ancestors}
    second = {_ORDER} if orders == {"text", "backward"} else set[str]()  # two chains, as ULMFiT's
    others = [other for other in ancestors[1:] if other.essence() != ancestors[0].essence()]
    if differing := {path for other in others for path in diff(ancestors[0], other)} - _LABELS - second:
        where = _written(grid, scale, plan.kept[0], START)
        text = f"the cells would continue from pretrainings that differ in {', '.join(sorted(differing))}"
        document.complain(where, f"{text}. Name these knobs in {START}, so that all continue from the same one.")
