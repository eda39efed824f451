"""Results that come home in a pack: records as `sync` has them, checkpoints only where they are further."""

import json

import pytest
import torch
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core.sharing.sites import Folder
from ablations.core.store import Records
from lightning_modules.training.checkpoint import AtomicCheckpoints
from lightning_modules.training.recorder import CHECKPOINT
from tests.unit.core.test_store import make_run
from tests.unit.core.test_sync import add, contents, losses


@pytest.fixture
def stores(tmp_path):
    """The store here, and the one of another machine, whose cache is its own."""
    return Records(tmp_path / "here"), Records(tmp_path / "there")


def call(*words):
    return CliRunner().invoke(app, [*map(str, words)])


def reach(records, seed, step, run_id=None):
    """Leaves the checkpoint of a run's unfinished training."""
    run = make_run(seed).id
    path = records.make_work_folder(run) / CHECKPOINT
    AtomicCheckpoints(run_id=run_id or run).save_checkpoint(
        {"global_step": step, "weights": torch.ones(3) * step}, path
    )
    return run, path


def step_of(path):
    return torch.load(path, weights_only=True)["global_step"] if path.exists() else None


def carried(stores, tmp_path, *more):
    """Packs the results there, unpacks them here, and returns both answers."""
    here, there = stores
    path = tmp_path / "home.tar.xz"
    packed = call("pack", "--results", "--output", path, "--results-dir", there.folder)
    assert packed.exit_code == 0, packed.output
    return packed, call("unpack", path, "--results-dir", here.folder, *more)


def test_records_come_home_with_all_that_belongs_to_them(stores, tmp_path):
    here, there = stores
    mine, theirs = add(here, 0), [add(there, seed) for seed in (0, 1, 2)]
    _, done = carried(stores, tmp_path)
    assert done.exit_code == 0, done.output
    assert "pulled 2, 1 in both already" in done.output
    assert contents(Folder(here.folder)) == contents(Folder(there.folder))
    assert here.sums(theirs[1].id) == losses(1, theirs[1])
    assert (here.get(mine.id), here.verify()) == (mine, [])


def test_a_conflict_keeps_both_and_is_named(stores, tmp_path):
    here, there = stores
    mine = add(here, 0, metrics={"heldout.loss": 3.25})
    add(there, 0, metrics={"heldout.loss": 3.5}, provenance={"device": "NVIDIA H100"})
    _, done = carried(stores, tmp_path)
    assert done.exit_code == 1
    assert all(word in done.output for word in (mine.id, "3.25 here, 3.5 there", "NVIDIA H100"))
    assert here.get(mine.id) == mine
    assert len([*here.folder.rglob("*.conflict")]) == 1


def test_a_checkpoint_comes_home_only_where_it_is_further(stores, tmp_path):
    here, there = stores
    for seed, (own, other) in enumerate([(None, 7), (3, 7), (7, 7), (9, 7)]):
        if own is not None:
            reach(here, seed, own)
        reach(there, seed, other)
    finished, _ = reach(there, 4, 7)
    add(here, 4)
    _, done = carried(stores, tmp_path, "--format", "json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    runs = [make_run(seed).id for seed in range(5)]
    assert sorted(told["checkpoints"]) == sorted(runs[:2])
    assert sorted(told["left"]) == sorted(runs[2:])
    assert [step_of(here.work_folder(run) / CHECKPOINT) for run in runs] == [7, 7, 7, 9, None]
    assert "the run is done" in told["left"][finished]


def test_a_run_that_trains_now_keeps_its_checkpoint(stores, tmp_path):
    here, there = stores
    run, path = reach(here, 0, 3)
    reach(there, 0, 7)
    with here.lock(run):
        _, done = carried(stores, tmp_path, "--format", "json")
    assert "trains the run now" in json.loads(done.stdout)["left"][run]
    assert step_of(path) == 3


@pytest.mark.parametrize("kind", ["of another run", "no checkpoint", "cut"])
def test_a_checkpoint_that_is_none_is_skipped_and_named(stores, tmp_path, kind):
    here, there = stores
    run, path = reach(there, 0, 7, run_id="0" * 16 if kind == "of another run" else None)
    if kind == "no checkpoint":
        path.write_bytes(b"\x80\x04cposix\nsystem\n")
    elif kind == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    add(there, 1)
    _, done = carried(stores, tmp_path)
    assert done.exit_code == 1
    assert f"runs/{run}/{CHECKPOINT}" in done.output
    assert not here.work_folder(run).exists()
    assert len(here.files()) == 1  # the record came


def test_what_the_pack_alters_on_its_way_changes_nothing(stores, tmp_path):
    here, there = stores
    add(here, 0)
    add(there, 1)
    path = tmp_path / "home.tar.xz"
    call("pack", "--results", "--output", path, "--results-dir", there.folder)
    spoilt = bytearray(path.read_bytes())
    spoilt[len(spoilt) // 2] ^= 1
    path.write_bytes(spoilt)
    before = contents(Folder(here.folder))
    done = call("unpack", path, "--results-dir", here.folder)
    assert (done.exit_code, len(done.output.splitlines())) == (2, 1)
    assert contents(Folder(here.folder)) == before
