"""What is wrong with the variants of a grid, and with the values that replace theirs at a scale."""

import itertools
from typing import Any

from ablations.core.strict_yaml import Document
from ablations.literature.published_values import same
from ablations.schema.grid import SYSTEM_AXIS, Grid


def axes(grid: Grid, document: Document) -> None:
    """Adds the problems with names of axes of variants, which need not be knobs."""
    for axis in grid.variants:
        if "." in axis or axis == SYSTEM_AXIS:
            document.slip(("variants", axis), "an axis of variants needs a name without a dot other than 'system'", ())
        elif axis not in grid.axes:
            document.slip(("variants", axis), "is not an axis of this grid.", grid.axes)


def stand_ins(grid: Grid, document: Document) -> None:
    """Adds the problems with values that replace those of variants at a scale."""
    values: dict[str, list[Any]] = {}
    for knobs in itertools.chain(*(named.values() for named in grid.variants.values())):
        for path, value in knobs.items():
            values.setdefault(path, []).append(value)
    for name, scale in (grid.scales if values else {}).items():  # a ladder that is wrong has given no variants
        for path, pairs in scale.variants.items():
            where = ("scales", name, "variants", path)
            if path not in values:
                document.slip(where, "is a knob of no variant.", values)
            for n, (value, _) in enumerate(pairs if path in values else ()):
                if not any(same(value, one) for one in values[path]):
                    some = ", ".join(dict.fromkeys(map(str, values[path])))
                    document.complain((*where, n), f"no variant has the value {value}. They have {some}.")
