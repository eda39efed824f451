"""How many runs this machine makes at once."""

import os

from ablations.core.provenance import gpus


def slots() -> int:
    """The number of runs at once: one per GPU, else one per processor core that this process may use."""
    return len(gpus()) or cores()


def cores() -> int:
    """The number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
