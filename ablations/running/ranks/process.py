"""The entry point of a process that shares a pretraining with the worker, which is rank 0.

Before that it imports only the standard library, as `worker_process` does.
"""

import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from ablations.running.exit_codes import FAILED, RECORDED
from ablations.running.signals import follow_parent


def main(told: dict[str, Any]) -> None:
    """Entry point: takes part in the training as the rank that it is given, and ends with it or with its parent.

    What a terminal or a scheduler sends is left to the worker, which says to all ranks when to stop.

    Args:
        told: From `ablations.running.ranks.group.Group`: the folder of the meeting, the number of the rank, a log.
    """
    leave_signals()
    follow_parent()
    sys.exit(_take_part(told))


def leave_signals() -> None:
    """Does not end by a signal that is sent to all processes of a terminal or a job."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR2})


def _take_part(told: dict[str, Any]) -> int:
    from ablations.running import outcomes
    from ablations.running.ranks.meeting import Meeting, RankFailure
    from ablations.schema.kinds import KINDS, Watch
    from ablations.schema.run import Run
    from lightning_modules import speed
    from lightning_modules.training import ranks
    from lightning_modules.training.callbacks import Diverged, Interrupted
    from lightning_modules.training.execution import Execution

    outcomes.log_to(Path(told["log"]))
    meeting, rank = Meeting(Path(told["meeting"])), told["rank"]
    shared = meeting.told()
    speed.settle(shared["threads"])
    run, weights = Run.read(shared["run"]), {role: Path(path) for role, path in shared["weights"].items()}
    execution = Execution(**shared["execution"])
    watch = Watch(Path(shared["folder"]), weights, lambda progress: None, lambda: False, execution)
    try:
        ranks.join(rank, execution.ranks, meeting.store, device=rank % execution.devices)
        KINDS[run.kind].make(run, watch)
    except (Diverged, Interrupted):
        return RECORDED  # rank 0 says so
    except Exception as error:
        traceback.print_exc()
        meeting.fail(RankFailure(rank, *outcomes.outcome_of(error)))
        return FAILED
    finally:
        ranks.leave()
    return RECORDED
