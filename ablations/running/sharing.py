"""How many runs share a GPU: what its memory and its time have room for, by the plan and by a first run on it."""

import math
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ablations.running import estimate
from ablations.running.launch import Launch

MOST = 4  # runs that share a device
_GIVEN = 0.8  # of a device's memory: the rest is for kernels, and for what the allocator cannot use
_LOOKS = 5  # at devices on which a run trains
_PERIOD = 1.0  # seconds between looks
_FIELDS = "memory.used,memory.total,utilization.gpu"
_MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Look:
    """What some devices do.

    Attributes:
        used: Bytes in use on the fullest of them.
        total: Bytes that the smallest has.
        work: The share of the time that the busiest works.
    """

    used: float
    total: float
    work: float

    @classmethod
    def at(cls, names: Sequence[str]) -> "Look | None":
        """What devices do now, by the names of ``CUDA_VISIBLE_DEVICES``; None where the driver does not say."""
        command = ["nvidia-smi", f"--id={','.join(names)}", f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
            rows = [tuple(map(float, line.split(","))) for line in done.stdout.splitlines() if line.strip()]
            used, total, work = zip(*rows, strict=True)
        except (OSError, subprocess.SubprocessError, ValueError):
            return None
        return cls(max(used) * _MEGABYTE, min(total) * _MEGABYTE, max(work) / 100)


def fitting(before: Look, during: Sequence[Look], planned: Sequence[float]) -> int:
    """How many runs a device has room for, at least one and at most `MOST`.

    If u bytes of T were in use before and U while one run trained, and plans say p bytes for each run that comes, then
    none takes more than ::

        r = max(p) max(1, (U - u) / min(p))

    and (.8 T - u) / r of them fit. One that works for a share w of the time leaves time for 1 / w, to the nearest.

    Args:
        before: The devices without a run.
        during: The devices with one run each, at several moments.
        planned: Bytes of each run that comes; one that is not known, NaN, shares nothing.
    """
    if not planned or any(map(math.isnan, planned)):
        return 1
    taken = max(look.used for look in during) - before.used
    each = max(planned) * max(1.0, taken / min(planned))
    in_memory = int((_GIVEN * before.total - before.used) / each)
    work = statistics.median(look.work for look in during)
    in_time = round(1 / max(work, 1 / MOST))
    return max(1, min(MOST, in_memory, in_time))


class FirstRuns:
    """Watches devices that have one run each, until it can be said how many they have room for.

    Args:
        names: The devices.
        launch: What makes runs on them.
    """

    def __init__(self, names: Sequence[str], launch: Launch) -> None:
        self.names, self.launch = names, launch
        self.before, self.during = Look.at(names), list[Look]()
        self._next = 0.0

    def room(self) -> int | None:
        """How many runs each device has room for; None before that is known."""
        if self.before is None:
            return 1
        is_training = any(0 < share < 1 for share in self.launch.shares.values())
        if is_training and time.monotonic() >= self._next:
            self._next = time.monotonic() + _PERIOD
            self.during += [look] if (look := Look.at(self.names)) else []
        if len(self.during) < _LOOKS:
            return None
        systems = {id(run.system): run.system for run in self.launch.plan.pending}.values()
        return fitting(self.before, self.during, estimate.memory(systems, self.launch.execution))
