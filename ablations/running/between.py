"""What a process forgets between the runs that it makes one after another."""

import contextlib
import gc
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Switches of torch that a run may turn: how to read each, and how to set it.
_SWITCHES = (
    ("get_num_threads", "set_num_threads"),
    ("get_default_dtype", "set_default_dtype"),
    ("is_grad_enabled", "set_grad_enabled"),
    ("are_deterministic_algorithms_enabled", "use_deterministic_algorithms"),
    ("get_float32_matmul_precision", "set_float32_matmul_precision"),
)


@contextmanager
def as_it_was() -> Iterator[None]:
    """Gives back what a run may change in its process: environment, folder, filters of warnings, what torch keeps.

    Handlers of signals are Lightning's to give back.
    """
    import torch

    environment, folder = dict(os.environ), os.getcwd()
    switches = [(getattr(torch, name)(), change) for name, change in _SWITCHES]
    with warnings.catch_warnings(), torch.random.fork_rng(devices=()):
        try:
            yield
        finally:
            if dict(os.environ) != environment:
                os.environ.clear()
                os.environ.update(environment)
            os.chdir(folder)
            for value, change in switches:
                getattr(torch, change)(value)


def free() -> None:
    """Frees the memory of a run to which nothing refers but the run's own objects, that of a device as well."""
    import torch

    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def resident() -> int:
    """The bytes of memory that this process has; 0 where the system does not say."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
