"""How an attempt at a run ended, in the words of its record; and its log."""

import errno
import os
import sys
import traceback
from pathlib import Path

from ablations.schema.record import Outcome
from lightning_modules.config import ConfigError
from lightning_modules.files import open_end
from lightning_modules.places import project

LOG = "log.txt"  # in the work folder of a run
_TRACEBACK_LINES = 6


class RankError(Exception):
    """Another of the processes that share a training failed."""

    def __init__(self, outcome: Outcome, detail: str) -> None:
        super().__init__(detail)
        self.outcome: Outcome = outcome


def outcome_of(error: Exception) -> tuple[Outcome, str]:
    """The outcome of an exception, and its detail without paths of this machine.

    The detail of a failure has the type and the message in its first line, then the places, the innermost first.
    """
    from lightning_modules.training.callbacks import Diverged

    if isinstance(error, RankError):
        return error.outcome, str(error)
    if isinstance(error, Diverged):
        return "diverged", f"loss not finite at step {error.step}"
    if _is_out_of_memory(error):
        return "oom", (str(error) or type(error).__name__)[:1000]
    if isinstance(error, ConfigError):
        return "invalid", str(error)[:1000]
    lines = [f"{_place(f.filename)}:{f.lineno} in {f.name}" for f in traceback.extract_tb(error.__traceback__)]
    message = f"{type(error).__name__}: {' '.join(_place(str(error)).split())}"[:1000]
    return "failed", "\n".join([message, *lines[: -_TRACEBACK_LINES - 1 : -1]])


def _is_out_of_memory(error: Exception) -> bool:
    import torch

    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    is_cpu = isinstance(error, RuntimeError) and "DefaultCPUAllocator: " in str(error)  # torch has no class for it
    return is_cpu or isinstance(error, (MemoryError, torch.OutOfMemoryError))


def _place(text: str) -> str:
    for prefix in (str(project()), *sorted(filter(None, sys.path), key=len, reverse=True), str(Path.home())):
        if len(prefix) > 1:
            text = text.replace(prefix + os.sep, "")
    return text


def log_to(path: Path) -> None:
    """Appends all output of this process, that of C libraries included, to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    with open_end(path) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
