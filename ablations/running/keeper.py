"""What an engine calls on one of its nodes: a job, which keeps a worker.

It imports only the standard library: a node may lack the rest.

The runs themselves are made by a worker below, as under the local executor. So it can crash, or be requested to stop
with a checkpoint, without harm to the process that the engine watches.
"""

import contextlib
import json
import multiprocessing
import os
import secrets
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from ablations.running.exit_codes import AGAIN, INTERRUPTED, LEAVING, MOST_PUT_BACK, NO_MEMORY, RECORDED, UNFIT
from ablations.running.ranks import further, memory
from ablations.running.ranks.further import NODES
from ablations.running.worker_process import Worker, bare_main

_LOOK = 0.5  # seconds: an engine may interrupt Python code, but no system call
_CONTEXT = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Turns:
    """The runs that a job makes in turn.

    Attributes:
        configs: Files of `ablations.running.job.Job.save`, in their order.
        diary: A file that gets a line of JSON for each attempt that ends: the run's id, a code of `exit_codes`, what
            else is known, and whether the job tries the run again.
    """

    configs: tuple[str, ...]
    diary: str


@dataclass(frozen=True)
class Ending:
    """How a job ended.

    Attributes:
        code: What the run came to that it made last: a code of `exit_codes`; negative for the signal that the worker
            died of.
        detail: What else is known, in words.
        timed_out: Whether the engine's time limit ended it.
        said: What the job itself said, if it ended without a result.
    """

    code: int
    detail: str = ""
    timed_out: bool = False
    said: str = ""


class Keeper:
    """A job: keeps one worker that makes runs in turn; returns the code and detail of an `Ending`.

    A worker that died, or whose run failed, gets a successor, which records the death. No launcher needs to live. A job
    that is put back goes through its runs again: the store says which are made, and how often each was tried.

    Args:
        folder: The folder that relative paths start from, if the node has it.
        patience: Seconds for a stopped run to write its checkpoint.
        retries: Further attempts at a run that failed or was killed.
        nodes: How many nodes make it together, each of which calls it: the first one makes the run. Several make one
            run, once.
        further: What `ablations.running.phases.told` returned: where no launcher lives, the job goes on to the runs
            that follow.
    """

    def __init__(self, folder: str, patience: float, retries: int, nodes: int = 1, further: bytes = b"") -> None:
        self.folder, self.patience, self.retries, self.nodes = folder, patience, retries, nodes
        self.further = further
        self._token = secrets.token_hex(4)  # the same on all nodes of one attempt
        self._process: BaseProcess | None = None
        self._worker: Worker | None = None
        self._is_told = False  # to stop

    def __call__(self, turns: Turns) -> tuple[int, str]:
        """Makes the runs, in processes below."""
        first = turns.configs[0]
        if reason := unfit(first):
            return UNFIT, f"node {socket.gethostname()}: {reason}"
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
        try:
            with self._passing_on():
                return self._make_all(turns) if self.nodes == 1 else self._share(first)
        finally:  # an engine interrupts by an exception
            self.stop()

    def _make_all(self, turns: Turns) -> tuple[int, str]:
        left, seen = list(turns.configs), set[str]()
        was_put_back = 0 < int(os.environ.get("SLURM_RESTART_COUNT", "0")) <= MOST_PUT_BACK
        while left:
            seen.add(path := left.pop(0))
            death = (INTERRUPTED, "") if was_put_back else None  # of an attempt on a node that was lost
            for tried in range(self.retries + 2):  # the last finds that there were enough, and records the one before
                code, detail = self._make(path, death)
                if code in (INTERRUPTED, UNFIT):
                    return code, detail
                is_left = code in LEAVING or tried > self.retries
                with contextlib.suppress(OSError), open(turns.diary, "a", encoding="utf-8") as diary:
                    diary.write(json.dumps([Path(path).parent.name, code, detail, not is_left]) + "\n")
                if is_left:
                    break
                death = None if code == AGAIN else (code, detail)
            if self.further and not left:
                left = self._what_follows(seen)
        return RECORDED, ""

    def _what_follows(self, seen: set[str]) -> list[str]:
        """Further runs that the worker finds; none if it dies of the question."""
        answer = self._answer((self.further, seen))
        return answer[0] if isinstance(answer, tuple) and isinstance(answer[0], list) else []

    def _share(self, path: str) -> tuple[int, str]:
        name = f"{NODES}{self._token}-{os.environ.get('SLURM_RESTART_COUNT', '0')}"
        folder = Path(path).with_name(name)
        if node := _number():
            self._process = _CONTEXT.Process(target=further.main, args=(path, str(folder), node), name="node")
            with bare_main():
                self._process.start()
            code = self._ended(self._process)
            return code, f"node {socket.gethostname()}: what takes part there ended with code {code}" if code else ""
        with further.calling(folder):
            return self._make(path, None, str(folder))

    def _make(self, path: str, death: tuple[int, str] | None, nodes: str = "") -> tuple[int, str]:
        """Makes a run, by the worker that is there or by a new one."""
        where, before = f"node {socket.gethostname()}", memory.kills()
        if self._process is None and (reason := unfit(path)):
            return UNFIT, f"{where}: {reason}"
        answer = self._answer((path, death), nodes)
        if not isinstance(answer, int):
            code, said = answer
            return code, f"{where}: the code cannot be imported: {said}" if code == UNFIT else ""
        if answer == -signal.SIGKILL and memory.kills() > before:
            return NO_MEMORY, f"{where}: {memory.KILLED}"
        return answer or INTERRUPTED, ""  # 0: it was requested to stop before it had begun

    def _answer(self, asked: tuple[Any, Any], nodes: str = "") -> int | tuple[Any, str]:
        """What the worker answers that is there, or a new one; its exit code if it ends without an answer."""
        if self._worker is None:
            self._worker = Worker(_CONTEXT, nodes)
            self._process = self._worker.process
        worker = self._worker
        if self._is_told:
            return 0
        worker.ask(*asked)
        while not wait([worker.process.sentinel, worker.jobs], timeout=_LOOK):
            pass
        answer = worker.answer()
        if answer is None or not worker.goes_on:
            self._worker, code = None, self._ended(worker.process)
            return answer or code
        return answer

    def _ended(self, process: BaseProcess) -> int:
        while not wait([process.sentinel], timeout=_LOOK):
            pass
        process.join()
        self._process = None
        return process.exitcode or 0

    def stop(self) -> None:
        """Requests the process to write its checkpoint and waits for its end. It is killed if that takes too long."""
        process = self._process
        if process is None or wait([process.sentinel], timeout=0):
            return
        process.terminate()
        if not wait([process.sentinel], timeout=self.patience):
            process.kill()
            wait([process.sentinel])

    @contextmanager
    def _passing_on(self) -> Iterator[None]:
        """Hands SIGTERM down to the run: an engine may send it to this process alone."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def pass_on(*_: object) -> None:
            self._is_told = True
            if self._process is not None:
                self._process.terminate()

        usual = signal.signal(signal.SIGTERM, pass_on)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, usual)

    def checkpoint(self, turns: Turns) -> Any:
        """Called by submitit before a job is pre-empted or its time ends; what it returns is done when it goes on."""
        from submitit.helpers import DelayedSubmission  # pyright: ignore[reportMissingImports]

        self.stop()
        return DelayedSubmission(Keeper(self.folder, self.patience, self.retries, self.nodes, self.further), turns)


def _number() -> int:
    """Which node of a job this is: the first is 0."""
    from submitit import JobEnvironment  # pyright: ignore[reportMissingImports]

    return JobEnvironment().global_rank  # one task a node


def unfit(config_path: str) -> str:
    """Why this node cannot make a run, before anything is tried; empty if it can."""
    try:
        job = json.loads(Path(config_path).read_bytes())
    except OSError as error:
        return (
            f"{config_path} cannot be read ({error.strerror}): all nodes must see the cache under one path. Set "
            "ABLATIONS_CACHE to a folder that they share"
        )
    if not os.access(Path(job["results_dir"], "records"), os.W_OK):
        return (
            f"{job['results_dir']} is not there or cannot be written: all nodes must see the results under one path. "
            "Set --results-dir to a folder that they share"
        )
    try:
        from ablations.core.provenance import digest
    except ImportError as error:
        return f"the code cannot be imported: {type(error).__name__}: {error}"
    if job["code"] != (here := digest()):
        return (
            f"its code ({here}) is not the launcher's ({job['code']}): it was edited meanwhile, or another "
            "version is installed there. Run the command again"
        )
    return ""
