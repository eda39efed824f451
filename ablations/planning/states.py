"""The states of a plan's runs in the store: finished, stale, missing, or without usable parents."""

import json
from collections.abc import Mapping, Sequence
from typing import Literal

from ablations.core.store import Damage
from ablations.schema.record import Outcome, Record
from ablations.schema.run import Run

State = Outcome | Literal["stale", "newer", "missing", "orphaned"]


SETTLED: tuple[State, ...] = ("done", "diverged", "invalid", "newer", "orphaned")  # a plan does not make these runs


_BARREN = ("diverged", "invalid", "orphaned")  # states of runs without weights for their children


def run_states(runs: Sequence[Run], surveyed: Mapping[str, Record | Damage]) -> dict[str, State]:
    """Run id -> state; ``runs`` lists parents before children."""
    sound = {run_id: record for run_id, record in surveyed.items() if isinstance(record, Record)}
    written = {json.dumps(record.config.get("numerics"), sort_keys=True) for record in sound.values()}
    generations = [read for text in sorted(written) if isinstance(read := json.loads(text), dict)]
    states: dict[str, State] = {}
    for run in runs:
        entry = surveyed.get(run.id)
        if isinstance(entry, Record):
            states[run.id] = entry.outcome
        elif isinstance(entry, Damage) and entry.flaw == "newer":
            states[run.id] = "newer"
        else:
            states[run.id] = "stale" if _elsewhen(run, generations, sound) else "missing"
            if any(states[parent] in _BARREN for parent in run.parents):
                states[run.id] = "orphaned"  # a parent will never have weights
    return states


def _elsewhen(run: Run, generations: list[dict[str, int]], sound: Mapping[str, Record]) -> bool:
    """Whether code of another numerics generation finished the same run."""
    kin = (n for n in generations if n.keys() == run.numerics.keys() and n != run.numerics)
    others = (run.of_generation(numerics).id for numerics in kin)
    return any(run_id in sound and sound[run_id].final for run_id in others)
