"""``ablations sync``: what it says and how it exits."""

import json

import pytest
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core.disk import conflicts
from ablations.core.sharing.sites import Folder
from ablations.core.store import Records
from tests.unit.core.test_sync import add, contents

EACH_WAY = 200


def call(*words):
    return CliRunner().invoke(app, [*map(str, words)])


@pytest.fixture
def stores(tmp_path):
    return Records(tmp_path / "here"), Records(tmp_path / "there")


@pytest.mark.slow
def test_two_hundred_records_go_each_way_and_a_planted_conflict_is_explained(stores):
    here, there = stores
    for seed in range(EACH_WAY):
        add(here, seed)
        add(there, EACH_WAY + seed)
    mine = add(here, 1000, metrics={"heldout.loss": 3.25})
    add(there, 1000, metrics={"heldout.loss": 3.5}, provenance={"device": "NVIDIA H100", "commit": "89abcdef"})
    done = call("sync", there.folder, "--results-dir", here.folder)
    assert done.exit_code == 1
    assert f"pushed {EACH_WAY}, pulled {EACH_WAY}, 0 in both already, 1 in conflict" in done.output
    said = call("verify", "--results-dir", here.folder)
    assert said.exit_code == 1
    assert f"{2 * EACH_WAY + 1} of {2 * EACH_WAY + 1} records are sound" in said.output
    assert all(word in said.output for word in (mine.id, "3.25 here, 3.5 there", "NVIDIA H100"))
    (elsewhere,) = conflicts.explained(there.folder)
    assert "3.5 here, 3.25 there" in elsewhere.message
    kept = [contents(Folder(records.folder)) for records in stores]
    for suffix in ("json", "heldout"):
        own = [store.pop(f"records/{mine.id[:2]}/{mine.id}.{suffix}") for store in kept]
        assert own[0] != own[1]
    assert kept[0] == kept[1]
    assert len([name for name in kept[0] if name.endswith(".json") and name.startswith("records")]) == 2 * EACH_WAY


def test_programs_get_runs_conflicts_and_damages(stores):
    here, there = stores
    ours, theirs = add(here, 0), add(there, 1)
    spoilt = there.path(add(there, 2).id)
    spoilt.write_bytes(spoilt.read_bytes()[:100])
    done = call("sync", there.folder, "--results-dir", here.folder, "--format", "json")
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert (told["pushed"], told["pulled"], told["conflicts"]) == ([ours.id], [theirs.id], [])
    assert [(found["store"], found["flaw"]) for found in told["damages"]] == [(str(there.folder), "truncated")]
    assert spoilt.name in done.stderr
    spoilt.unlink()
    assert call("sync", there.folder, "--results-dir", here.folder).exit_code == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--push-only", "--pull-only"], "exclude each other"),
        (["--pull-only"], "there is no store at"),
        (["--timeout", "0"], "--timeout"),
    ],
)
def test_what_cannot_be_meant_is_refused(stores, options, said):
    here, there = stores
    add(here, 0)
    done = call("sync", there.folder, "--results-dir", here.folder, *options)
    assert done.exit_code == 2
    assert said in done.output
    assert not there.folder.exists()


def test_a_store_is_not_united_with_itself(stores, tmp_path):
    here, _ = stores
    add(here, 0)
    (tmp_path / "link").symlink_to(here.folder)
    done = call("sync", tmp_path / "link", "--results-dir", here.folder)
    assert done.exit_code == 2
    assert "this store itself" in done.output


def test_a_protocol_that_is_none_is_an_error_and_no_traceback(stores):
    here, _ = stores
    add(here, 0)
    done = call("sync", "s4://bucket", "--results-dir", here.folder)
    assert (done.exit_code, type(done.exception)) == (2, SystemExit)
    assert "there is no protocol 's4'" in done.output


def test_a_dry_run_says_would(stores):
    here, there = stores
    add(here, 0)
    done = call("sync", there.folder, "--results-dir", here.folder, "--dry-run")
    assert (done.exit_code, "would push 1" in done.output) == (0, True)
    assert not there.folder.exists()
