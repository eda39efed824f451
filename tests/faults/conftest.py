"""Launchers that are cleaned up, and a cache that they share with the test."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiny
from tests.faults import nursery

LAUNCHER = Path(__file__).with_name("launcher.py")
collect_ignore = [LAUNCHER.name]  # a program; the search for examples in docstrings would run it


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """A folder; this process and the launchers keep their cache in it."""
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture(scope="session")
def nursery_process(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nursery")
    process = subprocess.Popen(
        [sys.executable, nursery.__file__], env=tiny.environment(folder), cwd=folder, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def begin(nursery_process, cached):
    """Calls one of the nursery's children, in so many copies; what it returns waits for their exit codes."""

    def request(name, *arguments, copies=1, kill_after=None):
        asked = {
            "call": name, "arguments": list(map(str, arguments)), "environment": tiny.environment(cached),
            "copies": copies, "kill_after": kill_after,
        }  # fmt: skip
        nursery_process.stdin.write(json.dumps(asked) + "\n")
        nursery_process.stdin.flush()
        return lambda: json.loads(nursery_process.stdout.readline())

    return request


@pytest.fixture
def call(begin):
    """Calls the nursery's children, kills them after so many seconds, and waits for their exit codes."""
    return lambda *given, **named: begin(*given, **named)()


@pytest.fixture
def launch(cached):
    """Starts launchers on ``results`` in the folder; their events are lines of their stdout."""
    started = []

    def start(grid, executor="local", devices=1, strategy="ddp"):
        process = subprocess.Popen(
            [sys.executable, str(LAUNCHER), str(grid), str(cached / "results"), executor, str(devices), strategy],
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
