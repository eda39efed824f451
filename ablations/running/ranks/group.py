"""The processes of this machine that share a training."""

import signal
from collections.abc import Iterable
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Any

from ablations.running.ranks import memory
from ablations.running.ranks import process as rank_process
from ablations.running.ranks.meeting import Meeting, RankFailure


class Group:
    """Processes, each of which takes part as a rank.

    Args:
        meeting: Where the ranks meet; `Meeting.call` has said what is trained.
        ranks: The numbers of those that are started here.
        log: A file for what they say.
    """

    def __init__(self, meeting: Meeting, ranks: Iterable[int], log: str) -> None:
        self._meeting, self._kills = meeting, memory.kills()
        self._processes: dict[int, BaseProcess] = {}
        try:
            for rank in ranks:
                self._processes[rank] = self._started(rank, log)
        except BaseException:
            self.end(0.0)
            raise

    def _started(self, rank: int, log: str) -> BaseProcess:
        told: dict[str, Any] = {"meeting": str(self._meeting.folder), "rank": rank, "log": log}
        context = get_context("spawn")  # a process that computes already is not to be forked
        process = context.Process(target=rank_process.main, args=(told,), name=f"rank {rank}")
        process.start()
        return process

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

    def end(self, patience: float) -> None:
        """Waits some seconds for each, and kills it then."""
        for process in self._processes.values():
            process.join(patience)
            if process.exitcode is None:
                process.kill()
            process.join()
