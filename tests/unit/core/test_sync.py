"""Two stores united: folders, and a file system of fsspec in memory."""

import errno
import hashlib
import itertools
import json
import shutil
import time

import fsspec
import numpy as np
import pytest

from ablations.core.disk import heldout
from ablations.core.disk.publishing import StoreError
from ablations.core.sharing.remote import Remote, site
from ablations.core.sharing.sites import Folder
from ablations.core.sharing.sync import unite
from ablations.core.store import Records
from ablations.schema.record import checksum
from lightning_modules.config import ConfigError
from lightning_modules.tasks.scores.kept import pack
from tests.unit.core.test_store import make_record, make_run

NUMBERS = itertools.count()


@pytest.fixture
def here(tmp_path):
    return Records(tmp_path / "here")


@pytest.fixture(params=["folder", "memory"])
def there(request, tmp_path):
    """Another store: its site, and what it holds by name."""
    if request.param == "folder":
        return Folder(tmp_path / "there")
    return Remote(f"memory://store {next(NUMBERS)}", 5.0)


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


def contents(site):
    return site.read(site.files())


def filled(site, tmp_path, *seeds, **changes):
    """Fills a store elsewhere, from a folder of its own."""
    source = Records(tmp_path / f"source {next(NUMBERS)}")
    made = [add(source, seed, **changes) for seed in seeds]
    unite(Folder(source.folder), site, pull=False)
    return made


def test_what_either_lacks_is_copied_and_the_stores_become_equal(here, there, tmp_path):
    ours = [add(here, seed) for seed in range(3)]
    theirs = filled(there, tmp_path, 2, 3, 4)
    assert theirs[0] == ours[2]
    report = unite(Folder(here.folder), there)
    assert set(report.pushed) == {record.id for record in ours[:2]}
    assert set(report.pulled) == {record.id for record in theirs[1:]}
    assert (report.same, report.whole) == (1, True)
    assert contents(there) == contents(Folder(here.folder))
    assert here.verify() == []
    assert {record.id: here.sums(record.id) for record in theirs} == {
        record.id: losses(seed) for seed, record in zip((2, 3, 4), theirs, strict=True)
    }
    again = unite(Folder(here.folder), there)
    assert (again.pushed, again.pulled, again.same) == ([], [], 5)


@pytest.mark.parametrize(("way", "copied"), [("push", "pushed"), ("pull", "pulled")])
def test_one_way_writes_one_store_alone(here, there, tmp_path, way, copied):
    add(here, 0)
    filled(there, tmp_path, 1)
    before = {"push": contents(Folder(here.folder)), "pull": contents(there)}[way]
    report = unite(Folder(here.folder), there, push=way == "push", pull=way == "pull")
    assert len(getattr(report, copied)) == len([*report.pushed, *report.pulled]) == 1
    assert {"push": contents(Folder(here.folder)), "pull": contents(there)}[way] == before


def test_a_dry_run_tells_the_same_and_writes_nothing(here, there, tmp_path):
    add(here, 0)
    add(here, 5, metrics={"heldout.loss": 1.0})
    filled(there, tmp_path, 1, 5)
    before = contents(Folder(here.folder)), contents(there)
    told = unite(Folder(here.folder), there, dry_run=True)
    assert (contents(Folder(here.folder)), contents(there)) == before
    assert list(here.folder.rglob("*.conflict")) == []
    assert unite(Folder(here.folder), there) == told
    assert len(told.conflicts) == 1


@pytest.mark.parametrize("final_here", [True, False])
def test_an_attempt_never_stands_in_the_way_of_a_finished_run(here, there, tmp_path, final_here):
    filled(there, tmp_path, 0, sums=not final_here, outcome="failed" if final_here else "done")
    add(here, 0, sums=final_here, outcome="done" if final_here else "killed")
    report = unite(Folder(here.folder), there)
    assert report.whole
    assert contents(there) == contents(Folder(here.folder))
    assert [record.outcome for record in here.all()] == ["done"]


def test_losses_that_an_attempt_left_do_not_stay_beside_another_sites_record(here, there, tmp_path):
    filled(there, tmp_path, 0)
    run = make_run(0).id
    here.put_sums(run, {"losses": ["of an attempt that died"]})
    unite(Folder(here.folder), there)
    assert here.sums(run) == losses(0)


def test_two_attempts_stay_where_they_are(here, there, tmp_path):
    filled(there, tmp_path, 0, outcome="failed", detail="there")
    mine = add(here, 0, outcome="failed", detail="here")
    report = unite(Folder(here.folder), there)
    assert (report.same, report.whole, here.get(mine.id)) == (1, True, mine)


def test_a_conflict_is_named_kept_on_both_sides_and_explained(here, there, tmp_path):
    (theirs,) = filled(there, tmp_path, 0, metrics={"heldout.loss": 3.5}, provenance={"device": "H100"})
    mine = add(here, 0, metrics={"heldout.loss": 3.25})
    other = add(here, 1)
    report = unite(Folder(here.folder), there)
    (conflict,) = report.conflicts
    assert conflict.run == mine.id
    assert report.pushed == [other.id]
    assert not report.whole
    assert here.get(mine.id) == mine
    (damage,) = here.verify()
    assert damage.flaw == "conflict"
    assert damage.message == conflict.message
    for word in ("heldout.loss", "3.25 here", "3.5 there", "commit 0123456", "device H100", f"{mine.id}.json"):
        assert word in damage.message
    kept = here.folder / damage.path
    assert json.loads(kept.read_text())["checksum"] == theirs.checksum
    assert unite(Folder(here.folder), there).conflicts == [conflict]

    unite(Folder(tmp_path / "third"), there)  # what is kept beside a store's own record goes nowhere
    assert list((tmp_path / "third").rglob("*.conflict")) == []
    assert Records(tmp_path / "third").get(mine.id) == theirs

    kept.replace(here.path(mine.id))  # the other one is trusted, and its losses are taken along
    beside = heldout.name(mine.id)
    Folder(here.folder).put(beside, contents(there)[beside], lambda raw: False)
    assert here.verify() == []
    assert unite(Folder(here.folder), there).whole


def explained(records):
    return next(damage.message for damage in records.verify() if damage.flaw == "conflict")


def test_a_conflict_that_was_settled_says_that_its_file_can_go(here, there, tmp_path):
    filled(there, tmp_path, 0, metrics={"heldout.loss": 3.5})
    mine = add(here, 0)
    unite(Folder(here.folder), there)
    (kept,) = here.folder.rglob("*.conflict")
    shutil.copy(kept, here.path(mine.id))
    assert "Remove this file" in explained(here)
    here.path(mine.id).unlink()
    assert "has none here" in explained(here)


def cut(raw):
    return raw[: len(raw) // 2]


def edited(raw):
    return raw.replace(b"3.25", b"2.25")


@pytest.mark.parametrize(("damage", "flaw"), [(cut, "truncated"), (edited, "altered"), (lambda raw: b"", "empty")])
@pytest.mark.parametrize("present", [False, True], ids=["missing here", "present here"])
def test_a_damaged_record_is_named_and_skipped_wherever_it_lies(here, there, tmp_path, damage, flaw, present):
    (spoilt,) = filled(there, tmp_path, 0)
    name = f"records/{spoilt.id[:2]}/{spoilt.id}.json"
    there.put(name, damage(contents(there)[name]), lambda raw: False)
    if present:
        add(here, 0)
    good = add(here, 1)
    before = contents(there)[name]
    report = unite(Folder(here.folder), there)
    ((place, found),) = report.damages
    assert (place, found.path, found.flaw) == (there.address, name, flaw)
    assert (report.pushed, report.pulled) == ([good.id], [])
    assert contents(there)[name] == before
    assert here.examine(spoilt.id) == (spoilt if present else None)

    back = unite(there, Folder(here.folder))  # the same from the other side
    assert [damage.flaw for _, damage in back.damages] == [flaw]


@pytest.mark.parametrize("suffix", [".heldout", "environment"])
def test_what_belongs_to_a_record_is_checked_too(here, there, tmp_path, suffix):
    made = filled(there, tmp_path, 0, 1)
    named = f"environments/{made[0].provenance['environment']}.json"
    name = named if suffix == "environment" else f"records/{made[0].id[:2]}/{made[0].id}.heldout"
    whole = contents(there)[name]
    there.put(name, cut(whole), lambda raw: False)
    report = unite(Folder(here.folder), there)
    assert [damage.path for _, damage in report.damages] == [name]  # once, though two records share the environment
    assert len(report.pulled) == 2
    assert name not in contents(Folder(here.folder))
    there.put(name, whole, lambda raw: False)
    assert unite(Folder(here.folder), there).whole
    assert contents(Folder(here.folder)) == contents(there)


def list_digests(site):
    """Lists the digests of all losses at a site, as of records that say none; returns the lines."""
    found = {name: raw for name, raw in contents(site).items() if name.endswith(".heldout")}
    lines = [f"{hashlib.sha256(found[name]).hexdigest()}  {name.removeprefix('records/')}\n" for name in sorted(found)]
    site.put(heldout.LIST, "".join(lines).encode(), lambda raw: False)
    return lines


def listed(site):
    return site.read([heldout.LIST])[heldout.LIST].decode().splitlines(keepends=True)


def test_listed_digests_of_losses_go_with_the_records(here, there, tmp_path):
    for seed in range(2):
        add(here, seed, digest=False)
    filled(there, tmp_path, 2, 3, digest=False)
    both = sorted(list_digests(Folder(here.folder)) + list_digests(there), key=lambda line: line[66:])
    assert unite(Folder(here.folder), there, dry_run=True).pushed
    assert len(listed(there)) == len(listed(Folder(here.folder))) == 2
    unite(Folder(here.folder), there, push=False)
    assert (len(listed(there)), listed(Folder(here.folder))) == (2, both)
    unite(Folder(here.folder), there)
    assert listed(there) == both
    third = Folder(tmp_path / "third")
    assert unite(third, there).whole
    assert listed(third) == both
    assert Records(third.folder).verify() == []


def test_losses_that_are_not_those_of_the_list_are_not_copied(here, there, tmp_path):
    theirs = filled(there, tmp_path, 0, 1, digest=False)
    list_digests(there)
    names = [heldout.name(record.id) for record in theirs]
    there.put(names[0], contents(there)[names[1]], lambda raw: False)
    report = unite(Folder(here.folder), there)
    assert [damage.path for _, damage in report.damages] == [names[0]]
    assert names[0] not in contents(Folder(here.folder))
    assert [damage.path for damage in here.verify()] == [names[0]]  # it is missed


def test_a_newer_record_is_left_alone(here, there, tmp_path):
    (theirs,) = filled(there, tmp_path, 0)
    name = f"records/{theirs.id[:2]}/{theirs.id}.json"
    data = json.loads(contents(there)[name]) | {"schema_version": 2}
    there.put(name, json.dumps(data | {"checksum": checksum(data)}).encode(), lambda raw: False)
    add(here, 0)
    before = contents(there)
    assert [damage.flaw for _, damage in unite(Folder(here.folder), there).damages] == ["newer"]
    assert contents(there)[name] == before[name]


def test_names_that_are_no_record_are_never_read(here):
    there = Remote(f"memory://store {next(NUMBERS)}", 5.0)
    for name in ("records/ab/../../../evil.json", "records/ab/cd00000000000000.json", "records/runs.csv", "README.md"):
        there.fs.pipe_file(f"{there.root}/{name}", b"{}")
    assert there.files() == {}
    assert unite(Folder(here.folder), there).whole


def test_a_record_that_comes_from_elsewhere_meanwhile_stays(here, there, tmp_path):
    add(here, 0)

    def published(site, put=there.put):
        def late(name, content, stands):
            if name.endswith(".json") and name.startswith("records"):
                filled_by_other = make_record(make_run(0), metrics={"heldout.loss": 1.0}).to_dict()
                put(name, json.dumps(filled_by_other | {"checksum": checksum(filled_by_other)}).encode())
            return put(name, content, stands) if stands else put(name, content)

        return late

    there.put = published(there)
    report = unite(Folder(here.folder), there)
    assert (report.pushed, report.overtaken) == ([], [make_run(0).id])
    del there.put
    assert len(unite(Folder(here.folder), there).conflicts) == 1


class Faulty(fsspec.get_filesystem_class("memory")):
    """A place with a fault."""

    cachable = False
    fault = ""

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        if self.fault == "overwrites":
            return super().pipe_file(path, value)
        if self.fault == "refuses":
            raise PermissionError("Access Denied")
        if self.fault == "cuts" and "trial" not in path:
            return super().pipe_file(path, value[:10], mode=mode)
        return super().pipe_file(path, value, mode=mode, **kwargs)

    def ls(self, path, **kwargs):
        if self.fault == "hangs":
            time.sleep(3.0)
        if self.fault == "hides":
            raise PermissionError("Access Denied")
        if self.fault == "breaks":
            raise RuntimeError("the server is on fire")
        return super().ls(path, **kwargs)


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        ("overwrites", errno.ENOTSUP, "--pull-only"),
        ("refuses", errno.EACCES, "no permission to write to it"),
        ("cuts", errno.EIO, "other bytes"),
        ("hangs", errno.ETIMEDOUT, "no answer within 0.3 s"),
        ("hides", errno.EACCES, "no permission to list it"),
        ("breaks", errno.EIO, "the server is on fire"),
    ],
)
def test_a_faulty_place_is_named_and_nothing_is_half_written(here, monkeypatch, fault, code, said):
    monkeypatch.setattr(Faulty, "store", {})
    monkeypatch.setattr(Faulty, "pseudo_dirs", [""])
    monkeypatch.setattr(Faulty, "fault", fault)
    add(here, 0)
    address = "memory://faulty"
    there = Remote(address, 0.3 if fault == "hangs" else 5.0)
    there.fs = Faulty()
    began = time.monotonic()
    with pytest.raises(StoreError, match=said) as raised:
        unite(Folder(here.folder), there)
    assert time.monotonic() - began < 2.5
    assert (raised.value.errno, raised.value.filename) == (code, address)
    monkeypatch.setattr(Faulty, "fault", "")
    assert there.files() == {}


def test_a_full_disk_here_ends_it_and_the_next_time_goes_on(here, there, tmp_path, monkeypatch):
    filled(there, tmp_path, *range(4))
    put, room = Folder.put, [3]

    def limited(self, name, content, *stands):
        if self.folder == here.folder:
            room[0] -= 1
            if room[0] < 0:
                raise StoreError(errno.ENOSPC, "No space left on device", name)
        return put(self, name, content, *stands)

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "put", limited)
        with pytest.raises(StoreError, match="No space left"):
            unite(Folder(here.folder), there)
    assert here.verify() == []
    assert unite(Folder(here.folder), there).whole
    assert contents(Folder(here.folder)) == contents(there)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s4://bucket", "s3"),
        ("nowhere://x", "there is no protocol"),
        ("memory://store*", "patterns"),
        ("file:///no/such/parent/store", "there is no folder"),
        ("no such parent/store", "there is no folder"),
    ],
)
def test_addresses_that_mean_nothing_are_refused(url, said):
    with pytest.raises(ConfigError, match=said):
        site(url, 5.0)


@pytest.mark.parametrize(("url", "package"), [("s3://bucket/x", "s3fs"), ("ssh://host/x", "sshfs")])
def test_a_missing_driver_is_named(monkeypatch, url, package):
    def absent(protocol):
        raise ImportError

    monkeypatch.setattr(fsspec, "get_filesystem_class", absent)
    with pytest.raises(ConfigError, match=f"pip install {package}"):
        site(url, 5.0)


def test_a_driver_that_checks_no_host_keys_is_refused(monkeypatch):
    monkeypatch.setattr(fsspec, "get_filesystem_class", lambda protocol: Faulty)
    with pytest.raises(ConfigError, match="pip install sshfs"):
        site("ssh://host/x", 5.0)


def test_passwords_are_not_shown():
    assert Remote("memory://user:secret@host/store", 5.0).address == "memory://user:***@host/store"
