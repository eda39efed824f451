"""The next phase of a grid where no launcher lives: a worker finds the runs of it, as the launcher would.

A search that is complete has an evaluation that was not known when the job was submitted.
"""

import os
import pickle
from collections.abc import Collection, Mapping

from ablations.core.store import Records
from ablations.running import attempts
from ablations.running.job import FILE
from ablations.running.launch import Launch
from ablations.running.launchers import living


def told(launch: Launch, threads: int | None, environment: Mapping[str, str], seconds: float) -> bytes:
    """What a job has to know of the plan to go on by itself; empty if no search is open.

    Args:
        launch: The execution of the plan.
        threads: See `Launch.prepare`.
        environment: See `Launch.prepare`.
        seconds: About how many planned seconds the runs have that it takes at once.
    """
    if launch.again is None or not launch.plan.open:
        return b""
    asked = launch.plan.grid.name, launch.plan.scale
    how = launch.retries, launch.execution, threads, dict(environment), seconds
    return pickle.dumps((launch.again, str(launch.records.folder), asked, *how))


def further(known: bytes, seen: Collection[str]) -> list[str]:
    """Jobs of runs that can begin now; none while a launcher of the grid lives, which knows what follows.

    Several workers may get the same: whoever has a run's lock makes it, and the others pass it over.

    Args:
        known: What `told` returned.
        seen: Files of jobs that are not to be returned.

    Returns:
        Files of `ablations.running.job.Job.save`, in the order of the plan.
    """
    again, folder, asked, retries, execution, threads, environment, seconds = pickle.loads(known)
    os.environ.update(environment)
    records = Records(folder)
    if any((launcher.grid, launcher.scale) == asked for launcher in living(records)):
        return []
    launch = Launch(again(records=records), records, retries, None, lambda event: None, execution)
    for runs in launch.turns(seconds):
        found = []
        for run in runs:
            launch.attempts[run.id] = tried = attempts.count(records, run.id)  # earlier jobs' attempts are its own
            if tried <= retries and str(records.work_folder(run.id) / FILE) not in seen:
                found.append(launch.prepare(run, threads, environment))
        if made := [str(path) for path in found if path]:
            return made
    return []
