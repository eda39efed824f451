"""How many runs go on at once on this machine."""

import os

from ablations.core.provenance import gpus


def slots() -> int:
    """How many runs go on at once here: one a GPU, else one a processor core that this process may use."""
    return len(gpus()) or cores()


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
