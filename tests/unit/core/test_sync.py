"""Records brought from another results folder: what is copied, what stays, what is named; and ``ablations sync``."""

import hashlib
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core import sync
from ablations.core.disk import heldout
from ablations.core.store import Records
from ablations.core.sync import bring
from ablations.schema.record import checksum
from lightning_modules.tasks.scores.kept import pack
from tests.unit.core.test_store import make_record, make_run

HOLDS = ("records/??/*.json", "records/??/*.heldout", "environments/*.json", "bars/*.json")


@pytest.fixture
def here(tmp_path):
    return Records(tmp_path / "here")


@pytest.fixture
def there(tmp_path):
    return Records(tmp_path / "there")


def environment(records, *packages):
    text = json.dumps({"packages": packages})
    name = hashlib.sha256(text.encode()).hexdigest()[:12]
    path = records.folder / "environments" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
    return name


def add(records, seed, sums=True, digest=True, **changes):
    """A record of a run with its list of packages, its losses by sequence, and their digest."""
    given = {"provenance": {"environment": environment(records, "torch"), "commit": "0123456789abcdef"}} | changes
    record = make_record(make_run(seed), **given)
    if sums:
        entry = {heldout.ENTRY: records.put_sums(record.id, losses(seed, record))}
        record = record.model_copy(update={"provenance": record.provenance | (entry if digest else {})})
    return records.put(record)


def losses(seed, record=None):
    """The losses of two sequences, whose mean is that of the record."""
    nats = np.full(2, 8.0 * (record.metrics if record else {}).get("heldout.loss", 3.25), dtype=np.float16)
    part = {"nats": pack(nats), "counts": pack(np.full(2, 8))}
    return {"text": f"of seed {seed}", "documents": pack(np.arange(2)), "losses": {"loss": part}}


def contents(folder):
    """The files of a results folder that belong to records, by name; without the list of digests."""
    found = [path for pattern in HOLDS for path in folder.glob(pattern)]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(found)}


def call(*words):
    return CliRunner().invoke(app, [*map(str, words)])


def test_what_is_missing_is_copied_byte_for_byte_and_the_other_folder_is_only_read(here, there):
    mine = add(here, 9)
    theirs = [add(there, seed) for seed in (0, 1, 9)]
    before = {path: path.stat().st_mtime_ns for path in there.folder.rglob("*")}
    report = bring(there, here)
    assert theirs[2] == mine
    assert (set(report.copied), report.same, report.whole) == ({record.id for record in theirs[:2]}, 1, True)
    assert contents(here.folder) == contents(there.folder)
    assert here.verify() == []
    assert {path: path.stat().st_mtime_ns for path in there.folder.rglob("*")} == before
    assert bring(there, here) == sync.Report(same=3)
    assert bring(here, Records(there.folder.parent / "third")).whole  # the other way, by exchanging the two


@pytest.mark.parametrize("final", ["here", "there"])
def test_an_attempt_gives_way_to_a_finished_run_and_takes_the_place_of_none(here, there, final):
    add(there, 0, sums=final == "there", outcome="done" if final == "there" else "failed")
    add(here, 0, sums=final == "here", outcome="done" if final == "here" else "killed")
    assert bring(there, here).whole
    assert [record.outcome for record in here.all()] == ["done"]
    assert here.verify() == []


def test_losses_that_an_attempt_left_do_not_stay_with_another_record(here, there):
    record = add(there, 0)
    here.put_sums(record.id, {"losses": ["of an attempt that died"]})
    assert bring(there, here).whole
    assert here.sums(record.id) == losses(0)


def test_of_two_attempts_each_folder_keeps_its_own(here, there):
    add(there, 0, outcome="failed", detail="there")
    mine = add(here, 0, outcome="failed", detail="here")
    assert bring(there, here) == sync.Report(same=1)
    assert here.get(mine.id) == mine


def test_a_conflict_is_named_and_neither_record_is_touched(here, there):
    theirs = add(there, 0, metrics={"heldout.loss": 3.5}, provenance={"device": "H100"})
    mine = add(here, 0, metrics={"heldout.loss": 3.25})
    other = add(there, 1)
    before = contents(there.folder)
    report = bring(there, here)
    assert report.conflicts == {mine.id: "metrics.heldout.loss 3.25 here, 3.5 there"}
    assert (report.copied, report.whole) == ([other.id], False)
    assert (here.get(mine.id), contents(there.folder), here.verify()) == (mine, before, [])
    for name in (here.path(mine.id).relative_to(here.folder), heldout.name(mine.id)):  # theirs is trusted
        (here.folder / name).write_bytes((there.folder / name).read_bytes())
    assert here.get(mine.id) == theirs
    assert bring(there, here) == sync.Report(same=2)


def test_equal_numbers_of_two_machines_are_a_conflict_too(here, there):
    mine = add(here, 0)
    add(there, 0, provenance={"device": "H100"})
    assert bring(there, here).conflicts == {mine.id: "equal numbers, made elsewhere"}


def cut(raw):
    return raw[: len(raw) // 2]


def edited(raw):
    return raw.replace(b"3.25", b"2.25")


@pytest.mark.parametrize(("damage", "flaw"), [(cut, "truncated"), (edited, "altered"), (lambda raw: b"", "empty")])
@pytest.mark.parametrize("spoilt", ["here", "there"])
def test_a_damaged_record_is_named_and_skipped_wherever_it_lies(here, there, damage, flaw, spoilt):
    record, good = add(there, 0), add(there, 1)
    add(here, 0)
    store = {"here": here, "there": there}[spoilt]
    path = store.path(record.id)
    path.write_bytes(damage(path.read_bytes()))
    before = path.read_bytes()
    report = bring(there, here)
    ((place, found),) = report.damages
    assert (place, found.path, found.flaw) == (str(store.folder), path.relative_to(store.folder).as_posix(), flaw)
    assert (report.copied, path.read_bytes()) == ([good.id], before)
    path.unlink()
    assert bring(there, here).whole


@pytest.mark.parametrize("suffix", [".heldout", "environment"])
def test_what_belongs_to_a_record_is_checked_and_comes_once_it_is_whole(here, there, suffix):
    made = [add(there, seed) for seed in range(2)]
    named = f"environments/{made[0].provenance['environment']}.json"
    path = there.folder / (named if suffix == "environment" else heldout.name(made[0].id))
    whole = path.read_bytes()
    path.write_bytes(cut(whole))
    report = bring(there, here)
    name = path.relative_to(there.folder).as_posix()
    assert [damage.path for _, damage in report.damages] == [name]  # once, though two records share the list
    assert (len(report.copied), name in contents(here.folder)) == (2, False)
    path.write_bytes(whole)
    assert bring(there, here).whole
    assert contents(here.folder) == contents(there.folder)


def list_digests(records):
    """Lists the digests of all losses in a folder, as of records that say none; returns the lines."""
    found = {name: raw for name, raw in contents(records.folder).items() if name.endswith(".heldout")}
    lines = [f"{hashlib.sha256(found[name]).hexdigest()}  {name.removeprefix('records/')}\n" for name in sorted(found)]
    (records.folder / heldout.LIST).write_text("".join(lines))
    return lines


def test_listed_digests_of_losses_go_with_the_records(here, there):
    for seed in range(4):
        add(here if seed < 2 else there, seed, digest=False)
    both = sorted(list_digests(here) + list_digests(there), key=lambda line: line[66:])
    assert bring(there, here).whole
    assert (here.folder / heldout.LIST).read_text().splitlines(keepends=True) == both
    assert here.verify() == []
    (here.folder / heldout.LIST).unlink()  # as of a copy that was killed
    assert bring(there, here).whole
    assert len((here.folder / heldout.LIST).read_text().splitlines()) == 2


def test_losses_that_are_not_those_of_the_list_are_not_copied(here, there):
    names = [heldout.name(add(there, seed, digest=False).id) for seed in range(2)]
    list_digests(there)
    (there.folder / names[0]).write_bytes((there.folder / names[1]).read_bytes())
    report = bring(there, here)
    assert [damage.path for _, damage in report.damages] == [names[0]]
    assert names[0] not in contents(here.folder)
    assert [damage.path for damage in here.verify()] == [names[0]]  # it is missed


def test_what_is_no_record_of_this_version_is_named_and_not_copied(here, there):
    newer, good = add(there, 0), add(there, 1)
    data = json.loads(there.path(newer.id).read_text()) | {"schema_version": 2}
    there.path(newer.id).write_text(json.dumps(data | {"checksum": checksum(data)}))
    stray = there.folder / "records" / "ab" / f"{'ab':0<16}.json"
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(there.path(good.id).read_bytes())
    report = bring(there, here)
    assert sorted(damage.flaw for _, damage in report.damages) == ["misplaced", "newer"]
    assert report.copied == [good.id]
    assert [path.stem for path in here.files()] == [good.id]


def test_a_run_that_a_process_makes_here_is_left_to_it(here, there):
    record = add(there, 0)
    with here.lock(record.id):
        report = bring(there, here)
    assert (report.busy, report.whole, here.files()) == ([record.id], False, [])
    assert bring(there, here).copied == [record.id]


def test_a_record_that_appears_meanwhile_stays(here, there, monkeypatch):
    theirs, usual = add(there, 0), sync._Visit._complete
    mine = []

    def late(*args, **kwargs):
        usual(*args, **kwargs)
        mine.append(add(here, 0, metrics={"heldout.loss": 1.0}))

    monkeypatch.setattr(sync._Visit, "_complete", late)
    assert bring(there, here).busy == [theirs.id]
    assert here.get(theirs.id) == mine[0]


KILLED = """
import os, sys
from pathlib import Path
from ablations.core.disk import publishing
from ablations.core.store import Records
from ablations.core.sync import bring
left, usual = int(sys.argv[3]), publishing._linked
def linked(own, path):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), 9)
    return usual(own, path)
publishing._linked = linked
bring(Records(Path(sys.argv[1])), Records(Path(sys.argv[2])))
"""


@pytest.mark.nightly
def test_a_copy_that_is_killed_leaves_whole_records_and_the_next_one_goes_on(here, there):
    for seed in range(3):
        add(there, seed, digest=seed > 0)
    list_digests(there)
    for written in range(3):
        words = [sys.executable, "-c", KILLED, there.folder, here.folder, written]
        assert subprocess.run([*map(str, words)], env=os.environ, check=False).returncode == -signal.SIGKILL
        assert here.verify() == []
    assert bring(there, here).whole
    assert contents(here.folder) == contents(there.folder)
    assert here.verify() == []
    assert list(here.folder.rglob("*.tmp")) == []


class TestCommand:
    def test_it_says_what_came_what_is_in_conflict_and_what_is_damaged(self, here, there):
        mine = add(here, 0, metrics={"heldout.loss": 3.25})
        add(there, 0, metrics={"heldout.loss": 3.5})
        came, spoilt = add(there, 1), there.path(add(there, 2).id)
        spoilt.write_bytes(spoilt.read_bytes()[:100])
        words = "sync", there.folder, "--results-dir", here.folder
        assert "would copy 1" in call(*words, "--dry-run").output
        done = call(*words, "--format", "json")
        told = json.loads(done.stdout)
        assert (done.exit_code, told["copied"], [*told["conflicts"]]) == (1, [came.id], [mine.id])
        assert [(found["store"], found["flaw"]) for found in told["damages"]] == [(str(there.folder), "truncated")]
        for word in (mine.id, "3.25 here, 3.5 there", f"records/{mine.id[:2]}/{mine.id}.json", spoilt.name):
            assert word in done.stderr
        there.path(mine.id).unlink()
        spoilt.unlink()
        done = call(*words)
        assert (done.exit_code, "copied 0, 1 here already" in done.output) == (0, True)

    def test_a_folder_that_is_no_store_is_refused_and_nothing_is_made(self, here, there, tmp_path):
        add(there, 0)
        (tmp_path / "link").symlink_to(there.folder)
        (tmp_path / "checkout").mkdir()
        there.folder.rename(tmp_path / "checkout" / "results")
        there.folder.symlink_to(tmp_path / "checkout" / "results")
        refused = {
            tmp_path / "nowhere": "is no results folder",
            "s3://bucket/results": "copied by rclone or rsync",
            tmp_path / "checkout": f"Did you mean {tmp_path / 'checkout' / 'results'}?",
        }
        for folder, said in refused.items():
            done = call("sync", folder, "--results-dir", here.folder)
            assert done.exit_code == 2, folder
            assert said in " ".join(done.output.split()), folder
        assert not here.folder.exists()
        done = call("sync", tmp_path / "link", "--results-dir", there.folder)
        assert (done.exit_code, "the results folder itself" in " ".join(done.output.split())) == (2, True)
