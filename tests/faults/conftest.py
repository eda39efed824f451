"""Launchers that are cleaned up, and a cache that they share with the test."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiny

LAUNCHER = Path(__file__).with_name("launcher.py")
collect_ignore = [LAUNCHER.name]  # a program; the search for examples in docstrings would run it


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """A folder; this process and the launchers keep their cache in it."""
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def launch(cached):
    """Starts launchers on ``results`` in the folder; their events are lines of their stdout."""
    started = []

    def start(grid, executor="local", devices=1):
        process = subprocess.Popen(
            [sys.executable, str(LAUNCHER), str(grid), str(cached / "results"), executor, str(devices)],
            env=tiny.environment(cached),
            cwd=cached,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
