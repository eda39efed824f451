"""How the nodes of a job find each other, hear of failures, and end."""

import os
import shutil
import signal
import time

import pytest

from ablations.running.exit_codes import FAILED, RECORDED
from ablations.running.job import Job
from ablations.running.ranks import further, memory, process
from ablations.running.ranks.group import Group
from ablations.running.ranks.meeting import Meeting, RankFailure


@pytest.fixture
def meeting(tmp_path):
    return Meeting(tmp_path)


def test_of_several_failures_the_one_that_others_follow_from_comes_first(meeting):
    lost, killed = RankFailure(1, "failed", "connection lost"), RankFailure(3, "killed", "signal 9", signal.SIGKILL)
    for failure in (
        lost,
        RankFailure(2, "oom", "no memory"),
        RankFailure(10, "killed", "signal 6", signal.SIGABRT),
        killed,
    ):
        meeting.fail(failure)
        time.sleep(0.01)  # files tell the order
    assert [failure.rank for failure in meeting.failures()] == [3, 2, 1, 10]
    assert str(killed) == "rank 3: signal 9"


def test_the_first_word_about_a_rank_stays_and_none_is_needed_when_all_is_over(meeting, tmp_path):
    meeting.fail(RankFailure(1, "oom", "no memory"))
    meeting.fail(RankFailure(1, "failed", "the process ended with code 1"))
    assert meeting.failures() == [RankFailure(1, "oom", "no memory")]
    shutil.rmtree(tmp_path)
    meeting.fail(RankFailure(2, "failed", "too late"))
    assert not tmp_path.exists()


def killed(told):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("forking")
@pytest.mark.parametrize(("count", "outcome"), [([4, 5], "oom"), ([4, 4], "killed")])
def test_a_rank_that_the_kernel_kills_for_memory_says_so(meeting, monkeypatch, count, outcome):
    counted = iter(count)
    monkeypatch.setattr(memory, "kills", lambda: next(counted))
    monkeypatch.setattr(process, "main", killed)
    group = Group(meeting, [1], "log.txt")
    while not group.are_over():
        time.sleep(0.01)
    group.note_deaths()
    group.end(0.0)
    (failure,) = meeting.failures()
    assert (failure.outcome, failure.signal) == (outcome, signal.SIGKILL)
    assert ("memory" in str(failure)) == (outcome == "oom")


@pytest.fixture
def serve(tmp_path, monkeypatch, capfd):
    """Lets a further node wait for calls into a folder; returns its exit code and what it has said."""
    monkeypatch.setattr(further, "_LOOK", 0.01)
    monkeypatch.setattr("ablations.running.outcomes.log_to", lambda path: None)

    def wait(folder):
        config = Job({}, str(tmp_path), str(tmp_path)).save()
        return further._serve(config, further._First(folder), 1), capfd.readouterr().err

    return wait


def test_a_further_node_ends_with_the_first_also_when_it_comes_late(tmp_path, serve):
    folder = tmp_path / f"{further.NODES}one"
    with further.calling(folder):
        pass
    assert serve(folder) == (RECORDED, "")
    with further.calling(tmp_path / f"{further.NODES}two"):
        assert not folder.exists(), "what an earlier attempt left is removed"


def test_a_further_node_ends_when_the_next_attempt_has_removed_the_folder(tmp_path):
    folder = tmp_path / f"{further.NODES}one"
    with further.calling(folder):
        first = further._First(folder)
        assert not first.is_silent()
        assert not first.is_over()
        shutil.rmtree(folder)
    assert first.is_over()


@pytest.mark.parametrize(("limit", "begun"), [("_BEGIN", False), ("_SILENT", True)])
def test_a_first_node_that_does_not_begin_or_falls_silent_is_not_waited_for(tmp_path, serve, monkeypatch, limit, begun):
    monkeypatch.setattr(further, limit, 0.1)
    folder = tmp_path / f"{further.NODES}one"
    if begun:
        folder.mkdir()
        (folder / "alive").touch()
    assert serve(folder) == (FAILED, "node 1: nothing is heard of the first node\n")
