"""kill -9, two launchers, a dying kernel: every run is made once, and nothing is left running."""

import subprocess
import sys

import pytest
from jupyter_client.manager import KernelManager

from ablations.core.store import Records
from tests import tiny
from tests.faults.nursery import LAUNCHER
from tests.faults.support import family, gone, until


@pytest.mark.nightly
def test_a_program_from_stdin_runs_once_and_its_code_makes_the_runs(cached):
    """Another copy of the project in the working directory, of another commit perhaps, is not what processes import."""
    grid, elsewhere = tiny.grid(cached, rates="[0.15]", seeds=1), cached / "elsewhere"
    (elsewhere / "ablations").mkdir(parents=True)
    (elsewhere / "ablations" / "__init__.py").write_text("raise RuntimeError('another copy')")
    arguments = ["-", str(grid), str(cached / "results"), "local", "1", "ddp"]
    moved = LAUNCHER.read_text().replace('print("launcher"', f'os.chdir({str(elsewhere)!r})\nprint("launcher"')
    program = f"import os, sys; sys.argv = {arguments!r}\n{moved}"
    done = subprocess.run(
        [sys.executable, "-"],
        input=program,
        env=tiny.environment(cached),
        cwd=cached,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.splitlines()[0] == "launcher", done.stderr
    assert done.stdout.count("launcher") == 1
    assert "executed 1" in done.stdout, done.stderr


@pytest.mark.nightly
def test_killing_a_notebook_kernel_leaves_no_process(cached):
    grid = tiny.grid(cached, steps=100_000)
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env=tiny.environment(cached), cwd=str(cached))
    client = manager.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=60)
        client.execute(f"""
from ablations.planning import grids
from ablations.core.store import Records
from ablations.planning.plan import plan
from ablations.running.execute import execute
from ablations.running.progress import display
records = Records({str(cached / "results")!r})
found = plan(grids.read({str(grid)!r}), "smoke", records=records)
with display(found) as on_event:
    execute(found, records, on_event=on_event)
""")
        records = Records(cached / "results")
        until(lambda: any((folder / "progress.json").exists() for folder in records.work_folders()), 60)
        shown = []
        until(lambda: shown.append(client.get_iopub_msg(timeout=30)) or shown[-1]["msg_type"] == "update_display_data")
        assert "tokens/s" in shown[-1]["content"]["data"]["text/plain"]
        below = family(manager.provisioner.process.pid)
        assert len(below) >= 2
        manager.provisioner.process.kill()
        assert gone(below) == []
        run_id = records.work_folders()[0].name
        assert not records.is_locked(run_id)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
