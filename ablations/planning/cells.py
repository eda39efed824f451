"""From a grid at a scale to its cells: combinations of axis values, the systems they make, and equal budgets."""

import functools
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ablations.literature.published_values import repeated, same
from ablations.measurements.selection import agrees
from ablations.planning.afterwards import finetuning, measuring
from ablations.schema.grid import AFTERWARDS, FINETUNING, MEASURING, SYSTEM_AXIS, Grid
from lightning_modules.config import ConfigError, Problem, did_you_mean, has_knob, is_kind
from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS
from lightning_modules.tasks import FineTuning
from lightning_modules.zero_shot.settings import Measurement

Values = dict[str, Any]
CHECKPOINT = "checkpoint"  # the knob that names a released checkpoint
_MOST_COMBINATIONS = 100_000  # of axes; more take minutes to list and no machine runs them


@dataclass(frozen=True)
class Layout:
    """The combinations of a grid at a scale.

    Attributes:
        axes: Axis -> its values at this scale.
        kept: Combinations that become cells, the baseline first, then in the order of the file.
        excluded: Combinations that are left out, each with the grid's reason.
        baseline: A value for each axis: the grid's baseline, or the axis's first value.
    """

    axes: dict[str, tuple[Any, ...]]
    kept: list[Values] = field(default_factory=list)
    excluded: list[tuple[Values, str]] = field(default_factory=list)
    baseline: Values = field(default_factory=dict)


def axes_at(grid: Grid, scale: str, axes: Mapping[str, Sequence[Any]] | None = None) -> dict[str, tuple[Any, ...]]:
    """Axis -> values: the caller's, else the scale's, else the grid's.

    Raises:
        ConfigError: For an unknown axis, variant or system.
    """
    chosen = {path: tuple(values) for path, values in (axes or {}).items()}
    wrong = [
        Problem(path, f"is not an axis of '{grid.name}'.{did_you_mean(path, grid.axes)}")
        for path in chosen
        if path not in grid.axes
    ]
    for path, values in chosen.items():
        if (names := names_of(grid, path)) is not None:
            unknown = [value for value in values if value not in names]
            wrong += [Problem(path, f"there is no {path} {v!r}.{did_you_mean(str(v), names)}") for v in unknown]
    if wrong:
        raise ConfigError(wrong)
    return {path: chosen.get(path, grid.scales[scale].axes.get(path, values)) for path, values in grid.axes.items()}


def varied(grid: Grid) -> set[str]:
    """The knobs in which the cells of a grid differ."""
    named = (knobs for variants in grid.variants.values() for knobs in variants.values())
    return {*grid.axes, *(path for knobs in named for path in knobs)}


def has_part(system: System, path: str) -> bool:
    """Whether a system has the part that a knob belongs to, of the kind that has the knob."""
    part, _, knob = path.rpartition(".")
    held = system.get(part) if part else None
    return not part or (held is not None and (held.keeps_knobs or knob in type(held).model_fields))


def part_lacking(path: str, *systems: System) -> str:
    """The knob, or the outermost part around it that one of the systems lacks."""
    words = path.split(".")
    around = [".".join(words[:count]) for count in range(1, len(words))]
    lacking = (part for part in around for one in systems if has_part(one, part) and one.get(part) is None)
    return next(lacking, path)


def names_of(grid: Grid, path: str) -> list[str] | None:
    """The allowed values of an axis of names; None for knobs."""
    named = SYSTEMS if path == SYSTEM_AXIS else grid.variants.get(path)
    return None if named is None else list(named)


def as_printed(grid: Grid, scale: str, values: Mapping[str, Any]) -> Values:
    """A combination in published values: each stand-in of the scale replaced by the value it represents."""
    return {**values, **stand_ins(grid, scale, values)}


def stand_ins(grid: Grid, scale: str, values: Mapping[str, Any]) -> Values:
    """Axis -> published value, for the values of a combination that are stand-ins at a scale."""
    return {
        path: theirs
        for path in grid.scales[scale].stands_for
        for ours, theirs in stand_in_pairs(grid, scale, path)
        if path in values and same(values[path], ours)
    }


def own_values(grid: Grid, scale: str, printed: Mapping[str, Any]) -> Values:
    """The inverse of `as_printed`: published values replaced by their stand-ins at a scale."""
    values = dict(printed)
    for path in values.keys() & grid.scales[scale].stands_for.keys():
        pairs = stand_in_pairs(grid, scale, path)
        values[path] = next((ours for ours, theirs in pairs if same(theirs, printed[path])), printed[path])
    return values


def stand_in(pairs: Iterable[tuple[Any, Any]], value: Any) -> Any:
    """The stand-in for the value of a knob. It is the value itself if nothing replaces it."""
    return next((here for there, here in pairs if same(there, value)), value)


def stand_in_pairs(grid: Grid, scale: str, path: str) -> list[tuple[Any, Any]]:
    """Each value of an axis at a scale with the published value it represents."""
    ours = axes_at(grid, scale).get(path, ())
    return list(zip(ours, grid.scales[scale].stands_for[path], strict=False))


def dimensions(axes: Mapping[str, Sequence[Any]], zips: Sequence[Sequence[str]]) -> list[list[Values]]:
    """The independent directions of a grid: lists of settings of one axis or of several zipped axes.

    >>> dimensions({"a": [1, 2], "b": [3, 4], "c": [5]}, [("a", "b")])
    [[{'a': 1, 'b': 3}, {'a': 2, 'b': 4}], [{'c': 5}]]

    Raises:
        ConfigError: If zipped axes have different numbers of values, or a combination twice.
    """
    directions: list[list[Values]] = []
    placed: set[str] = set()
    for path in axes:
        if path in placed:
            continue
        group = next((tuple(g) for g in zips if path in g), (path,))
        placed |= set(group)
        counts = {name: len(axes[name]) for name in group}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{name} has {count}" for name, count in counts.items())
            raise ConfigError([Problem("zip", f"zipped axes need the same number of values: {listed}")])
        rows = [dict(zip(group, row, strict=True)) for row in zip(*(axes[name] for name in group), strict=True)]
        if len(group) > 1 and (twice := next(repeated([tuple(row.values()) for row in rows]), None)):
            raise ConfigError([Problem("zip", f"{label(rows[twice])} is listed twice")])
        directions.append(rows)
    return directions


def too_many(counts: Iterable[int]) -> str:
    """What is wrong with the product of some numbers of values; empty if nothing is."""
    combinations = math.prod(counts)
    if combinations <= _MOST_COMBINATIONS:
        return ""
    return f"{combinations:,} combinations. At most {_MOST_COMBINATIONS:,} are allowed: use fewer values, or zip axes."


def layout(grid: Grid, scale: str, axes: Mapping[str, Sequence[Any]] | None = None) -> Layout:
    """Every combination of a grid at a scale.

    Raises:
        ConfigError: For unknown axes, axes that cannot be zipped, and more combinations than anybody runs.
    """
    values = axes_at(grid, scale, axes)
    directions = dimensions(values, grid.zip)
    if problem := too_many(map(len, directions)):
        raise ConfigError([Problem("axes", problem)])
    home = {path: options[0] for path, options in values.items()} | own_values(grid, scale, grid.baseline)
    plan = Layout(values, baseline=home)
    for parts in itertools.product(*directions):
        row = {path: value for part in parts for path, value in part.items()}
        row = {path: row[path] for path in values}
        reason = next((rule.reason for rule in grid.exclude if agrees(row, rule.when)), None)
        if reason is None:
            plan.kept.append(row)
        else:
            plan.excluded.append((row, reason))
    plan.kept.sort(key=lambda row: not agrees(row, plan.baseline))  # stable: everything else keeps its order
    return plan


def probes(grid: Grid, scale: str) -> Iterator[Values]:
    """A few combinations that cover every value: each varies one direction and keeps the baseline in the others."""
    plan = layout(grid, scale)
    directions = dimensions(plan.axes, grid.zip)
    home = {path: v for rows in directions for path, v in _home(rows, plan.baseline).items()}
    left = {json.dumps(values, sort_keys=True) for values in plan.kept}
    for rows in directions:
        for row in rows:
            values = {path: {**home, **row}[path] for path in plan.axes}
            key = json.dumps(values, sort_keys=True)
            if key in left:
                left.discard(key)
                yield values


def _home(rows: list[Values], baseline: Values) -> Values:
    return next((row for row in rows if agrees(row, {p: baseline[p] for p in row})), rows[0])


def label(values: Mapping[str, Any]) -> str:
    """``rate=0.15, num_layers=4``: the shortest unambiguous end of each path.

    Values of axes that are no knobs appear alone.

    >>> label({"model.dropout": 0.1, "model.attention_dropout": 0, "system": "bert", "a.rate": 1, "b.rate": 2})
    'dropout=0.1, attention_dropout=0, bert, a.rate=1, b.rate=2'
    """
    shown, paths = [], tuple(values)
    for path, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        shown.append(text if "." not in path else f"{_short(path, paths)}={'none' if value is None else text}")
    return ", ".join(shown)


@functools.lru_cache(maxsize=1024)  # called again and again with the paths of a grid's axes
def _short(path: str, among: tuple[str, ...]) -> str:
    parts = path.split(".")
    for count in range(1, len(parts)):
        tail = ".".join(parts[-count:])
        if not any(other != path and f".{other}".endswith(f".{tail}") for other in among):
            return tail
    return path


class Workshop:
    """Makes the systems of a grid at a scale.

    Later settings win: the base system, the scale's own file, the grid's ``set``, the ``set`` of its entry for the
    scale, the cell's values.
    """

    def __init__(self, grid: Grid, scale: str, baseline: Values) -> None:
        self.grid, self.baseline = grid, baseline
        common = {**grid.scales[scale].base, **grid.set, **grid.scales[scale].set}
        self.afterwards = {path: value for path, value in common.items() if path.startswith(AFTERWARDS)}
        self.common = {path: value for path, value in common.items() if path not in self.afterwards}
        self._own = {**grid.set, **grid.scales[scale].set}
        own = grid.scales[scale].set
        self._at_scale = {path: value for path, value in own.items() if path in self.common}
        self._stand_ins = grid.scales[scale].variants
        self._started: dict[str, dict[str, Any] | None] = {}
        self._reference: float | None = None
        self._settings: dict[str, FineTuning | Measurement] = {}

    def knobs(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The knobs of a combination, in the order of the axes, with variants replaced by their knobs."""
        knobs: dict[str, Any] = {}
        for path, value in values.items():
            if path != SYSTEM_AXIS:
                variants = self.grid.variants.get(path)
                knobs |= {path: value} if variants is None else self._here(variants[value])
        return knobs

    def _here(self, knobs: Mapping[str, Any]) -> dict[str, Any]:
        """The knobs of a variant, with the values that replace theirs at this scale."""
        if not self._stand_ins:
            return dict(knobs)
        return {path: stand_in(self._stand_ins.get(path, ()), value) for path, value in knobs.items()}

    def finetuning(self, values: Mapping[str, Any], task: str) -> FineTuning:
        """How the pretrained system of a combination is fine-tuned on a task; see `finetuning`."""
        return self._afterwards(values, task, FINETUNING, finetuning)

    def measuring(self, values: Mapping[str, Any], task: str) -> Measurement:
        """How the pretrained system of a combination is evaluated on a zero-shot task. See `measuring`."""
        return self._afterwards(values, task, MEASURING, measuring)

    def _afterwards(self, values: Mapping[str, Any], task: str, prefix: str, settings: Callable[..., Any]) -> Any:
        knobs = {**self.afterwards, **self.knobs(values)}
        own = {path: value for path, value in knobs.items() if path.startswith(prefix)}
        key = json.dumps([prefix, task, own])
        if key not in self._settings:
            self._settings[key] = settings(own, task)
        return self._settings[key]

    def system(self, values: Mapping[str, Any]) -> System:
        """The system of a combination, with the steps its budget allows.

        Raises:
            ConfigError: Naming each bad knob.
        """
        system = self._made(values)
        if self.grid.budget.equal == "steps" or system.checkpoint:
            return system
        if self._reference is None:
            reference = self._made(self.baseline)
            self._reference = self._per_step(reference) * reference.training.steps
        steps = max(1, round(self._reference / self._per_step(system)))
        training = system.training.model_copy(update={"steps": steps})  # any whole number above 0 is valid
        return system.model_copy(update={"training": training})

    def _per_step(self, system: System) -> float:
        return system.tokens_per_step() if self.grid.budget.equal == "tokens" else system.flops_per_step()

    def _made(self, values: Mapping[str, Any]) -> System:
        name = values.get(SYSTEM_AXIS, self.grid.base)
        knobs = {path: value for path, value in self.knobs(values).items() if not path.startswith(AFTERWARDS)}
        checkpoint = knobs.get(CHECKPOINT, self.common.get(CHECKPOINT, ""))
        if checkpoint:  # which has what all cells of the grid are given, or another pretraining's
            return SYSTEMS[name].but(**{**self._at_scale, **knobs, CHECKPOINT: checkpoint})
        start = self._start(name)
        changed = start and _changed(start, knobs)
        if changed:
            try:
                return System.read(changed)
            except ConfigError:
                pass  # the code below raises it with every problem
        return SYSTEMS[name].but(**{**self._suited(self._common(name), knobs), **knobs})

    def _suited(self, common: Mapping[str, Any], knobs: Mapping[str, Any]) -> dict[str, Any]:
        """The common settings without those of the scale that a kind which a cell chooses does not have."""
        kinds = {path: kind for path, kind in {**common, **knobs}.items() if is_kind(System, path)}
        return {
            path: value
            for path, value in common.items()
            if path in self._own or all(has_knob(System, path, part, kind) for part, kind in kinds.items())
        }

    def _common(self, name: str) -> dict[str, Any]:
        """The settings of all cells of a system, without those of parts that neither the system nor the grid has."""
        system = SYSTEMS[name]
        return {path: value for path, value in self.common.items() if path in self._own or has_part(system, path)}

    def _start(self, name: str) -> dict[str, Any] | None:
        """The settings that every cell of a system starts from, as data; None if they are invalid alone."""
        if name not in self._started:
            try:
                self._started[name] = SYSTEMS[name].but(**self._common(name)).to_dict()
            except ConfigError:
                self._started[name] = None
        return self._started[name]


def _changed(data: dict[str, Any], knobs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Settings as data with some knobs changed: as ``but``, in a tenth of its time for ten thousand cells.

    None where ``but`` is needed: for unknown knobs and kinds, and below parts that are switched off.
    """
    data = dict(data)
    for path, value in knobs.items():
        if is_kind(System, path):
            return None
        *branches, leaf = path.split(".")
        part = data
        for name in branches:
            if not isinstance(part.get(name), dict):
                return None
            part[name] = dict(part[name])
            part = part[name]
        if leaf not in part:
            return None
        part[leaf] = value
    return data
