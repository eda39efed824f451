"""What this machine has to run on: its GPUs, and how many runs it makes at once. Imports no torch by itself."""

import os
import shutil
import subprocess
from functools import cache


def slots() -> int:
    """The number of runs at once: one per GPU, else one per processor core that this process may use."""
    return len(gpus()) or cores()


def cores() -> int:
    """The number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpus() -> dict[str, str]:
    """The CUDA devices of this process: value in ``CUDA_VISIBLE_DEVICES`` -> name.

    Asks ``nvidia-smi``, so that a process that only launches others does not initialise CUDA.
    """
    names, chosen = listed(), os.environ.get("CUDA_VISIBLE_DEVICES")
    if names:
        from torch.version import cuda  # a second to import, for machines that have some

        names = names if cuda is not None else ()
    if chosen is None or not names:
        return {str(index): name for index, name in enumerate(names)}
    picked = [part.strip() for part in chosen.split(",") if part.strip()]
    return {p: names[int(p)] if p.isdigit() and int(p) < len(names) else names[0] for p in picked if p != "-1"}


@cache
def listed() -> tuple[str, ...]:
    """The names of the GPUs of the machine, whether torch can use them or not."""
    if shutil.which("nvidia-smi") is None:
        return ()
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(line.strip() for line in done.stdout.splitlines() if line.strip()) if done.returncode == 0 else ()
