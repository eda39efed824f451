"""Pretrainings that several devices share: a process for each, started by the worker, which is rank 0.

The others do as rank 0 says, hold no lock, write no record, and end when it ends, for whatever reason. Those of other
nodes are started there by `further`.
"""

import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

from ablations.running.exit_codes import FAILED
from ablations.running.outcomes import LOG, RankError
from ablations.running.ranks import memory
from ablations.running.ranks import process as rank_process
from ablations.running.ranks.meeting import PREFIX, Meeting, RankFailure
from ablations.schema.kinds import Watch
from ablations.schema.run import Run

_LOOK = 0.5  # seconds between looks at the other ranks
_GRACE = 10.0  # seconds: from the end of one rank to that of a training which has not noticed
_PARTING = 20.0  # seconds for the other ranks to end


@contextmanager
def others(run: Run, watch: Watch) -> Iterator[None]:
    """Starts the further ranks of a pretraining and joins them as rank 0; afterwards none of them is left.

    Raises:
        RankError: In place of what follows here from the failure of another rank.
    """
    from lightning_modules.training import ranks

    for old in watch.folder.glob(f"{PREFIX}*"):  # what is left of attempts that were killed, whose ranks died with them
        shutil.rmtree(old, ignore_errors=True)
    if watch.execution.nodes == 1:
        _stay_here()
    meeting = Meeting(Path(tempfile.mkdtemp(prefix=PREFIX, dir=watch.nodes or watch.folder)))
    group = None
    try:
        meeting.call(_told(run, watch))
        group = Group(meeting, range(1, watch.execution.devices), str(watch.folder / LOG))
        group.follow()
        ranks.join(0, watch.execution.ranks, meeting.store, device=0)
        yield
    except Exception as error:
        if group:
            group.unfollow()
            if failed := _failed(meeting, group, error):
                raise failed from error
        raise
    finally:
        if group:
            group.unfollow()
        ranks.leave()
        if group:
            group.end(_PARTING if sys.exc_info()[0] is None else 0.0)
        shutil.rmtree(meeting.folder, ignore_errors=True)


def _told(run: Run, watch: Watch) -> dict[str, object]:
    import torch

    told: dict[str, object] = {"run": run.to_dict(), "folder": str(watch.folder), "threads": torch.get_num_threads()}
    weights = {role: str(path) for role, path in watch.weights.items()}
    return told | {"weights": weights, "execution": asdict(watch.execution)}


def _stay_here() -> None:
    """Lets gloo talk over the loopback interface: all ranks are on this machine, whose name may be unknown to it."""
    names = {name for _, name in socket.if_nameindex()}
    if loopback := next((name for name in ("lo", "lo0") if name in names), None):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)


class Group:
    """The processes of this machine that take part in a training, each as a rank.

    Args:
        meeting: Where the ranks meet; `Meeting.call` has said what is trained.
        ranks: The numbers of those that are started here.
        log: A file for what they say.
    """

    def __init__(self, meeting: Meeting, ranks: Iterable[int], log: str) -> None:
        self._meeting, self._kills = meeting, memory.kills()
        self._processes: dict[int, BaseProcess] = {}
        self._over = threading.Event()
        self._follower = threading.Thread(target=self._follow, name="follow the other ranks", daemon=True)
        try:
            for rank in ranks:
                told = {"meeting": str(meeting.folder), "rank": rank, "log": log}
                context = get_context("spawn")  # a process that computes already is not to be forked
                process = context.Process(target=rank_process.main, args=(told,), name=f"rank {rank}")
                process.start()
                self._processes[rank] = process
        except BaseException:
            self.end(0.0)
            raise

    def are_over(self) -> bool:
        """Whether all have ended."""
        return all(process.exitcode is not None for process in self._processes.values())

    def note_deaths(self) -> None:
        """Says for those that died without a word that they failed."""
        for rank, process in self._processes.items():
            if not (code := process.exitcode):
                continue
            killed = code < 0
            detail = f"the process died of signal {-code}" if killed else f"the process ended with code {code}"
            failure = RankFailure(rank, "killed" if killed else "failed", detail, max(0, -code))
            if code == -signal.SIGKILL and memory.kills() > self._kills:
                failure = replace(failure, outcome="oom", detail=memory.KILLED)
            self._meeting.fail(failure)

    def follow(self) -> None:
        """Ends this process some seconds after a rank has failed, unless the training has noticed: see `unfollow`.

        Nothing waits for ever. Rank 0 may wait in an exchange that nobody answers, which no other thread can end.
        """
        self._follower.start()

    def _follow(self) -> None:
        while not self._over.wait(_LOOK):
            self.note_deaths()
            if (failures := self._meeting.failures()) and not self._over.wait(_GRACE):
                print(*failures, sep="\n", file=sys.stderr, flush=True)
                os._exit(FAILED)

    def unfollow(self) -> None:
        """Looks no longer."""
        self._over.set()
        if self._follower.is_alive():
            self._follower.join()

    def end(self, patience: float) -> None:
        """Waits some seconds for each, and kills it then."""
        for process in self._processes.values():
            process.join(patience)
            if process.exitcode is None:
                process.kill()
            process.join()


def _failed(meeting: Meeting, group: Group, error: Exception) -> RankError | None:
    """The failure of another rank, if there is one behind an error here."""
    from lightning_modules.training.callbacks import Diverged, Interrupted

    if isinstance(error, (Diverged, Interrupted)):
        return None
    until = time.monotonic() + _GRACE / 2
    while not meeting.failures() and time.monotonic() < until:
        group.note_deaths()
        time.sleep(_LOOK / 5)
    time.sleep(2 * _LOOK)  # of several that failed, the one that was killed may be noted last
    group.note_deaths()
    return next((RankError(found.outcome, str(found)) for found in meeting.failures()), None)
