"""Starts children that a test wants killed, from one process in which everything is imported already.

A request is a line of JSON. One that names a call starts a child, whose id is the answer; it says which of `CHILDREN`
to call with which arguments, environment and folder, and where its output goes. One with an id asks for the exit code
of that child: None while it lives.

What a child starts with multiprocessing is forked as well, so that no fork server imports torch anew. Trainings tell
each step, and stand still while a test wants it: see `held`.
"""

import itertools
import json
import os
import runpy
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing import util
from pathlib import Path

import torch

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running import worker
from ablations.running.execute import execute
from ablations.running.local import Local
from lightning_modules import pretraining as fitting
from lightning_modules.finetuning import run as tuning
from lightning_modules.training.checkpoint import AtomicCheckpoints
from lightning_modules.training.execution import Execution
from tests.forking import forked, without_exec

LAUNCHER = Path(__file__).with_name("launcher.py")


def launcher(*arguments: str) -> None:
    """The program that users write."""
    sys.argv = [str(LAUNCHER), *arguments]
    runpy.run_path(str(LAUNCHER), run_name="__main__")


def launch(grid: str, results: str) -> None:
    """Executes a grid, with a checkpoint after every step of a pretraining or a fine-tuning."""
    fit, finetune, often = fitting.fit, tuning.finetune, {"execution": Execution(checkpoint_seconds=0.0)}
    fitting.fit = lambda *given, **named: fit(*given, **named | often)
    tuning.finetune = lambda *given, **named: finetune(*given, **named | often)
    records = Records(results)
    execute(plan(grids.read(grid), "smoke", records=records), records, "inline")


def workers(grid: str, results: str) -> None:
    """Executes a grid with four workers."""
    records = Records(results)
    execute(plan(grids.read(grid), "smoke", records=records), records, {"kind": "local", "slots": 4})


def race(grid: str, results: str, told: str) -> None:
    """Executes a grid whose runs train nothing; each training adds a line to the file ``told``."""

    def fit(system: object, seed: int, folder: Path, **_: object) -> fitting.Fitted:
        with open(told, "a") as file:
            file.write(f"{folder.name}\n")
        return fitting.Fitted(metrics={"heldout.loss": float(seed)})

    fitting.fit = fit
    launch(grid, results)


def stop_at_the_end(grid: str, results: str, told: str) -> None:
    """Executes a grid; the first training stops its process after its last step, having written its id to ``told``.

    The file ``told`` gets the summary when the process goes on and ends.
    """
    real, note = fitting.fit, Path(told)

    def fit(*given: object, **named: object) -> fitting.Fitted:
        fitted = real(*given, **named)
        if not note.exists():
            note.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        return fitted

    fitting.fit = fit
    records = Records(results)
    note.write_text(str(execute(plan(grids.read(grid), "smoke", records=records), records, "inline")))


def save_for_ever(path: str) -> None:
    """Overwrites a checkpoint again and again; each is filled with its number."""
    number = 0
    while True:
        number += 1
        AtomicCheckpoints().save_checkpoint({"number": number, "weights": torch.full((200_000,), float(number))}, path)


CHILDREN: dict[str, Callable[..., None]] = {
    "launcher": launcher,
    "launch": launch,
    "workers": workers,
    "race": race,
    "save_for_ever": save_for_ever,
    "stop_at_the_end": stop_at_the_end,
}


def held(attempt: Callable[..., int]) -> Callable[..., int]:
    """Lets a training stand after as many steps as the file ``hold`` beside the results says, while it is there.

    A test can then disturb a short training, however busy the machine is.
    """

    def attempted(job: worker.Job, stop: Callable[[], bool], *given: object, **named: object) -> int:
        hold, steps = Path(job.results_dir).with_name("hold"), itertools.count(1)
        last = int(hold.read_text()) if hold.exists() else None

        def wait() -> bool:
            here = next(steps) == last
            while here and hold.exists() and not stop():
                time.sleep(0.01)
            return stop()

        return attempt(job, wait, *given, **named)

    return attempted


def born(call: str, arguments: list[str], environment: dict[str, str], folder: str, output: str) -> int:
    """A new child at work."""
    out = os.open(output, os.O_WRONLY)

    def work() -> None:
        os.setsid()
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        CHILDREN[call](*arguments)

    child = forked(work)
    os.close(out)
    return child


def ended(child: int) -> int | None:
    """The exit code of a child."""
    found, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def main() -> None:
    torch.set_num_threads(1)
    worker._PROGRESS_EVERY, Local.poll = 0.0, 0.02
    worker.attempt = held(worker.attempt)
    util.spawnv_passfds = without_exec(util.spawnv_passfds)
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(ended(request["child"]) if "child" in request else born(**request)), flush=True)


if __name__ == "__main__":
    main()
