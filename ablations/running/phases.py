"""The next phase of a grid where no launcher lives: a worker finds the runs of it, as the launcher would.

A search that is complete has an evaluation that was not known when the job was submitted.
"""

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict

from ablations.core.store import Records
from ablations.planning.plan import plan
from ablations.running import attempts
from ablations.running.job import FILE
from ablations.running.launch import Launch
from ablations.running.launchers import living
from ablations.schema.grid import Grid
from lightning_modules.training.execution import Execution


def told(launch: Launch, threads: int | None, environment: Mapping[str, str], seconds: float) -> bytes:
    """What a job has to know of the plan to go on by itself, as JSON; empty if no search is open.

    Args:
        threads: See `Launch.prepare`.
        environment: See `Launch.prepare`.
        seconds: About how many planned seconds the runs have that it takes at once.
    """
    if launch.again is None or not launch.plan.open:
        return b""
    known = {"grid": launch.plan.grid.to_dict(), "scale": launch.plan.scale, "asked": launch.again}
    known |= {"records": str(launch.records.folder), "retries": launch.retries, "execution": asdict(launch.execution)}
    return json.dumps(known | {"threads": threads, "environment": dict(environment), "seconds": seconds}).encode()


def further(known: bytes, seen: Collection[str]) -> list[str]:
    """Jobs of runs that can begin now; none while a launcher of the grid lives, which knows what follows.

    Several workers may get the same: whoever has a run's lock makes it, and the others pass it over.

    Args:
        known: What `told` returned.
        seen: Files of jobs that are not to be returned.

    Returns:
        Files of `ablations.running.job.Job.save`, in the order of the plan.
    """
    told = json.loads(known)
    os.environ.update(told["environment"])
    grid, scale, retries = Grid.read(told["grid"]), told["scale"], told["retries"]
    records, execution = Records(told["records"]), Execution(**told["execution"])
    if any((launcher.grid, launcher.scale) == (grid.name, scale) for launcher in living(records)):
        return []
    slice = told["asked"].pop("slice", {})
    following = plan(grid, scale, **told["asked"], records=records).sliced(slice)
    launch = Launch(following, records, retries, None, lambda event: None, execution)
    for runs in launch.turns(told["seconds"]):
        found = []
        for run in runs:
            launch.attempts[run.id] = tried = attempts.count(records, run.id)  # earlier jobs' attempts are its own
            if tried <= retries and str(records.work_folder(run.id) / FILE) not in seen:
                found.append(launch.prepare(run, told["threads"], told["environment"]))
        if made := [str(path) for path in found if path]:
            return made
    return []
