"""What a grid in progress shows, in a log, in a terminal and in a notebook."""

import nbformat
import pytest
from nbclient import NotebookClient

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running import progress
from ablations.running.launch import Event, Launch
from tests import tiny


def event(kind, run="a", done=0, left=90.0, **more):
    settings = {"label": f"rate=0.{ord(run) - 96} seed 0", "total": 3, "running": 1, "seconds_left": left, **more}
    return Event(kind=kind, run_id=run, done=done, **settings)


def moving(run="a", step=5, done=0, **more):
    told = {"step": step, "steps": 10, "loss": 4.125, "tokens_per_second": 61_234.0}
    return event("progress", run, done, progress=told, **more)


def test_the_line_has_cells_loss_speed_and_time_left():
    display = progress.Display()
    display(event("started"))
    display(moving("a", 5))
    display(moving("b", 2))
    assert display.line() == (
        "0/3 runs | rate=0.1 seed 0: step 5/10, loss 4.125; rate=0.2 seed 0: step 2/10, loss 4.125 | "
        "122,468 tokens/s | 90 s left"
    )
    display(event("finished", "a", 1, outcome="done"))
    display(event("finished", "b", 2, outcome="diverged"))
    assert display.line() == "2/3 runs (1 diverged) | 90 s left"


def test_a_log_gets_a_line_every_ten_seconds(capsys, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with progress.LogDisplay() as tell:
        for _ in range(300):
            clock[0] += 0.1
            tell(moving())
        tell(event("finished", done=3, outcome="done"))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[-1] == "3/3 runs in 30 s"
    assert all("loss 4.125" in line for line in lines[:-1])


def test_a_terminal_has_a_line_for_each_active_run(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    tell = progress.Terminal()
    tell(moving("a", 2))
    tell(moving("b", 5))
    clock[0] += 30
    tell(moving("a", 4))
    grid, first, second = tell.bar.tasks
    assert (grid.fields["named"], first.fields["named"].strip()) == ("0/3 runs", "rate=0.1 seed 0")
    assert first.fields["said"] == "step 4/10, loss 4.125, 90 s left", "a fifth took 30 s"
    assert second.fields["said"] == "step 5/10, loss 4.125"
    tell(event("finished", "a", 1, outcome="done"))
    assert [task.fields["named"].strip() for task in tell.bar.tasks] == ["1/3 runs", "rate=0.2 seed 0"]


@pytest.mark.slow
def test_an_executed_notebook_keeps_the_last_state_only(tmp_path, monkeypatch):
    for name, value in tiny.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    code = """
from types import SimpleNamespace
from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running import progress
from tests.unit.running.test_progress import event, moving
progress._NOTEBOOK_EVERY = 0
with progress.display(SimpleNamespace(pending=[1])) as tell:
    for step in range(10):
        tell(moving(step=step))
    tell(event("finished", done=3, outcome="done"))
"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    (output,) = notebook.cells[0].outputs
    assert output["data"]["text/plain"].startswith("3/3 runs in ")


def test_no_time_is_told_before_the_pace_tells_it(tmp_path, monkeypatch):
    """Unequal cells; the start of a process takes most of the time of each."""
    file = tiny.grid(tmp_path, rates="[16, 128]", seeds=1)
    text = file.read_text().replace("objectives.mlm.masking.rate", "model.hidden_size").replace("0.15}", "16}")
    file.write_text(text)
    found, clock, events = plan(grids.read(file), "smoke"), [100.0], []
    small, large = found.runs
    assert found.costs[large.id].flops > 10 * found.costs[small.id].flops
    monkeypatch.setattr("ablations.running.launch.time.monotonic", lambda: clock[0])
    launch = Launch(found, Records(tmp_path / "results"), 0, None, events.append)
    del launch.todo[small.id]
    launch.begin(small)
    told = {"steps": 1000, "loss": 4.0, "tokens_per_second": 100.0}
    clock[0] += 10
    launch.emit("progress", small, progress={**told, "step": 10})
    assert events[-1].seconds_left is None
    launch.emit("progress", small, progress={**told, "step": 1000})
    assert 5 < events[-1].seconds_left < 30, "the larger one takes little longer"
    launch.shares[small.id] = 0.01
    clock[0] += 120
    launch.emit("progress", small, progress={**told, "step": 20})
    assert events[-1].seconds_left > 1000, "after two minutes a slow pace is told"
