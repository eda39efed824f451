"""Starts children that a test wants killed, from one process in which everything is imported already.

A request is a line of JSON: which of `CHILDREN` to call with which arguments and environment, in how many processes
at once, and after how many seconds to kill them. The answer is the list of their exit codes.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from lightning_modules import pretraining as fitting
from lightning_modules.training.checkpoint import AtomicCheckpoints
from lightning_modules.training.execution import Execution


def launch(grid: str, results: str) -> None:
    """Executes a grid, with a checkpoint after every step."""
    fit = fitting.fit
    fitting.fit = lambda *given, **named: fit(*given, **named | {"execution": Execution(checkpoint_seconds=0.0)})
    records = Records(results)
    execute(plan(grids.read(grid), "smoke", records=records), records, "inline")


def race(grid: str, results: str, told: str) -> None:
    """Executes a grid whose runs train nothing; each training adds a line to the file ``told``."""

    def fit(system: object, seed: int, folder: Path, **_: object) -> fitting.Fitted:
        with open(told, "a") as file:
            file.write(f"{folder.name}\n")
        return fitting.Fitted(metrics={"heldout.loss": float(seed)})

    fitting.fit = fit
    launch(grid, results)


def save_for_ever(path: str) -> None:
    """Overwrites a checkpoint again and again; each is filled with its number."""
    number = 0
    while True:
        number += 1
        AtomicCheckpoints().save_checkpoint({"number": number, "weights": torch.full((200_000,), float(number))}, path)


CHILDREN: dict[str, Callable[..., None]] = {"launch": launch, "race": race, "save_for_ever": save_for_ever}


def born(call: str, arguments: list[str], environment: dict[str, str]) -> int:
    """A new child at work."""
    child = os.fork()
    if child:
        return child
    os.environ.update(environment)
    try:
        CHILDREN[call](*arguments)
    except BaseException as error:
        sys.stderr.write(f"{call}: {error!r}\n")
        os._exit(1)
    os._exit(0)


def main() -> None:
    torch.set_num_threads(1)
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        copies, kill_after = request.pop("copies"), request.pop("kill_after")
        children = [born(**request) for _ in range(copies)]
        if kill_after is not None:
            time.sleep(kill_after)
            for child in children:
                os.kill(child, signal.SIGKILL)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(json.dumps(codes), flush=True)


if __name__ == "__main__":
    main()
