"""Workers make one run after another, and a run's record does not depend on what its process has made before."""

import json
import os
import signal
import warnings
from collections import Counter

import psutil
import pytest
import torch

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running import worker
from ablations.running.between import as_it_was
from ablations.running.execute import execute
from ablations.running.exit_codes import AGAIN, DISK_FULL, HELD, RECORDED
from ablations.running.launch import Launch
from lightning_modules import pretraining as fitting
from lightning_modules.tasks import TASKS, pins
from tests import tiny
from tests.faults.support import contents
from tests.toy import toy_task
from tests.unit.run_graphs import planned, put

STREAM = {"format.kind": "stream", "format.frame": "document_ends"}
HEADS = {"model.num_heads": 2, "model.max_positions": 32}
LANGUAGE_MODELS = {  # knobs of each variant
    "transformer": {**HEADS, "format.kind": "full_sentences", "format.break_mode": "none"},
    "memory": {**HEADS, **STREAM, "model.positions": "relative", "model.memory_length": 12},
    "recurrent": {**STREAM, "model.kind": "lstm"},
}


def workers() -> set[int]:
    """The processes below that make runs: children of the fork server."""
    below = psutil.Process().children(recursive=True)
    return {process.pid for process in below if process.ppid() != os.getpid()}


def made(cached, name, file, executor, seen=None, **options):
    """The records of a grid's runs by one executor, and the summary."""
    records = Records(cached / name)

    def tell(event):
        if seen is not None and event.kind in ("progress", "finished"):
            seen.update(workers())

    summary = execute(plan(grids.read(file), "smoke", records=records), records, executor, on_event=tell, **options)
    return records, summary


def language_models(folder):
    """A grid file: left-to-right models of three kinds, each of which reads held-out text afterwards."""
    folder.mkdir()
    text = tiny.grid(folder, seeds=1, steps=6, extra="measure: [heldout_text]\n").read_text()
    text = "".join(line for line in text.splitlines(keepends=True) if not any(head in line for head in HEADS))
    variants = "".join(f"    {name}: {json.dumps(knobs)}\n" for name, knobs in LANGUAGE_MODELS.items())
    shared = "  objectives.mlm: null\n  objectives.lm.direction: left_to_right\n  model.direction: left_to_right\n"
    text = text.replace("set:\n", f"set:\n{shared}", 1).replace("axes:\n", f"variants:\n  model:\n{variants}axes:\n")
    text = text.replace("  objectives.mlm.masking.rate: [0.15, 0.4]\n", "  model: [transformer, memory, recurrent]\n")
    text = text.replace("baseline: {objectives.mlm.masking.rate: 0.15}", "baseline: {model: transformer}")
    documents = (folder / "text" / "corpus.txt").read_text().split("\n\n")
    (folder / "text" / "corpus.txt").write_text(
        "\n\n".join("\n".join(documents[n:] + documents[:n]) for n in range(12))
    )
    file = folder / "language_models.yaml"
    file.write_text(text)
    return file


def without_memory(fit):
    """Fails where a batch has eight rows, after the training."""

    def fitted(system, *given, **named):
        done = fit(system, *given, **named)
        if system.training.batch_size == 8:
            raise MemoryError
        return done

    return fitted


def test_a_record_does_not_depend_on_the_runs_before_it(cached, monkeypatch):
    """Pretrainings, fine-tunings, measurements, with a memory and recurrent, in two orders, a failure in between."""
    monkeypatch.setitem(TASKS, "toy", toy_task("toy"))
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    masked = tiny.grid(cached, seeds=1, steps=6, extra="tasks: [toy]\n")
    others, huge = language_models(cached / "others"), cached / "huge.yaml"
    huge.write_text(masked.read_text().replace("training.batch_size: 4", "training.batch_size: 8"))
    monkeypatch.setattr(fitting, "fit", without_memory(fitting.fit))
    orders = [(masked, others, huge), (huge, others, masked)]
    found = []
    for number, files in enumerate(orders):
        records = Records(cached / f"results-{number}")
        for file in files:
            execute(plan(grids.read(file), "smoke", records=records), records, "inline", retries=0)
        found.append(contents(records))
    assert found[0] == found[1]
    outcomes = Counter((run["kind"], run["outcome"]) for run in found[0].values())
    assert outcomes == {
        ("pretrain", "done"): 5,
        ("finetune", "done"): 2,
        ("measure", "done"): 3,
        ("pretrain", "oom"): 2,
    }


@pytest.mark.nightly
def test_one_worker_makes_them_all_as_fresh_processes_do(cached):
    file, seen, many = tiny.grid(cached, seeds=2), set(), set()
    one, summary = made(cached, "one", file, {"kind": "local", "slots": 1}, seen)
    assert set(summary.outcomes) == {"done"}
    assert len(seen) == 1
    fresh, _ = made(cached, "fresh", file, {"kind": "local", "slots": 1, "fresh_process": True}, many)
    assert len(many) > 1
    assert contents(one) == contents(fresh)


@pytest.mark.parametrize(
    ("outcome", "code", "takes_another"),
    [
        ("done", RECORDED, True),
        ("diverged", RECORDED, True),
        ("oom", RECORDED, False),
        ("failed", AGAIN, False),
        (None, HELD, True),
        (None, DISK_FULL, False),
    ],
)
def test_only_a_worker_whose_run_came_to_an_end_takes_another(cached, monkeypatch, outcome, code, takes_another):
    records = Records(cached / "results")
    launch = Launch(planned(cached, records), records, 0, None, lambda event: None)
    path = launch.prepare(run := next(iter(launch.todo.values())), None, {})

    def attempt(*given, **named):
        if outcome:
            put(records, run, outcome)
        return RECORDED if outcome else code

    monkeypatch.setattr(worker, "attempt", attempt)
    monkeypatch.setattr(worker, "log_to", lambda path: None)
    assert worker.work(str(path), lambda: False) == (code, takes_another)


def test_a_worker_that_dies_without_a_run_costs_none(cached):
    killed = []

    def tell(event):
        if event.kind == "finished" and not killed:
            killed.extend(workers())
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    file, records = tiny.grid(cached), Records(cached / "results")
    found = plan(grids.read(file), "smoke", records=records)
    summary = execute(found, records, {"kind": "local", "slots": 1}, retries=0, on_event=tell)
    assert killed
    assert summary.outcomes.get("done", 0) >= 3  # at most the one that had just begun is lost


def test_between_runs_nothing_stays(tmp_path, monkeypatch):
    """Whatever a run leaves behind in its process is gone for the next."""
    monkeypatch.setenv("ABLATIONS_A", "before")
    folder, filters, threads = os.getcwd(), list(warnings.filters), torch.get_num_threads()
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)

    def run():
        os.environ.update(ABLATIONS_A="after", ABLATIONS_B="new")
        os.chdir(tmp_path)
        warnings.simplefilter("ignore")
        torch.manual_seed(4)
        torch.set_num_threads(threads + 1)
        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(True)
        torch.set_float32_matmul_precision("medium")
        torch.set_grad_enabled(False)
        raise ValueError("of the run")

    with pytest.raises(ValueError, match="of the run"), as_it_was():
        run()
    assert (os.environ["ABLATIONS_A"], "ABLATIONS_B" in os.environ) == ("before", False)
    assert (os.getcwd(), list(warnings.filters), torch.get_num_threads()) == (folder, filters, threads)
    assert torch.equal(torch.rand(2), expected)
    assert torch.get_default_dtype() == torch.float32
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.get_float32_matmul_precision() == "highest"
    assert torch.is_grad_enabled()
