"""The executor of Slurm clusters, by submitit: arrays of jobs that make runs in turn, put back when pre-empted.

Before a time limit, and before pre-emption where the cluster is set so, Slurm sends SIGUSR2 (submitit's usual signal):
the run writes its checkpoint, submitit asks for the job to be queued again, and it goes on from there. A job that gets
SIGTERM alone writes its checkpoint too and ends; the launcher submits its run again.
"""

import contextlib
import math
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from ablations.core.machine import cores
from ablations.running import phases
from ablations.running.executor import Executor, Name
from ablations.running.exit_codes import FAILED, INTERRUPTED, NO_MEMORY, RECORDED, UNFIT
from ablations.running.keeper import Ending, Keeper, Turns
from ablations.running.launch import Launch
from ablations.running.worker import note
from lightning_modules.config import ConfigError, Problem, Settings, knob
from lightning_modules.places import project
from lightning_modules.training.execution import Execution

_SIGNAL = "USR2"  # NCCL may take USR1
_SHORTEST = 30  # minutes; submitit takes a pre-emption in the last ten minutes for the end of the time limit
_LARGEST_ARRAY = 1000  # Slurm's MaxArraySize is 1001 unless a cluster sets another
_LISTING = 10.0  # seconds between looks at the queue
_LATE = 60.0  # seconds that a file server may take to show a result whose job has left the queue
_NOT_ITS_FAULT = ("PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "REQUEUED")  # states of Slurm
_TAIL = 2000  # characters of a job's output that go to the run's log


class SlurmOptions(Settings):
    """What each run requests of Slurm."""

    cluster: Literal["slurm", "local"] = knob("slurm", "local: submitit's stand-in, processes of this machine.")
    partition: Name | None = knob(None, "The partition.")
    account: Name | None = knob(None, "The account that is charged.")
    qos: Name | None = knob(None, "The quality of service.")
    constraint: Name | None = knob(None, "Features that nodes must have.")
    gpus: int = knob(0, "GPUs of a run, or of each device that shares it: 0 or 1.", ge=0)
    cpus: int = knob(1, "Cores of a run, or of each device that shares it. Threads of torch.", ge=1)
    memory: float | None = knob(None, "GB of a run. By default the cluster's.", gt=0)
    time: int | None = knob(None, "Minutes until a job is stopped. By default from the plan's estimate.", ge=1)
    timeouts: int = knob(3, "How often a job that reached its time continues from its checkpoint.", ge=0)
    grace: int = knob(
        120, "Seconds before the end of its time at which a job gets the signal to write a checkpoint.", ge=10
    )
    parallel: int | None = knob(None, "The most jobs of an array at once. By default all.", ge=1)
    setup: tuple[str, ...] = knob((), "Lines of shell before a run, such as [module load cuda].")

    @model_validator(mode="after")
    def _counts_gpus_of_a_run(self) -> "SlurmOptions":
        if self.gpus > 1:
            several = f"parallel={self.gpus} makes {self.gpus} runs at once"
            shared = f"--devices {self.gpus} gives each run {self.gpus} GPUs"
            raise ConfigError([Problem("gpus", f"must be 0 or 1 per run, not {self.gpus}. {several}, {shared}")])
        return self


class Slurm(Executor):
    """Submits runs as arrays of jobs by submitit; one that several nodes share has a task on each."""

    Options: ClassVar[type[Settings]] = SlurmOptions
    options: SlurmOptions

    def __init__(self, options: SlurmOptions) -> None:
        super().__init__(options)
        self.threads, self.queues = options.cpus, options.cluster == "slurm"
        self.turn = min(self.turn, 30.0 * (options.time or math.inf))  # half of the time
        self.devices, self.nodes = 1, 1  # of each pretraining
        self._engine: Any = None
        self._queue: set[str] | None = None
        self._listed = -math.inf
        self._missed: dict[str, float] = {}  # job -> when it was first missed in the queue

    def problems(self, execution: Execution) -> Iterator[Problem]:
        """See `Executor.problems`."""
        if execution.nodes > 1 and self.options.gpus and self.options.cluster == "local":
            text = "processes in the place of nodes would have the same GPUs. Leave it out with cluster=local"
            yield Problem("executor option gpus", text)

    def check_machine(self) -> None:
        """See `Executor.check_machine`."""
        _submitit()
        missing = [name for name in ("sbatch", "srun", "squeue") if shutil.which(name) is None]
        if missing and self.options.cluster != "local":
            text = f"there is no Slurm here: {', '.join(missing)} not found. Start the command on a login node, "
            raise ConfigError([text + "or try it on this machine with --executor-option cluster=local"])

    def open(self, launch: Launch) -> None:
        """See `Executor.open`."""
        self.devices, self.nodes = launch.execution.devices, launch.execution.nodes
        os.environ.setdefault("SUBMITIT_PREEMPT_SIGNAL", _SIGNAL)
        submitit, local = _submitit(), self.options.cluster == "local"
        self._folder = launch.records.work_folder(next(iter(launch.todo))).parent / "slurm"
        made = submitit.LocalExecutor if local else submitit.SlurmExecutor
        self._engine = made(self._folder, max_num_timeout=self.options.timeouts)
        runs = (*launch.todo, *(run.id for run in launch.plan.awaited))
        minutes = limit(self.options, max(map(launch.planned_seconds, runs)))
        self._engine.update_parameters(**(self._of_processes(minutes) if local else self._of_sbatch(minutes)))

    def _of_processes(self, minutes: int) -> dict[str, Any]:
        chosen = self.options
        asked = {"timeout_min": minutes, "signal_delay_s": chosen.grace, "gpus_per_node": chosen.gpus * self.devices}
        return {**asked, "setup": list(chosen.setup), "tasks_per_node": self.nodes}  # processes represent nodes too

    def _of_sbatch(self, minutes: int) -> dict[str, Any]:
        chosen = self.options
        asked = {name: getattr(chosen, name) for name in ("partition", "account", "qos", "constraint")}
        asked |= {"job_name": "ablations", "time": minutes, "signal_delay_s": chosen.grace, "nodes": self.nodes}
        asked |= {"srun_args": ["--kill-on-bad-exit=1"] if self.nodes > 1 else None}
        asked |= {"cpus_per_task": chosen.cpus * self.devices, "ntasks_per_node": 1}
        asked |= {"gpus_per_node": chosen.gpus * self.devices or None}
        asked |= {"mem": f"{math.ceil(chosen.memory * 1000)}M" if chosen.memory else None}
        asked |= {"setup": list(chosen.setup) or None, "array_parallelism": chosen.parallel or _LARGEST_ARRAY}
        asked |= {"additional_parameters": {"requeue": True}}
        return {name: value for name, value in asked.items() if value is not None}

    def at_once(self) -> str:
        """See `Executor.at_once`."""
        most = self.options.parallel
        return "all at once for which Slurm has room" + (f" (parallel={most})" if most else "")

    def room(self) -> int:
        """See `Executor.room`."""
        if self.options.cluster == "local":
            return max(1, min(self.options.parallel or cores(), cores() // (self.devices * self.nodes)))
        return _LARGEST_ARRAY

    def submit(self, launch: Launch, turns: Sequence[Turns]) -> Sequence[Any]:
        """See `Executor.submit`."""
        patience = max(5.0, self.options.grace - 5.0)
        further = phases.told(launch, self.threads, self.environment(), self.turn)
        keeper = Keeper(str(project()), patience, launch.retries, self.nodes, further)
        try:
            jobs = self._engine.map_array(keeper, turns)
        except Exception as error:
            from submitit.core.utils import (  # pyright: ignore[reportMissingImports]
                FailedJobError,
                FailedSubmissionError,
            )

            if not isinstance(error, (FailedJobError, FailedSubmissionError)):
                raise
            raise ConfigError([f"Slurm refuses the jobs: {' '.join(str(error).split())}"]) from error
        for job, one in zip(jobs, turns, strict=True):
            for path in one.configs:
                note(Path(path).parent, f"submitted in job {job.job_id}. What the job itself says: {job.paths.stderr}")
        self._listed = -math.inf
        return jobs

    def ending(self, job: Any) -> Ending | None:
        """See `Executor.ending`. The first node makes the run, and a further one is heard when it takes no part."""
        first, *further = (job.task(number) for number in range(self.nodes))
        for task in () if first.paths.result_pickle.exists() else further:
            if task.paths.result_pickle.exists() and (ending := self._result(task)).code != RECORDED:
                self.send([job], signal.SIGKILL)  # the others would wait
                return ending if ending.code == UNFIT else replace(ending, code=FAILED)
        ending = self._ending(first)
        if ending and ending.code == UNFIT and further:
            self.send([job], signal.SIGKILL)
        return ending

    def _ending(self, submitted: Any) -> Ending | None:
        if submitted.paths.result_pickle.exists():
            return self._result(submitted)
        if self._is_queued(submitted):
            return None
        state = self._state(submitted)
        detail = f"job {submitted.job_id} ended without a result" + (f": {state}" if state else "")
        killed = NO_MEMORY if state == "OUT_OF_MEMORY" else -signal.SIGKILL
        code = INTERRUPTED if state in _NOT_ITS_FAULT else killed
        return Ending(code, detail, state == "TIMEOUT", _said(submitted))

    def _result(self, submitted: Any) -> Ending:
        error = submitted.exception()
        if error is None:
            return Ending(*submitted.result())
        if "timed-out too many times" in str(error):
            times = f"{self.options.timeouts + 1} times" if self.options.timeouts else "once"
            return Ending(
                1, f"reached its time limit {times}. Run the command again to continue", True, _said(submitted)
            )
        last = next((line for line in reversed(str(error).splitlines()) if ": " in line), "an error of submitit")
        return Ending(1, f"job {submitted.job_id}: {last.strip()}", said=_said(submitted))

    def _is_queued(self, submitted: Any) -> bool:
        """Whether a job waits or runs.

        We ask squeue: submitit asks sacct, which answers only where a cluster keeps accounts.
        """
        if self.options.cluster == "local":
            return submitted.state == "RUNNING" or submitted.paths.result_pickle.exists()
        self._list()
        if self._queue is None or submitted.job_id in self._queue:
            self._missed.pop(submitted.job_id, None)
            return True
        first = self._missed.setdefault(submitted.job_id, time.monotonic())
        has_begun = submitted.paths.stdout.exists() or submitted.paths.stderr.exists()
        return time.monotonic() - first < _LATE and (has_begun or self._state(submitted) != "CANCELLED")

    def _list(self) -> None:
        """Lists the queue; None while the controller does not answer, when no job is missed."""
        if time.monotonic() - self._listed < _LISTING:
            return
        self._listed = time.monotonic()
        command = ["squeue", "--noheader", "--array", "--format=%i", f"--user={os.getuid()}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        except (OSError, subprocess.SubprocessError):
            self._queue = None
            return
        self._queue = set(done.stdout.split())

    def _state(self, submitted: Any) -> str:
        """What the controller, which forgets a job after some minutes, says of its end; empty if nothing."""
        if self.options.cluster == "local":
            return ""
        command = ["scontrol", "show", "job", "--oneliner", submitted.job_id]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        except (OSError, subprocess.SubprocessError):
            return ""
        return next((word.partition("=")[2] for word in done.stdout.split() if word.startswith("JobState=")), "")

    def send(self, jobs: Sequence[Any], number: signal.Signals) -> None:
        """See `Executor.send`. Slurm sends SIGKILL by itself after its KillWait of usually 30 seconds."""
        ids = [submitted.job_id for submitted in jobs]
        if self.options.cluster == "slurm":
            force = ["--signal=KILL"] if number == signal.SIGKILL else []
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(["scancel", *force, *ids], capture_output=True, check=False, timeout=60)
            return
        for submitted in jobs:
            if number == signal.SIGKILL:
                submitted.cancel(check=False)  # its controller kills what is below it within a second
            elif submitted.state == "RUNNING":
                os.kill(int(submitted.job_id), number)


def _said(submitted: Any) -> str:
    """What a job said at its end, for the log of its run, where users look."""
    said = (submitted.stderr() or submitted.stdout() or "").strip()[-_TAIL:]
    return f"job {submitted.job_id} ended without a record. It said:\n{said or '(nothing)'}"


def limit(options: SlurmOptions, seconds: float) -> int:
    """Minutes until a job is stopped: as requested, or twice the estimate of the longest run.

    Args:
        seconds: How long the longest run takes by the plan's estimate.

    Raises:
        ConfigError: If a run cannot end in the requested time, with all its continuations.
    """
    estimate = seconds / 60
    if options.time is None:
        return max(_SHORTEST, math.ceil(2 * estimate))
    if estimate > options.time * (1 + options.timeouts):
        text = (
            f"the longest run takes about {estimate:.0f} minutes by the plan's estimate, but {options.time} minutes "
            f"with {options.timeouts} continuations are {options.time * (1 + options.timeouts)}. Raise time or timeouts"
        )
        raise ConfigError([Problem("executor option time", text)])
    return options.time


def _submitit() -> Any:
    try:
        import submitit  # pyright: ignore[reportMissingImports]  # an extra
    except ImportError:
        raise ConfigError(["the executor 'slurm' needs submitit: pip install 'ablations[slurm]'"]) from None
    return submitit
