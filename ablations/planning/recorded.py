"""Which grids have records at a scale, or data, without a plan: ids of runs take time, and data may ask a hub."""

import functools
import json
from collections.abc import Iterator

from ablations.core.store import Snapshot
from ablations.planning import filling
from ablations.planning.afterwards import measured_at, tasks_at
from ablations.planning.cells import Workshop, layout
from ablations.planning.search import combinations, search_at
from ablations.schema.grid import Grid
from ablations.schema.record import Record
from lightning_modules.config import ConfigError, identity
from lightning_modules.system import System
from lightning_modules.tasks import pins as task_pins
from lightning_modules.zero_shot.table import ZERO_SHOT


def systems(snapshot: Snapshot) -> frozenset[str] | None:
    """The identities of the systems that have records. None if that of a record cannot be determined."""
    records = (entry for entry in snapshot.found.values() if isinstance(entry, Record))
    texts = {json.dumps(record.config.get("system")) for record in records}
    try:
        return frozenset(map(_identity, texts))
    except ConfigError:
        return None


def at_hand(grid: Grid, scale: str) -> bool:
    """Whether the data of all tasks of a scale can be named without being there, or are. It opens no connection."""
    asked = (ZERO_SHOT[task].at_hand() for task in measured_at(grid, scale))
    return all(task_pins.at_hand(task) for task in tasks_at(grid, scale)) and all(asked)


@functools.lru_cache(maxsize=4096)
def _identity(text: str) -> str:
    return identity(System.read(json.loads(text)).essence())


def may_have(grid: Grid, scale: str, known: frozenset[str] | None) -> bool:
    """Whether some cell of a grid at a scale may have a record, whatever its seeds, texts and tasks.

    Args:
        scale: One of its scales, or one with a scale file.
        known: From `systems`.

    Raises:
        ConfigError: For a grid that cannot be planned at that scale.
    """
    if known is None:
        return True
    return bool(known) and any(identity(system.essence()) in known for system in _possible(grid, scale))


def _possible(grid: Grid, scale: str) -> Iterator[System]:
    """The system of each cell; where a search chooses, one for each of its combinations."""
    grid = filling.at(grid, scale)
    found, search = layout(grid, scale), search_at(grid, scale)
    workshop = Workshop(grid, scale, found.baseline)
    for values in found.kept:
        for chosen in combinations(search) if search else ({},):
            yield workshop.system({**values, **chosen})
