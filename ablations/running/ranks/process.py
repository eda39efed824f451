"""The entry point of a process that shares a pretraining with the worker that started it.

Before that it imports only the standard library, as `worker_process` does.
"""

import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ablations.running.exit_codes import FAILED, RECORDED
from ablations.running.signals import follow_parent


def main(told: dict[str, Any], answer: Connection) -> None:
    """Entry point: takes part in the training as the rank that it is told, and ends with it or with its parent.

    What a terminal or a scheduler sends is left to the parent, which tells all ranks when to stop.

    Args:
        told: From `ablations.running.ranks.beside.others`.
        answer: Receives the outcome and its detail if the training fails here.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR2})
    follow_parent()
    sys.exit(_take_part(told, answer))


def _take_part(told: dict[str, Any], answer: Connection) -> int:
    os.environ.update(told["environment"])
    from ablations.running import outcomes
    from ablations.schema.kinds import KINDS, Watch
    from ablations.schema.run import Run
    from lightning_modules import speed
    from lightning_modules.training import ranks
    from lightning_modules.training.execution import Execution
    from lightning_modules.training.recorder import Diverged, Interrupted

    outcomes.log_to(Path(told["log"]))
    speed.settle(told["threads"])
    run, start = Run.read(told["run"]), told["start"] and Path(told["start"])
    watch = Watch(Path(told["folder"]), start, lambda progress: None, lambda: False, Execution(**told["execution"]))
    try:
        ranks.join(told["rank"], watch.execution.devices, Path(told["meeting"]) / "store")
        KINDS[run.kind].make(run, watch)
    except (Diverged, Interrupted):
        return RECORDED  # rank 0 says so
    except Exception as error:
        traceback.print_exc()
        answer.send(outcomes.outcome_of(error))
        return FAILED
    finally:
        ranks.leave()
    return RECORDED
