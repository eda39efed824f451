"""Publication of records: of several writers exactly one wins, whatever became of their locks."""

import errno
import os
import threading
from collections import Counter

import pytest

from ablations.core.disk import publishing
from ablations.core.disk.publishing import publish
from ablations.core.store import Records
from ablations.schema.record import checksum
from tests.unit.core.test_store import make_record


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "results")


def files(records, run_id):
    return sorted(path.name for path in records.path(run_id).parent.iterdir())


@pytest.mark.parametrize("outcome", ["done", "diverged", "invalid"])
def test_a_final_record_is_never_replaced(records, outcome):
    first = records.put(make_record(outcome=outcome))
    assert records.put(make_record(metrics={"heldout.loss": 1.0})) == first
    assert records.put(make_record(outcome="failed")) == first
    assert records.get(first.id) == first


@pytest.mark.parametrize("earlier", [None, "failed"])
def test_of_many_writers_without_a_lock_exactly_one_wins(records, earlier):
    if earlier:
        records.put(make_record(outcome=earlier))
    mine = [make_record(provenance={"writer": number}) for number in range(16)]
    ready, kept = threading.Barrier(len(mine)), {}

    def write(number):
        ready.wait()
        kept[number] = records.put(mine[number])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(len(mine))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [number for number, record in kept.items() if record.checksum == checksum(mine[number].to_dict())]
    assert len(winners) == 1
    assert Counter(record.provenance["writer"] for record in kept.values()) == {winners[0]: 16}
    assert records.get(mine[0].id) == kept[0]
    assert files(records, mine[0].id) == [f"{mine[0].id}.json"]


@pytest.mark.slow
def test_a_record_published_while_an_attempt_is_moved_aside_stays(records, monkeypatch):
    """A writer sees an attempt, pauses, and then moves away what another has published meanwhile."""
    attempt, late = records.put(make_record(outcome="killed")), make_record(provenance={"writer": "late"})
    path, rename, first = records.path(attempt.id), os.rename, []

    def paused(source, target):
        if not first:
            first.append(None)
            first[0] = Records(records.folder).put(make_record(provenance={"writer": "other"}))
        rename(source, target)

    monkeypatch.setattr(os, "rename", paused)
    monkeypatch.setattr(publishing, "_PATIENCE", 0.0)  # it writes without its turn, as behind a stopped writer
    assert records.put(late) == first[0]
    assert records.get(attempt.id).provenance == {"writer": "other"}
    assert files(records, attempt.id) == [path.name]


def test_what_dead_writers_left_is_cleared_away_and_nothing_final_is_lost(records):
    done = records.put(make_record())
    path = records.path(done.id)
    path.with_name(f".{path.name}.1-ab.tmp").write_bytes(b"half of a rec")
    path.rename(path.with_name(f".{path.name}.1-cd.old"))  # it died between two steps
    assert records.get(done.id) is None
    assert records.put(make_record(provenance={"writer": "late"})) == done
    assert files(records, done.id) == [path.name]


@pytest.mark.parametrize("refused", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_file_system_without_hard_links_is_written_too(records, monkeypatch, refused):
    def link(*_):
        raise OSError(refused, "Operation not supported")

    monkeypatch.setattr(os, "link", link)
    records.put(make_record(outcome="failed"))
    done = records.put(make_record())
    assert done.outcome == "done"
    assert records.put(make_record(provenance={"writer": "late"})) == done
    assert files(records, done.id) == [f"{done.id}.json"]


def test_an_answer_that_a_file_server_loses_is_no_loss(tmp_path, monkeypatch):
    link = os.link

    def answered_late(source, target):
        link(source, target)
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(os, "link", answered_late)
    assert publish(tmp_path / "file", b"content", lambda path: True)
    assert (tmp_path / "file").read_bytes() == b"content"


def test_sums_beside_a_final_record_stay_those_of_that_record(records):
    run_id = make_record().id
    records.put_sums(run_id, {"sequences": "of an attempt that died"})
    records.put_sums(run_id, {"sequences": "of the record"})
    records.put(make_record())
    records.put_sums(run_id, {"sequences": "of a late worker"})
    assert records.sums(run_id) == {"sequences": "of the record"}
