"""A finished pretraining keeps what counting reaches on its held-out words, whatever becomes of that."""

import contextlib

import pytest

from ablations.core import machine
from ablations.core.disk import bars
from ablations.core.store import Records
from ablations.running.execute import execute, execute_phases
from ablations.running.worker import LOG
from lightning_modules.config import ConfigError
from lightning_modules.measures import counting
from lightning_modules.measures.counting import Reached
from tests.unit.run_graphs import planned

REACHED = Reached({"pairs": 4.5}, {100: 4.5}, {"pairs": [1]}, {"training": 100}, "a", "b")


@pytest.fixture
def counted(monkeypatch):
    """Targets that were counted, and a function that may raise in its place."""
    asked, obstacle = [], {"": lambda: None}

    def reached(system, target):
        asked.append(target)
        obstacle[""]()
        return REACHED

    monkeypatch.setattr(counting, "reached", reached)
    monkeypatch.setattr(machine, "gpus", dict)
    return asked, obstacle


def executed(folder, records, **options):
    def watch(plan):
        return contextlib.nullcontext(lambda event: None)

    return execute_phases(lambda: planned(folder, records, **options), records, "inline", retries=0, watch=watch)


def trained(folder, records, **options):
    return execute(planned(folder, records, **options), records, "inline", retries=0)


def test_the_first_run_of_a_question_counts(tmp_path, trainings, counted):
    records = Records(tmp_path / "results")
    assert trained(tmp_path, records, seeds=3).outcomes == {"done": 3}
    assert counted[0] == ["mlm"]
    run = planned(tmp_path, records, seeds=3).runs[0]
    assert bars.read(records.folder, bars.name(run, "mlm")).level == 4.5
    assert records.verify() == []
    assert trained(tmp_path, records, seeds=4).outcomes == {"done": 4}
    assert counted[0] == ["mlm"]


def test_a_run_is_done_where_counting_fails(tmp_path, trainings, counted):
    def fail():
        raise MemoryError("too many pairs")

    counted[1][""] = fail
    records = Records(tmp_path / "results")
    summary = executed(tmp_path, records)
    assert (summary.outcomes, summary.problems) == ({"done": 1}, [])
    run = planned(tmp_path, records).runs[0]
    assert not bars.is_kept(records.folder, bars.name(run, "mlm"))
    assert "too many pairs" in (records.work_folder(run.id) / LOG).read_text()
    assert "MemoryError: too many pairs" in str(summary)


def test_a_later_call_counts_what_finished_runs_lack_and_says_why_it_cannot(tmp_path, trainings, counted):
    def fail():
        raise ConfigError(["there is no text 'x'"])

    usual, counted[1][""] = counted[1][""], fail
    records = Records(tmp_path / "results")
    said = [executed(tmp_path, records, seeds=2).notes for _ in range(2)]
    assert [len(notes) for notes in said] == [1, 1], "of two runs with the same words"
    assert "there is no text 'x'" in said[0][0]
    counted[1][""] = usual
    assert executed(tmp_path, records, seeds=2).notes == []
    run = planned(tmp_path, records, seeds=2).runs[0]
    assert bars.read(records.folder, bars.name(run, "mlm")).level == 4.5
    asked = len(counted[0])
    executed(tmp_path, records, seeds=2)
    assert len(counted[0]) == asked
