"""How the runs of a plan stand in the store: finished, stale, missing, or without the run they would start from."""

import json
from collections.abc import Mapping, Sequence
from typing import Literal

from ablations.core.store import Damage
from ablations.schema.record import Outcome, Record
from ablations.schema.run import Run

State = Outcome | Literal["stale", "newer", "missing", "orphaned"]


SETTLED: tuple[State, ...] = ("done", "diverged", "invalid", "newer", "orphaned")  # what executing a plan leaves alone


_BARREN = ("diverged", "invalid", "orphaned")  # states of runs that leave no weights for others


def run_states(runs: Sequence[Run], found: Mapping[str, Record | Damage]) -> dict[str, State]:
    """How each run stands, parents before children."""
    sound = {run_id: record for run_id, record in found.items() if isinstance(record, Record)}
    written = {json.dumps(record.config.get("numerics"), sort_keys=True) for record in sound.values()}
    generations = [json.loads(text) for text in sorted(written)]
    states: dict[str, State] = {}
    for run in runs:
        here = found.get(run.id)
        if isinstance(here, Record):
            states[run.id] = here.outcome
        elif isinstance(here, Damage) and here.flaw == "newer":
            states[run.id] = "newer"
        else:
            states[run.id] = "stale" if _elsewhen(run, generations, sound) else "missing"
            if any(states[parent] in _BARREN for parent in run.parents):
                states[run.id] = "orphaned"  # what it would start from will never be there
    return states


def _elsewhen(run: Run, generations: list[dict[str, int]], sound: Mapping[str, Record]) -> bool:
    """Whether the same run was finished by code of another generation of numerics."""
    kin = (n for n in generations if n and n.keys() == run.numerics.keys() and n != run.numerics)
    others = (run.of_generation(numerics).id for numerics in kin)
    return any(run_id in sound and sound[run_id].final for run_id in others)
