"""Pretrainings that several devices share: a process for each, started by the worker, which is rank 0.

The others do as rank 0 says, hold no lock, write no record, and end when it ends, for whatever reason.
"""

import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import cast

from ablations.running.exit_codes import FAILED
from ablations.running.outcomes import LOG, RankError
from ablations.running.ranks import process as rank_process
from ablations.schema.kinds import Watch
from ablations.schema.run import Run

_PREFIX = "ranks-"  # of the folders in which they meet
_GRACE = 10.0  # seconds: from the end of one rank to that of a training which has not noticed
_PARTING = 20.0  # seconds for the other ranks to end


@dataclass(frozen=True)
class _Other:
    rank: int
    process: BaseProcess
    answer: Connection


@contextmanager
def others(run: Run, watch: Watch) -> Iterator[None]:
    """Starts the further ranks of a pretraining and joins them as rank 0; afterwards none of them is left.

    Raises:
        RankError: In place of what follows here from the failure of another rank.
    """
    from lightning_modules.training import ranks

    for old in watch.folder.glob(f"{_PREFIX}*"):  # of attempts that were killed; their ranks died with them
        shutil.rmtree(old, ignore_errors=True)
    _stay_here()
    over, started = threading.Event(), list[_Other]()
    meeting = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=watch.folder))
    try:
        started += [_started(run, watch, meeting, rank) for rank in range(1, watch.execution.devices)]
        threading.Thread(target=_follow, args=(started, over), name="follow the other ranks", daemon=True).start()
        ranks.join(0, watch.execution.devices, meeting / "store")
        yield
    except Exception as error:
        over.set()
        if failed := _failed(started, error):
            raise failed from error
        raise
    finally:
        over.set()
        ranks.leave()
        _end(started, _PARTING if sys.exc_info()[0] is None else 0.0)
        shutil.rmtree(meeting, ignore_errors=True)


def _started(run: Run, watch: Watch, meeting: Path, rank: int) -> _Other:
    import torch

    told = {
        "run": run.to_dict(),
        "rank": rank,
        "folder": str(watch.folder),
        "log": str(watch.folder / LOG),
        "start": watch.start and str(watch.start),
        "execution": asdict(watch.execution),
        "meeting": str(meeting),
        "threads": torch.get_num_threads(),
        "environment": dict(os.environ),
    }
    context = get_context("spawn")  # a process that computes already is not to be forked
    answer, theirs = context.Pipe(duplex=False)
    process = context.Process(target=rank_process.main, args=(told, theirs), name=f"rank {rank} of run {run.id}")
    process.start()
    theirs.close()
    return _Other(rank, process, answer)


def _stay_here() -> None:
    """Lets gloo talk over the loopback interface: all ranks are on this machine, whose name may be unknown to it."""
    names = {name for _, name in socket.if_nameindex()}
    if loopback := next((name for name in ("lo", "lo0") if name in names), None):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)


def _follow(others: Sequence[_Other], over: threading.Event) -> None:
    """Ends this process some seconds after a rank has failed, unless the training has noticed: nothing waits for ever.

    Rank 0 may stand in an exchange that nobody answers, which no other thread can end.
    """
    left = {other.process.sentinel: other for other in others}
    while left and not over.is_set():
        for sentinel in wait(list(left), timeout=1.0):
            other = left.pop(cast(int, sentinel))
            if not over.wait(_GRACE) and other.process.exitcode:
                print(f"rank {other.rank} ended with code {other.process.exitcode}", file=sys.stderr, flush=True)
                os._exit(FAILED)


def _failed(others: Sequence[_Other], error: Exception) -> RankError | None:
    """The failure of another rank, if there is one behind an error here."""
    from lightning_modules.training.recorder import Diverged, Interrupted

    if isinstance(error, (Diverged, Interrupted)):
        return None
    wait([other.process.sentinel for other in others], timeout=_GRACE / 2)
    died = {other.rank: -code for other in others if (code := other.process.exitcode) is not None and code < 0}
    for rank, number in died.items():
        if number == signal.SIGKILL:  # nobody here sends it: errors of further ranks follow from it
            return _killed(rank, number)
    for other in others:
        with contextlib.suppress(EOFError):  # one that died without a word
            if other.answer.poll():
                outcome, detail = other.answer.recv()
                return RankError(outcome, f"rank {other.rank}: {detail}")
    return next((_killed(*found) for found in died.items()), None)


def _killed(rank: int, number: int) -> RankError:
    return RankError("killed", f"rank {rank}: the process died of signal {number}")


def _end(others: Sequence[_Other], patience: float) -> None:
    for other in others:
        other.process.join(patience)
        if other.process.exitcode is None:
            other.process.kill()
        other.process.join()
        other.answer.close()
