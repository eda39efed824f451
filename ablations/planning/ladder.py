"""Ladders: the way from one published system to another, one difference at a time.

A grid with a ``ladder`` has the axis ``rung``. Its cells are the lower system, then each rung on top of those below it,
up to the upper system, and then the upper system without each single rung.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ablations.core.strict_yaml import Document
from ablations.planning.cells import part_lacking
from ablations.schema.cell import Cell
from lightning_modules.config import did_you_mean, diff
from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS

AXIS = "rung"
_PLACE = "ladder"
_LABELS = ("name", "paper")
_WITHOUT = "without "


def expand(document: Document) -> None:
    """Writes the axis, the variants and the baseline of a ladder into the document of its grid."""
    wanted, base = document.data.get(_PLACE), document.data.get("base")
    if not isinstance(wanted, dict) or base not in SYSTEMS or not _is_shaped(wanted):
        return  # which the checks of every grid complain of
    if wanted["to"] not in SYSTEMS:
        document.complain((_PLACE, "to"), f"there is no system '{wanted['to']}'.{did_you_mean(wanted['to'], SYSTEMS)}")
        return
    for key in ("axes", "variants", "baseline"):
        if AXIS in document.data.setdefault(key, {}):
            document.complain((key, AXIS), "comes from the ladder. Leave this out.")
    lower, upper, rungs = SYSTEMS[base], SYSTEMS[wanted["to"]], wanted["rungs"]
    is_complete = _check(lower, upper, rungs, document)
    variants = cells(lower, upper, rungs) if is_complete else {base: {}}
    document.data["axes"][AXIS] = list(variants)
    document.data["variants"][AXIS] = variants
    document.data["baseline"][AXIS] = base


def _is_shaped(wanted: Mapping[str, Any]) -> bool:
    rungs = wanted.get("rungs")
    return (
        isinstance(wanted.get("to"), str)
        and isinstance(rungs, dict)
        and all(isinstance(knobs, list) for knobs in rungs.values())
    )


def cells(lower: System, upper: System, rungs: Mapping[str, Iterable[str]]) -> dict[str, dict[str, Any]]:
    """The cells of a ladder by name; each sets every knob in which the two systems differ.

    The upper system without its last rung is the cell below it and is not repeated.
    """
    names = list(rungs)
    taken = {lower.name: set[str]()}
    for count, name in enumerate(names, start=1):
        taken[f"+ {name}"] = set(names[:count])
    for name in names[:-1]:
        taken[f"{_WITHOUT}{name}"] = {*names} - {name}
    return {
        cell: {path: _value(upper if name in above else lower, path) for name in names for path in rungs[name]}
        for cell, above in taken.items()
    }


def neighbours(cells: Sequence[Cell]) -> dict[str, Cell]:
    """The label of each cell -> the cell it is a rung away from: the one below it, or the upper system.

    Empty where the grid varies more than the rung, or where a cell between others is left out.
    """
    rising = [cell for cell in cells if not str(cell.values.get(AXIS)).startswith(_WITHOUT)]
    if any(set(cell.values) != {AXIS} for cell in cells) or len(rising) < 2:
        return {}
    beside = {above.label: below for below, above in itertools.pairwise(rising)}
    return beside | {cell.label: rising[-1] for cell in cells if cell not in rising}


def differences(lower: System, upper: System) -> set[str]:
    """The knobs in which two systems differ, as a rung may name them; a part that one lacks counts as one knob."""
    return {
        part_lacking(path, lower, upper)
        for path in diff(lower, upper)
        if path not in _LABELS and lower.get(path) != upper.get(path)
    }


def within(path: str, knobs: Iterable[str]) -> set[str]:
    """The knobs that a rung means by a path: the knob itself, or all those of a part."""
    return {knob for knob in knobs if knob == path or knob.startswith(f"{path}.")}


def _value(system: System, path: str) -> Any:
    value = system.get(path)
    return value.to_dict() if hasattr(value, "to_dict") else value


def _check(lower: System, upper: System, rungs: Mapping[str, Iterable[str]], document: Document) -> bool:
    """Complains of rungs that are not every difference once; returns whether they are."""
    before, known, taken = len(document.problems), differences(lower, upper), dict[str, str]()
    for name, knobs in rungs.items():
        for n, path in enumerate(knobs):
            where = (_PLACE, "rungs", name, n)
            named = within(path, known)
            if twice := named & taken.keys():
                document.complain(where, f"'{path}' belongs to the rung '{taken[min(twice)]}' already")
            elif not named:
                systems = f"{lower.name} and {upper.name}"
                document.complain(where, f"'{path}' is no difference of {systems}.{did_you_mean(str(path), known)}")
            taken |= dict.fromkeys(named - taken.keys(), name)
    if missing := sorted(known - taken.keys()):
        text = f"the rungs leave out {', '.join(missing)}, in which {lower.name} and {upper.name} differ too"
        document.complain((_PLACE, "rungs"), text)
    return len(document.problems) == before
