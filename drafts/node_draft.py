"""What an engine calls on one of its nodes. It imports only the standard library: a node may lack the rest.

The run itself is made by a process below, as under the local executor. So it can crash, and be told to stop with a
checkpoint, without harm to the process that the engine watches.
"""

import contextlib
import json
import multiprocessing
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from ablations.running.exit_codes import NO_MEMORY, UNFIT
from ablations.running.ranks import further, memory
from ablations.running.ranks.further import NODES
from ablations.running.worker_process import bare_main, main

_LOOK = 0.5  # seconds: an engine may interrupt Python code, but no system call
_CONTEXT = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Ending:
    """How a job ended.

    Attributes:
        code: A code of `exit_codes`; negative for the signal that the worker died of.
        detail: What else is known, in words.
        timed_out: Whether the engine's time limit ended it.
    """

    code: int
    detail: str = ""
    timed_out: bool = False


class Attempt:
    """A job: makes a run and then others of a queue; returns the code and detail of an `Ending`.

    It keeps one worker, a process below it, as the local executor does, and replaces one that died or whose run failed.

    Args:
        folder: The folder that relative paths start from, if the node has it.
        patience: Seconds for a stopped run to write its checkpoint.
        nodes: How many nodes make it together, each of which calls it: the first one makes the run. With several it
            makes one run.
        seconds: How long the job may take; None for no limit. No further run is taken that would not end in it.
    """

    def __init__(self, folder: str, patience: float, nodes: int = 1, seconds: float | None = None) -> None:
        self.folder, self.patience, self.nodes, self.seconds = folder, patience, nodes, seconds
        self._token = secrets.token_hex(4)  # the same on all nodes of one attempt
        self._process: SpawnProcess | None = None
        self._jobs: Connection | None = None
        self._current = ""

    def __call__(self, config_path: str, queue: str = "") -> tuple[int, str]:
        """Makes the run of a file, then those that are left in a queue, in processes below."""
        if reason := unfit(config_path):
            return UNFIT, f"node {socket.gethostname()}: {reason}"
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
        if self.nodes == 1:
            return self._work(config_path, queue)
        name = f"{NODES}{self._token}-{os.environ.get('SLURM_RESTART_COUNT', '0')}"
        folder = Path(config_path).with_name(name)
        if node := _number():
            code = self._follow(further.main, (config_path, str(folder), node))
            return code, f"node {socket.gethostname()}: what takes part there ended with code {code}" if code else ""
        with further.calling(folder):
            return self._work(config_path, "", str(folder))

    def _work(self, own: str, queue: str, nodes: str = "") -> tuple[int, str]:
        """Makes runs, and writes beside the file of the first which of them begin and end."""
        until = time.monotonic() + self.seconds if self.seconds else None
        diary = Path(own).with_name(DIARY)
        turns = Turns(Path(queue), until) if queue else ()
        try:
            for path in itertools.chain([own], turns):
                self._current = str(path)
                _write(diary, {"took": Path(path).parent.name})
                code, detail = self._make(str(path), nodes)
                if code == UNFIT or code == INTERRUPTED or not queue:
                    return code, detail
                _write(diary, {"ended": Path(path).parent.name, "code": code, "detail": detail})
            return RECORDED, ""
        finally:
            self.stop()

    def _make(self, config_path: str, nodes: str) -> tuple[int, str]:
        """Makes a run, by the worker that is there or by a new one."""
def _number() -> int:
    """Which node of a job this is: the first is 0."""
    from submitit import JobEnvironment  # pyright: ignore[reportMissingImports]

    return JobEnvironment().global_rank  # one task a node


@contextmanager
def _passing_on(process: SpawnProcess) -> Iterator[None]:
    """Hands SIGTERM down to the run: an engine may send it to this process alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, usual)


def unfit(config_path: str) -> str:
    """Why this node cannot make a run, before anything is tried; empty if it can."""
    try:
        job = json.loads(Path(config_path).read_bytes())
    except OSError as error:
        return (
            f"{config_path} cannot be read ({error.strerror}): all nodes must see the cache under one path; set "
            "ABLATIONS_CACHE to a folder that they share"
        )
    if not os.access(Path(job["results_dir"], "records"), os.W_OK):
        return (
            f"{job['results_dir']} is not there or cannot be written: all nodes must see the results under one path; "
            "set --results-dir to a folder that they share"
        )
    try:
        from ablations.core.provenance import fingerprint
    except ImportError as error:
        return f"the code cannot be imported: {type(error).__name__}: {error}"
    if job["code"] not in (None, fingerprint()):
        return (
            f"its code ({fingerprint()}) is not the launcher's ({job['code']}): it was edited meanwhile, or another "
            "version is installed there; run the command again"
        )
    return ""
