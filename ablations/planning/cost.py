"""The cost of runs before they run: parameters, steps, tokens, FLOPs, and the expected speed."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablations.core.machine import gpus
from ablations.core.store import Damage
from ablations.schema.kinds import KINDS
from ablations.schema.record import Record
from ablations.schema.run import Run
from lightning_modules.config import Settings, flat, once
from lightning_modules.system import System

# The assumed speed of one slot, in FLOP per second, until a run of the same device class has finished:
# one thread of a current server core in bfloat16, one data-centre GPU at small models.
ASSUMED_SPEED = {"cpu": 2e11, "gpu": 3e13}
STEP_START = 5e-3  # seconds of a step that are none of its FLOPs, measured with a model of 48 thousand parameters

# Seconds that no step accounts for, measured with few steps on server cores. Each run builds its model, measures, and
# writes a record; an execution first imports torch, Lightning and our code, in a worker that stays. A run that builds a
# tokenizer and a token store first takes longer, once per text.
RUN_START, LAUNCH_START = 0.3, 5.5

_LIKE = 2.0  # runs of like size differ by less than this factor in FLOPs per token
_TELLING = 10.0  # seconds; the speed of a shorter run is that of its start


@dataclass(frozen=True)
class Cost:
    """The cost of one run, known before it runs; ``embeddings`` are part of the parameters."""

    parameters: int
    steps: int
    tokens: int
    flops: float
    embeddings: int = 0


@once
def _shape(part: Settings) -> tuple[Any, ...]:
    return tuple(leaf for leaf in flat(part.resolved()).items() if not isinstance(leaf[1], (float, dict)))


def costs(runs: Sequence[Run]) -> dict[str, Cost]:
    """Run id -> cost."""
    sizes: dict[tuple[Any, ...], dict[str, int]] = {}  # one count per architecture
    pretraining: dict[int, Cost] = {}  # by object: the seeds of a cell share their system
    by_id: dict[str, Cost] = {}
    for run in runs:
        cost = pretraining.get(id(run.system)) or _pretraining(run.system, sizes)
        pretraining[id(run.system)] = cost
        if run.task or run.system.checkpoint:
            cost = Cost(cost.parameters, *KINDS[run.kind].work(run), embeddings=cost.embeddings)
        by_id[run.id] = cost
    return by_id


def _pretraining(system: System, sizes: dict[tuple[Any, ...], dict[str, int]]) -> Cost:
    # all that changes the number of parameters: counting again for each of many rates would take most of a plan's time
    architecture = system.data.tokenizer.vocab_size, _shape(system.model), _shape(system.objectives)
    if architecture not in sizes:
        sizes[architecture] = system.parameters_by_part()
    parts, steps = sizes[architecture], system.training.last_step
    return Cost(sum(parts.values()), steps, system.tokens(), system.flops(), parts.get("embeddings", 0))


def seconds(costs: Iterable[Cost], speed: float, slots: int = 1) -> float:
    """Wall time of runs at so many FLOP per second and run, so many of them at a time."""
    each = [RUN_START + cost.flops / speed for cost in costs]
    return max(sum(each) / min(slots, len(each)), *each) if each else 0.0


def speed(
    records: Mapping[str, Record | Damage], planned: Sequence[System] = (), device: str = ""
) -> tuple[float, str]:
    """FLOP per second of one slot of a device, and its source: measured by finished pretrainings, or assumed.

    A small model does fewer FLOP per second than a large one. If runs of like size have finished, within a factor of
    two of the middle one of the ``planned`` in FLOPs per token, they count alone. Of a step of a small model most is
    overhead, so its assumed speed is lower. The device is by default the first
    of this machine.
    """
    device = device or next(iter(gpus().values()), "cpu")
    measured = [
        (record.cost["flops"] / max(1.0, record.cost.get("tokens", 0.0)), record.cost["flops"] / record.cost["seconds"])
        for record in records.values()
        if isinstance(record, Record)
        and record.outcome == "done"
        and record.kind == "pretrain"
        and record.provenance.get("device") == device
        and record.cost.get("flops", 0.0) >= 1.0  # a record may lack either
        and record.cost.get("seconds", 0.0) >= _TELLING
    ]
    if measured:
        middle = statistics.median([system.flops_per_token() for system in planned] or [0.0])
        alike = [found for size, found in measured if middle / _LIKE <= size <= middle * _LIKE]
        finished, like = alike or [found for _, found in measured], " of like size" * bool(alike)
        return statistics.median(finished), f"median of {len(finished)} finished runs{like} on {device}"
    step = statistics.median([system.flops_per_step() for system in planned] or [math.inf])
    assumed = 1 / (STEP_START / step + 1 / ASSUMED_SPEED["cpu" if device == "cpu" else "gpu"])
    return assumed, f"assumed for {device}. No run of {_TELLING:g} s or more has finished on it yet."
