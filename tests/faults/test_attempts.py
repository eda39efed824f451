"""Attempts are written down while they are made: seen from another terminal, stopped there, recorded if they die."""

import json
import os
import signal

import pytest
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core.disk import locks
from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running import attempts, launchers
from ablations.running.execute import execute
from tests import tiny
from tests.unit.run_graphs import planned


@pytest.fixture
def records(cached):
    return Records(cached / "results")


def ablations(*arguments, records):
    return CliRunner().invoke(app, [*arguments, "--results-dir", str(records.folder)])


def test_an_attempt_is_there_while_it_is_made_and_gone_afterwards(cached, records):
    found, seen = planned(cached, records), []

    def tell(event):
        if event.kind == "progress" and not seen:
            (attempt,) = attempts.known(records)
            done = ablations("status", "--format", "json", records=records)
            seen.append((attempt, json.loads(done.stdout), ablations("status", "tiny", records=records).output))

    execute(found, records, "inline", on_event=tell)
    ((attempt, (row,), table),) = seen
    assert (attempt.run_id, attempt.number, attempt.pid) == (found.runs[0].id, 1, os.getpid())
    assert (row["run"], row["state"], row["process"]) == (attempt.run_id, "runs", os.getpid())
    assert found.label(attempt.run_id) in row["what"]
    assert f"process {os.getpid()}" in table
    assert list(attempts.known(records)) == []
    assert ablations("status", records=records).exit_code == 0


@pytest.mark.parametrize("number", [1, 4])
def test_a_dead_attempt_is_recorded_as_killed_before_the_next(cached, records, number):
    """Nobody heard of its end: neither its process nor its launcher lives."""
    found = planned(cached, records)
    (run,) = found.runs
    attempts.begin(records, run.id, number, "2026-01-01T00:00:00+00:00")
    assert "dead" in ablations("status", records=records).output
    put, kept = Records.put, []

    class Kept(Records):
        def put(self, record):
            kept.append(record)
            return put(self, record)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Records, "put", Kept.put)
        assert execute(found, records, "inline").outcomes == {"done": 1}
    killed, done = kept
    assert (killed.outcome, killed.provenance["attempts"]) == ("killed", number)
    assert f"process {os.getpid()}" in killed.detail
    assert (done.outcome, done.provenance["attempts"]) == ("done", number + 1)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"run_id": "x"}', b"\xff", b"[1]"])
def test_a_damaged_note_of_an_attempt_costs_nothing(cached, records, content):
    found = planned(cached, records)
    path = records.folder / locks.FOLDER / "attempts" / f"{found.runs[0].id}.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert execute(found, records, "inline").outcomes == {"done": 1}
    assert not path.exists()


def test_a_launcher_is_stopped_from_another_terminal(cached, records, monkeypatch):
    monkeypatch.setattr(launchers, "_LOOK", 0.05)
    file, said = tiny.grid(cached, rates="[0.15]", steps=200_000, seeds=1), []

    def tell(event):
        if event.kind == "progress" and not said:
            said.append(ablations("stop", "another", records=records).exit_code)
            said.append(ablations("stop", "tiny", records=records).exit_code)

    found = plan(grids.read(file), "smoke", records=records)
    with pytest.raises(SystemExit) as ended:
        execute(found, records, "inline", on_event=tell)
    assert (said, ended.value.code) == ([2, 0], 128 + signal.SIGTERM)
    assert (records.work_folder(found.runs[0].id) / "last.ckpt").exists()
    assert list(attempts.known(records)) == []
    assert not list((records.folder / locks.FOLDER / "launchers").glob("*.stop"))
    assert ablations("stop", records=records).exit_code == 1
