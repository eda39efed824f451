"""How a run can end badly, what is recorded of it, and whether it is tried again."""

import mmap
import os
import signal

import numpy as np
import pytest
import torch

from ablations.core import provenance
from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from ablations.running.launch import Launch
from ablations.running.ranks import memory
from lightning_modules import pretraining as fitting
from lightning_modules.config import ConfigError
from tests import tiny
from tests.depth import some
from tests.faults.support import attempts, family
from tests.messages import names, naming


@pytest.fixture
def records(cached):
    return Records(cached / "results")


def planned(cached, records, **options):
    options = {"rates": "[0.15]", "seeds": 1, "steps": 4, **options}
    return plan(grids.read(tiny.grid(cached, **options)), "smoke", records=records)


def run_with(monkeypatch, cached, records, error, *, times=99, retries=1):
    """Executes a plan of one run whose training raises an error the first so many times."""
    calls, real = [], fitting.fit

    def fit(*arguments, **options):
        calls.append(1)
        if len(calls) <= times:
            raise error
        return real(*arguments, **options)

    monkeypatch.setattr(fitting, "fit", fit)
    summary = execute(planned(cached, records), records, "inline", retries=retries)
    return summary, next(records.all()), len(calls)


def test_divergence_is_final(cached, records):
    file = tiny.grid(cached, rates="[0.15]", seeds=1, steps=60)
    file.write_text(
        file.read_text().replace("set:\n", "set:\n  optimizer.peak_lr: 1e30\n  training.clip_norm: 0.0\n", 1)
    )
    grid = grids.read(file)
    summary = execute(plan(grid, "smoke", records=records), records, "inline")
    assert summary.outcomes == {"diverged": 1}
    assert summary.executed == 1
    assert summary.complete
    (record,) = records.all()
    assert record.detail.startswith("loss not finite at step ")
    assert record.metrics == {}
    again = execute(plan(grid, "smoke", records=records), records, "inline")
    assert (again.executed, again.outcomes) == (0, {"diverged": 1})


def test_out_of_memory_names_the_bytes_and_is_tried_on_the_next_launch_only(monkeypatch, cached, records):
    error = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB, 1.25 GiB free")
    summary, record, calls = run_with(monkeypatch, cached, records, error)
    assert (summary.outcomes, calls, summary.complete) == ({"oom": 1}, 1, False)
    assert "2.00 GiB" in record.detail
    assert planned(cached, records).counts == {"oom": 1}
    assert len(planned(cached, records).pending) == 1


def test_out_of_memory_on_a_device_that_others_share_is_tried_again(monkeypatch, cached, records):
    crowded, again = [], Launch._again

    def sharing(launch, *arguments):
        launch.is_sharing = True
        crowded.append(again(launch, *arguments) and launch.is_crowded)
        return crowded[-1]

    monkeypatch.setattr(Launch, "_again", sharing)
    error = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB, 1.25 GiB free")
    summary, record, calls = run_with(monkeypatch, cached, records, error, times=1)
    assert (summary.outcomes, calls, record.outcome) == ({"done": 1}, 2, "done")
    assert crowded == [True, False]


@pytest.mark.parametrize(
    "ask",
    [lambda: torch.empty(1 << 50), lambda: np.empty(1 << 50), lambda: mmap.mmap(-1, 1 << 50)],
    ids=["torch", "numpy", "the system"],
)
def test_exhausted_memory_of_the_processor_is_out_of_memory_too(monkeypatch, cached, records, ask):
    with pytest.raises((RuntimeError, MemoryError, OSError)) as raised:
        ask()
    summary, record, calls = run_with(monkeypatch, cached, records, raised.value)
    assert (summary.outcomes, calls, summary.complete) == ({"oom": 1}, 1, False)
    assert "allocate" in record.detail
    assert len(planned(cached, records).pending) == 1


def test_a_configuration_that_cannot_work_is_final(monkeypatch, cached, records):
    summary, record, calls = run_with(monkeypatch, cached, records, ConfigError(["too many sequences"]))
    assert (summary.outcomes, calls, record.detail) == ({"invalid": 1}, 1, "too many sequences")
    assert planned(cached, records).pending == ()


def test_a_failure_is_tried_again_and_its_record_says_where(monkeypatch, cached, records):
    summary, record, calls = run_with(monkeypatch, cached, records, ValueError("of no use"), retries=2)
    assert (summary.outcomes, calls, record.provenance["attempts"]) == ({"failed": 1}, 3, 3)
    message, place, *_ = record.detail.splitlines()
    assert message == "ValueError: of no use"
    assert place.startswith("tests/faults/test_outcomes.py:")
    assert "ablations/running/worker.py:" in record.detail
    message, place, log = str(summary).splitlines()[1:]
    assert message == "rate=0.15 seed 0 failed: ValueError: of no use"
    assert place.startswith("  at tests/faults/test_outcomes.py:")
    assert log == f"  log: {records.work_folder(record.id) / 'log.txt'}"
    assert "ValueError: of no use" in (records.work_folder(record.id) / "log.txt").read_text()
    shown = summary._repr_markdown_()
    assert names(shown, "ValueError: of no use", f"ablations logs {record.id}")
    assert str(cached) not in shown
    assert str(cached) not in record.detail
    assert not any(line.startswith("/") for line in record.detail.splitlines())


def test_missing_text_is_said_before_anything_runs(cached, records):
    file = tiny.grid(cached)
    file.write_text(file.read_text().replace(f"text:{cached}/text/*.txt", "novels"))
    with pytest.raises(ConfigError, match=r"'novels'.*ABLATIONS_DATA"):
        execute(plan(grids.read(file), "smoke", records=records), records, "local")
    assert list(records.all()) == []
    assert records.work_folders() == []


def test_results_that_cannot_be_kept_are_said_before_anything_runs(cached):
    (cached / "file").write_text("")
    inside = Records(cached / "file" / "results")
    with pytest.raises(ConfigError, match=r"cannot write results to .*: Not a directory"):
        execute(planned(cached, inside), inside, "inline")


def test_locks_that_another_user_has_closed_are_named_before_anything_runs(cached, records, monkeypatch):
    found = planned(cached, records)
    lock = records.folder / ".locks" / f"{found.runs[0].id}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(lock) and allowed(path, mode))
    with pytest.raises(ConfigError, match=naming(str(lock), "another user", "chmod")):
        execute(found, records, "inline")
    assert list(records.all()) == []


def test_text_that_changed_after_planning_is_no_final_outcome(cached, records):
    found = planned(cached, records)
    execute_plan = execute(found, records, "inline")
    assert execute_plan.outcomes == {"done": 1}
    other = Records(cached / "other")
    stale = plan(found.grid, "smoke", records=other)
    (cached / "text" / "corpus.txt").write_text(
        (cached / "text" / "corpus.txt").read_text() + "\n\nOne more line.\n" * 40
    )
    summary = execute(stale, other, "inline", retries=0)
    assert summary.outcomes == {"failed": 1}
    assert "the text has changed since the run was planned" in next(other.all()).detail
    assert plan(found.grid, "smoke", records=other).counts == {"missing": 1}


@pytest.mark.parametrize("for_memory", some([True, False], 1))
def test_a_killed_worker_is_recorded_and_tried_again(cached, records, monkeypatch, for_memory):
    """Where the kernel's count of deaths for memory rises meanwhile, the record says so."""
    killed = []
    monkeypatch.setattr(memory, "kills", lambda: 5 + len(killed) * for_memory)

    def tell(event):
        if event.kind == "progress" and len(killed) < 2:
            workers = [p for p in family(os.getpid()) if p.ppid() != os.getpid()]
            assert workers
            killed.append(event.run_id)
            for worker in workers:
                worker.send_signal(signal.SIGKILL)

    found = planned(cached, records, steps=3000)
    summary = execute(found, records, "local", retries=1, on_event=tell)
    (record,) = records.all()
    assert record.outcome == ("oom" if for_memory else "killed")
    assert ("memory" in record.detail, "signal 9" in record.detail) == (for_memory, True)
    assert (summary.executed, record.provenance["attempts"]) == (2, 2)
    assert not records.is_locked(record.id)


def test_a_run_past_its_deadline_is_ended_and_goes_on_later(cached, records):
    found = planned(cached, records, steps=200_000)
    summary = execute(found, records, "local", deadline=2.0)
    (record,) = records.all()
    assert (summary.outcomes, summary.executed) == ({"timeout": 1}, 1)
    assert record.detail == "stopped after 2 s"
    assert (records.work_folder(record.id) / "last.ckpt").exists()
    assert planned(cached, records, steps=200_000).counts == {"timeout": 1}


def test_a_run_that_another_launcher_makes_is_waited_for(cached, records):
    found = planned(cached, records)
    (run,) = found.runs
    lock = records.lock(run.id)
    lock.acquire()
    seen = []

    def tell(event):
        seen.append(event.kind)
        if event.kind == "waiting":  # the other one finishes
            other = Records(cached / "elsewhere")
            execute(plan(found.grid, "smoke", records=other), other, "inline")
            records.put(next(other.all()))
            lock.release()

    summary = execute(found, records, "local", on_event=tell)
    assert seen == ["waiting", "finished"]
    assert (summary.executed, summary.elsewhere, summary.outcomes) == (0, 1, {"done": 1})


def test_provenance_without_git(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    provenance.code.cache_clear()
    assert provenance.code() == {"commit": None, "dirty": None}
    provenance.code.cache_clear()


def test_a_record_knows_where_it_comes_from(cached, records):
    execute(planned(cached, records), records, "inline")
    (record,) = records.all()
    origin = record.provenance
    assert {"commit", "dirty", "device", "threads", "python", "torch", "lightning", "started", "finished"} < set(origin)
    assert origin["code"] == provenance.fingerprint()
    listed = (records.folder / "environments" / f"{origin['environment']}.json").read_text()
    assert "pytorch-lightning==" in listed
    assert str(cached) not in str(record.provenance)
    assert list(attempts(records)) == [record.id]
