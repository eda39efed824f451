"""The executor of Ray clusters: tasks that make runs in turn, on a cluster that is there or on one started here.

Ray places tasks and counts GPUs. Trying again is ours, so that attempts are recorded. The code goes to the nodes as it
is when the command starts; results and cache must be on a file system that all nodes share.
"""

import contextlib
import importlib
import json
import logging
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import model_validator

from ablations.core import provenance
from ablations.running.executor import Executor, Name
from ablations.running.exit_codes import INTERRUPTED, UNFIT
from ablations.running.keeper import Ending, Keeper, Turns
from ablations.running.launch import Launch
from ablations.running.signals import ENDING
from lightning_modules.config import ConfigError, Problem, Settings, knob
from lightning_modules.files import read_text, write_atomically
from lightning_modules.places import project
from lightning_modules.training.execution import Execution

_NOTICED = 20.0  # seconds until a cluster knows that a node is gone, whose tasks it lost
_BEREFT = 300.0  # seconds that a cluster may be without a node that can hold a run
_NODE = ".node"  # behind the name of a job's diary: the id of the node that it is on
_TRY = "import ray, sys\nray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR')"


class RayOptions(Settings):
    """The cluster, and what each run requests of it."""

    address: Name | None = knob(None, "host:port of a cluster, or auto. By default one is started on this machine.")
    cpus: int = knob(1, "Cores of a run, or of each device that shares it. Threads of torch.", ge=1)
    gpus: float | None = knob(
        None, "GPUs of a run, such as 0.5, or of each device that shares it. By default 1 if there are any.", ge=0, le=1
    )
    memory: float | None = knob(None, "GB of a run. By default Ray does not count memory.", gt=0)
    answer: float = knob(30.0, "Seconds in which the cluster has to answer.", gt=0)

    @model_validator(mode="after")
    def _is_no_client(self) -> "RayOptions":
        if self.address and "://" in self.address:
            text = (
                "must be host:port of the cluster itself, such as 10.0.0.1:6379. Start the command on one of its nodes"
            )
            raise ConfigError([Problem("address", text)])
        return self


class Ray(Executor):
    """Submits tasks, as many as the cluster's nodes can hold."""

    Options: ClassVar[type[Settings]] = RayOptions
    options: RayOptions

    def __init__(self, options: RayOptions) -> None:
        super().__init__(options)
        self.threads = options.cpus
        self._ray: Any = None
        self._needs: dict[str, float] = {}
        self._alive: frozenset[str] = frozenset()  # nodes, at the last look
        self._bereft: float | None = None  # since when no node can hold a run
        self._crashed: dict[Any, float] = {}  # task that was lost -> when we learned of it

    def problems(self, execution: Execution) -> Iterator[Problem]:
        """See `Executor.problems`."""
        yield from super().problems(execution)
        if execution.devices > 1 and (self.options.gpus or 1) % 1:
            text = f"{self.options.gpus} of a GPU is no device that shares a run. Ask for 1, or for none"
            yield Problem("executor option gpus", text)

    def check_machine(self) -> None:
        """See `Executor.check_machine`."""
        _imported()

    def open(self, launch: Launch) -> None:
        """See `Executor.open`."""
        ray, devices = _imported(), launch.execution.devices
        if ray.is_initialized():
            raise ConfigError(["this process is connected to Ray already: call ray.shutdown() first"])
        if self.options.address:
            answers(self.options.address, self.options.answer)
        handlers = {number: signal.getsignal(number) for number in ENDING}
        with tempfile.TemporaryDirectory() as code, contextlib.redirect_stdout(sys.stderr):
            copied(code)
            ray.init(
                address=self.options.address or "local",
                # as the working folder: next to modules alone Ray's workers would first look into this process's folder
                runtime_env={"working_dir": code, "env_vars": {provenance.TOLD: json.dumps(provenance.code())}},
                log_to_driver=False,
                logging_level=logging.ERROR,
                **({} if self.options.address else {"include_dashboard": False}),
            )
        self._ray = ray
        with contextlib.suppress(ValueError):  # not in the main thread
            for number, handler in handlers.items():  # Ray has replaced them by its own
                signal.signal(number, handler)
        self._needs = needs(self.options, self._nodes().values(), devices)
        if not self.room():
            raise ConfigError([impossible(self._needs, self._nodes().values())])
        asked = {"num_cpus": self._needs["CPU"], "num_gpus": self._needs.get("GPU", 0), "max_retries": 0}
        asked |= {"memory": int(self._needs["memory"])} if "memory" in self._needs else {}
        self._task = ray.remote(**asked)(made_in_turn)

    def _nodes(self) -> dict[str, Mapping[str, float]]:
        return {found["NodeID"]: found["Resources"] for found in self._ray.nodes() if found["Alive"]}

    def at_once(self) -> str:
        """See `Executor.at_once`."""
        return "all at once for which Ray has room"

    def room(self) -> int:
        """See `Executor.room`. It is not waited for without end that lost nodes come back."""
        found = self._nodes()
        self._alive, nodes = frozenset(found), found.values()
        room = sum(fitting(self._needs, resources) for resources in nodes)
        self._bereft = (self._bereft or time.monotonic()) if not room else None
        if self._bereft is not None and time.monotonic() - self._bereft > _BEREFT:
            raise ConfigError([impossible(self._needs, nodes)])
        return room

    def submit(self, launch: Launch, turns: Sequence[Turns]) -> Sequence[Any]:
        """See `Executor.submit`."""
        keeper = Keeper(str(project()), self.patience - 10, launch.retries)
        nodes = frozenset(self._nodes())
        return [(self._task.remote(keeper, one), nodes, Path(one.diary + _NODE)) for one in turns]

    def ending(self, job: Any) -> Ending | None:
        """See `Executor.ending`."""
        task, nodes, path = job
        if not self._ray.wait([task], timeout=0)[0]:
            return Ending(INTERRUPTED) if self._is_cut_off(path) else None
        path.unlink(missing_ok=True)
        errors = self._ray.exceptions
        try:
            return Ending(*self._ray.get(task))
        except errors.TaskCancelledError:
            return Ending(INTERRUPTED)
        except (errors.RayTaskError, errors.RuntimeEnvSetupError) as error:
            return Ending(UNFIT, f"a node cannot make runs with the code it was sent: {_last_line(error)}")
        except errors.RayError as error:
            return self._lost(task, nodes, error)

    def _is_cut_off(self, path: Path) -> bool:
        """Whether the node of a task is given up: Ray waits on for processes there that do not close connections."""
        try:
            of_task = read_text(path)
        except OSError:
            return False  # it waits for a node, or a file server answers late
        return bool(of_task) and of_task not in self._alive and of_task not in self._nodes()

    def _lost(self, task: Any, nodes: frozenset[str], error: Exception) -> Ending | None:
        """The end of a task whose process is gone: put back if a node has gone too, which Ray may learn later."""
        if not nodes <= self._nodes().keys():
            return Ending(INTERRUPTED)
        first = self._crashed.setdefault(task, time.monotonic())
        if time.monotonic() - first < _NOTICED:
            return None
        return Ending(-signal.SIGKILL, f"Ray: {type(error).__name__}: {' '.join(str(error).split())[:300]}")

    def send(self, jobs: Sequence[Any], number: signal.Signals) -> None:
        """See `Executor.send`."""
        for task, *_ in jobs:
            self._ray.cancel(task, force=number == signal.SIGKILL)

    def close(self) -> None:
        """See `Executor.close`. A cluster that was started here ends."""
        if self._ray is not None:
            self._ray.shutdown()


def made_in_turn(keeper: Keeper, turns: Turns) -> tuple[int, str]:
    """The task: see `Keeper`. It says next to its diary on which node it is."""
    with contextlib.suppress(OSError):  # of a node without the cache the keeper reports
        own = _imported().get_runtime_context().get_node_id().encode()
        write_atomically(Path(turns.diary + _NODE), lambda file: file.write(own))
    return keeper(turns)


def needs(options: RayOptions, nodes: Any, devices: int = 1) -> dict[str, float]:
    """What a run takes of a node, by Ray's names: CPU, GPU, and memory in bytes.

    >>> needs(RayOptions(cpus=4, memory=2), [{"CPU": 64, "GPU": 8}], devices=2)
    {'CPU': 8, 'GPU': 2.0, 'memory': 2000000000.0}
    """
    gpus = options.gpus if options.gpus is not None else float(any(have.get("GPU", 0) >= 1 for have in nodes))
    asked = {"CPU": options.cpus * devices, "GPU": gpus * devices, "memory": (options.memory or 0) * 1e9}
    return {name: amount for name, amount in asked.items() if amount}


def fitting(needs: Mapping[str, float], resources: Mapping[str, float]) -> int:
    """How many runs fit into a node.

    >>> fitting({"CPU": 1, "GPU": 0.5}, {"CPU": 8.0, "GPU": 2.0})
    4
    """
    return min(math.floor(resources.get(name, 0) / amount + 1e-9) for name, amount in needs.items())


def impossible(needs: Mapping[str, float], nodes: Any) -> str:
    """Why no node can hold a run, and what there is: Ray itself would wait for ever."""
    asked = ", ".join(f"{name} {amount:g}" for name, amount in needs.items())
    names = ("CPU", "GPU", "memory")
    have = "; ".join(", ".join(f"{name} {found[name]:g}" for name in names if name in found) for found in nodes)
    return f"no node can hold a run that needs {asked}. The nodes have: {have or 'nothing'}. Ask for less"


def answers(address: str, seconds: float) -> None:
    """Tries a cluster, in a process of its own: Ray's own attempt may wait for minutes.

    Raises:
        ConfigError: If nothing answers there in time, or something else than a Ray of our version.
    """
    where = f"no Ray cluster answers at {address}"
    how = "start one by `ray start --head` and give its address as --executor-option address=HOST:6379"
    host, _, port = address.rpartition(":")
    try:
        if address != "auto":
            socket.create_connection((host, int(port)), timeout=seconds).close()
        tried = subprocess.run([sys.executable, "-c", _TRY, address], capture_output=True, text=True, timeout=seconds)
    except ValueError:
        raise ConfigError([Problem("executor option address", f"{address!r} is not host:port or auto")]) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        late = f"no answer in {seconds:g} s" if not isinstance(error, OSError) else error.strerror or str(error)
        raise ConfigError([f"{where} ({late}); {how}"]) from None
    if tried.returncode:
        raise ConfigError([f"{where} ({_last_line(tried.stderr)}); {how}"])


def copied(folder: str) -> None:
    """Copies both packages as they are now into a folder, which goes to the nodes."""
    for package in provenance.PACKAGES:
        shutil.copytree(package, Path(folder) / package.name, ignore=shutil.ignore_patterns("__pycache__"))


def _last_line(error: object) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:500] if lines else "no reason given"


def _imported() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault(
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"
    )  # a run without GPUs sees none; Ray warns of a change
    try:
        return importlib.import_module("ray")  # not `import ray`: type checkers without the extra read this file for it
    except ImportError:
        raise ConfigError(["the executor 'ray' needs Ray: pip install 'ablations[ray]'"]) from None
