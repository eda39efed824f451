"""kill -9 at many moments, and many launchers at once."""

import contextlib
import math
import os
import random
import re
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from ablations.core.store import Records
from ablations.measurements.measurements import Measurements
from ablations.pages import tables
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running import attempts as running
from ablations.running.execute import execute
from lightning_modules.training.checkpoint import AtomicCheckpoints
from tests import tiny
from tests.depth import SEED, depth
from tests.faults.support import attempts, contents, until

MOMENTS = depth(4, 50)


def table(grid, records, folder):
    """The bytes of a grid's table in every format; the seconds that runs took are made equal."""
    found, timeless = plan(grids.read(grid), "smoke", records=records), {}
    for record in records.all():
        timeless[record.id] = record.model_copy(update={"cost": {**record.cost, "seconds": 1.0}})
    written = tables.write(folder, "table", tables.results(Measurements(found.grid, found.cells, timeless)))
    return {path.name: path.read_bytes() for path in written.values()}


@pytest.mark.nightly
def test_a_grid_killed_at_many_moments_ends_as_if_undisturbed(cached, begin):
    """Checkpoints after every step and two micro-batches a step: the kills hit training, saving and recording."""
    grid = tiny.grid(cached, rates="[0.1, 0.15, 0.8]", seeds=depth(1, 7), steps=16)
    grid.write_text(
        grid.read_text().replace("training.batch_size: 4", "training.batch_size: 4\n  training.micro_batch_size: 2")
    )
    reference = Records(cached / "reference")
    began = time.monotonic()
    execute(plan(grids.read(grid), "smoke", records=reference), reference, "inline")
    longest = time.monotonic() - began

    def killed_in_time(records, known):
        """At a random moment, or as soon as there is one record more: no matter how far it has been written."""
        child = begin("launch", grid, records.folder)
        if count % 2:
            until(lambda: child.poll() is not None or len(records.files()) > known)
        else:
            time.sleep(noise.uniform(0.02, longest))
        child.kill()
        return child.wait() == -signal.SIGKILL

    noise, started, count = random.Random(SEED), [], 0
    while count < MOMENTS:
        records, final = Records(cached / f"results {len(started)}"), {}
        started.append(records)
        while count < MOMENTS and killed_in_time(records, len(records.files())):
            count += 1
            stories = attempts(records)
            now = {run_id: (said, stories[run_id]) for run_id, said in contents(records).items()}
            assert {run_id: now[run_id] for run_id in final} == final  # nor was any of them started again
            assert records.verify() == []
            final = {run_id: now[run_id] for run_id in now if records.get(run_id).final}
    assert begin("launch", grid, records.folder).wait() == 0
    for number, records in enumerate(started):
        assert contents(records) == contents(reference)
        assert table(grid, records, cached / f"table {number}") == table(grid, reference, cached / "table")
        assert list(records.folder.rglob("*.tmp")) == []


def strike(records, launcher, noise):
    """Kills the launcher or the worker of some run; returns whether there was something to kill."""
    made = [one.pid for one in running.known(records) if records.is_locked(one.run_id)]
    victim = noise.choice([launcher.pid, *made[:1]])
    if launcher.poll() is not None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
        return True
    return False


def test_a_grid_whose_workers_and_launchers_are_killed_ends_as_if_undisturbed(cached, begin):
    """24 runs by four workers; no run is lost, none is made after it has its record, and none is orphaned."""
    grid = tiny.grid(cached, rates=str([round(0.05 * n, 2) for n in range(1, 13)]), steps=16)
    reference, noise, count, started = Records(cached / "reference"), random.Random(SEED), 0, []
    execute(plan(grids.read(grid), "smoke", records=reference), reference, "inline")
    while count < MOMENTS:
        records, final, ended = Records(cached / f"results {len(started)}"), {}, False
        started.append(records)
        while count < MOMENTS and not ended:
            launcher = begin("workers", grid, records.folder)
            until(lambda: launcher.poll() is not None or list(running.known(records)))
            while launcher.poll() is None and count < MOMENTS:
                time.sleep(noise.uniform(0.02, 0.5))
                count += strike(records, launcher, noise)
            launcher.kill()
            ended = launcher.wait() == 0
            stories = attempts(records)
            now = {run_id: (said, stories[run_id]) for run_id, said in contents(records).items()}
            assert {run_id: now[run_id] for run_id in final} == final
            assert records.verify() == []
            final = {run_id: now[run_id] for run_id in now if records.get(run_id).final}
    for records in started:
        until(lambda: begin("workers", grid, records.folder).wait() == 0 and contents(records) == contents(reference))
        assert len(contents(records)) == 24
        assert all(sum(line.endswith("done") for line in story) <= 1 for story in attempts(records).values())
        assert list(running.known(records)) == []
    altered, record = Records(cached / "altered"), next(iter(reference.all()))
    metrics = {**record.metrics, "heldout.loss": math.nextafter(record.metrics["heldout.loss"], math.inf)}
    for one in reference.all():
        with altered.lock(one.id):
            altered.put(record.model_copy(update={"metrics": metrics, "checksum": ""}) if one.id == record.id else one)
    assert contents(altered) != contents(reference)


@pytest.mark.parametrize("other", [False, True], ids=["same file system", "another file system"])
def test_a_checkpoint_killed_while_it_is_saved_loads(cached, killed, other):
    memory = Path("/dev/shm")
    if other and not (memory.is_dir() and memory.stat().st_dev != cached.stat().st_dev):
        pytest.skip("there is no second file system")
    with tempfile.TemporaryDirectory(dir=memory if other else cached) as folder:
        path, noise = Path(folder) / "last.ckpt", random.Random(SEED)
        AtomicCheckpoints().save_checkpoint({"number": 0, "weights": torch.zeros(200_000)}, path)
        for _ in range(depth(15, 200)):
            assert killed("save_for_ever", path, after=noise.uniform(0.0, 0.1)) == -9
            found = torch.load(path, weights_only=True)
            assert found["weights"].unique().tolist() == [found["number"]]
        others = [file.name for file in path.parent.iterdir() if file != path]
        assert [re.sub(r"[0-9a-f]{8}", "", name) for name in others] in ([], [".last.ckpt..tmp"])


def test_four_launchers_make_each_of_many_runs_once(cached, begin):
    seeds = depth(10, 40)
    grid = tiny.grid(cached, rates="[0.1, 0.15, 0.2, 0.3, 0.4]", seeds=seeds)
    told = cached / "told.txt"
    racing = [begin("race", grid, cached / "results", told) for _ in range(4)]
    assert [one.wait() for one in racing] == [0, 0, 0, 0]
    made = Counter(told.read_text().split())
    assert (len(made), set(made.values())) == (5 * seeds, {1})
    records = Records(cached / "results")
    assert [record.outcome for record in records.all()] == ["done"] * 5 * seeds
    assert records.verify() == []
