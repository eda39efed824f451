"""Records: written whole or not at all, read with suspicion."""

import errno
import json
import os

import pytest

from ablations.core.store import LARGEST_RECORD, Records, RecordWarning, StoreError
from ablations.schema.record import Record, checksum
from ablations.schema.run import Run
from lightning_modules.systems import SYSTEMS
from tests.messages import naming

SYSTEM = SYSTEMS["roberta_base"]


def make_run(seed=0):
    return Run.pretraining(SYSTEM, seed, {"text": "f" * 64})


def make_record(run=None, **changes):
    run = run or make_run()
    points = [1.0 / (n + 3) for n in range(64)]
    settings = {
        "outcome": "done",
        "metrics": {"heldout.loss": 3.25, "heldout.plateau": False},
        "curve": dict.fromkeys(("step", "tokens", "train.loss", "heldout.loss", "heldout.accuracy"), points),
        "cost": {"seconds": 2.0, "flops": 1e9},
        "provenance": {"device": "cpu", "attempts": 1},
    }
    return Record(id=run.id, kind=run.kind, config=run.to_dict(), **{**settings, **changes})


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "results")


def damaged(records, run_id):
    with pytest.warns(RecordWarning) as said:
        assert records.get(run_id) is None
    return str(said[0].message)


def test_a_record_comes_back_as_it_was_put(records):
    record = make_record()
    stored = records.put(record)
    assert records.get(record.id) == stored
    assert stored.model_copy(update={"checksum": ""}) == record
    assert stored.run() == make_run()
    assert list(records.all()) == [stored]
    assert records.verify() == []
    path = records.path(record.id)
    assert path.relative_to(records.folder).as_posix() == f"records/{record.id[:2]}/{record.id}.json"
    assert path.stat().st_size < 12_000
    assert [p.name for p in path.parent.iterdir()] == [path.name]  # no temporary file stays


def test_equal_records_have_equal_bytes(records, tmp_path):
    other = Records(tmp_path / "other")
    first, second = make_record(), make_record()
    records.put(first.model_copy(update={"metrics": dict(reversed(first.metrics.items()))}))
    other.put(second)
    assert records.path(first.id).read_bytes() == other.path(second.id).read_bytes()


@pytest.mark.parametrize("name", ["../../etc/passwd", "ABCDEF0123456789", "0123", "0123456789abcdef0", "x" * 16])
def test_ids_are_hexadecimal_and_nothing_else(records, name):
    for ask in (records.path, records.get, records.lock, records.work_folder):
        with pytest.raises(ValueError, match="is not a run id"):
            ask(name)


def test_a_record_that_changes_type_is_malformed_even_with_a_right_checksum(records):
    record = records.put(make_record())
    data = json.loads(records.path(record.id).read_text())
    data["metrics"]["heldout.loss"] = "3.25"
    data["checksum"] = checksum(data)
    records.path(record.id).write_text(json.dumps(data))
    assert "metrics.heldout.loss" in damaged(records, record.id)


def test_a_newer_record_is_never_overwritten(records):
    record = records.put(make_record())
    path = records.path(record.id)
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 2'))
    before = path.read_bytes()
    with pytest.raises(StoreError, match="newer"):
        records.put(make_record())
    assert path.read_bytes() == before


def test_verify_notices_a_configuration_that_means_something_else(records):
    record = records.put(make_record())
    data = json.loads(records.path(record.id).read_text())
    data["config"]["seed"] = 5
    data["checksum"] = checksum(data)
    records.path(record.id).write_text(json.dumps(data))
    assert [found.flaw for found in records.verify()] == ["drifted"]


def test_a_record_under_another_name_is_misplaced(records):
    record = records.put(make_record())
    moved = records.path("0" * 16)
    moved.parent.mkdir(exist_ok=True)
    records.path(record.id).rename(moved)
    assert "holds the record of" in damaged(records, "0" * 16)


@pytest.mark.parametrize("place", ["records", "records/{}"])
def test_folders_that_another_user_has_closed_are_refused(records, monkeypatch, place):
    """Their records would count as missing, and pages would be written without them."""
    kept = records.put(make_record())
    closed = records.folder / place.format(kept.id[:2])

    def opened(call):
        def refuse(path=".", *rest):
            if str(path) == str(closed):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return call(path, *rest)

        return refuse

    for name in ("listdir", "scandir"):  # the superuser, as whom tests may run, is let in everywhere
        monkeypatch.setattr(os, name, opened(getattr(os, name)))
    for read in (records.files, records.snapshot, records.verify):
        with pytest.raises(StoreError, match=naming(str(closed), "Permission denied", "chmod")) as refused:
            read()
        assert refused.value.errno == errno.EACCES


def test_records_have_a_largest_size(records):
    with pytest.raises(StoreError, match=f"{LARGEST_RECORD:,}"):
        records.put(make_record(provenance={"long": "x" * LARGEST_RECORD}))
    assert records.files() == []
