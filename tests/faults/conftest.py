"""Launchers that are cleaned up, and a cache that they share with the test."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests import tiny
from tests.faults import nursery
from tests.faults.support import until

collect_ignore = [nursery.LAUNCHER.name]  # a program; the search for examples in docstrings would run it


@pytest.fixture
def cached(tmp_path, monkeypatch, forking):
    """A folder; this process and the launchers keep their cache in it. All processes are forks."""
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    return tmp_path


class Child:
    """A child of the nursery, used as a `subprocess.Popen`.

    Args:
        ask: Asks the nursery.
        folder: Its working directory, in which it has its cache too.
        name: One of `nursery.CHILDREN`.
        arguments: What it is called with.
    """

    def __init__(self, ask, folder, name, arguments):
        self._ask, self.returncode = ask, None
        with tempfile.TemporaryDirectory(dir=folder) as place:
            output = Path(place) / "output"
            os.mkfifo(output)
            reading = os.open(output, os.O_RDONLY | os.O_NONBLOCK)
            self.pid = ask(
                call=name, arguments=list(map(str, arguments)), environment=tiny.environment(folder),
                folder=str(folder), output=str(output),
            )  # fmt: skip
        os.set_blocking(reading, True)  # now that there is a writer
        self.stdout = os.fdopen(reading)

    def poll(self):
        if self.returncode is None:
            self.returncode = self._ask(child=self.pid)
        return self.returncode

    def wait(self, timeout=120.0):
        until(lambda: self.poll() is not None, timeout)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


@pytest.fixture(scope="session")
def nursery_process(tmp_path_factory):
    """Starts children in a folder."""
    folder = tmp_path_factory.mktemp("nursery")
    process = subprocess.Popen(
        [sys.executable, nursery.__file__], env=tiny.environment(folder), cwd=folder, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"

    def ask(**request):
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    yield lambda folder, name, *arguments: Child(ask, folder, name, arguments)
    process.kill()
    process.communicate()


@pytest.fixture
def begin(nursery_process, cached):
    """Starts one of the nursery's children, which does not outlive the test."""
    children = []

    def start(name, *arguments):
        children.append(nursery_process(cached, name, *arguments))
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.fixture
def killed(begin):
    """Starts one of the nursery's children and kills it after so many seconds; returns its exit code."""

    def kill(name, *arguments, after):
        child = begin(name, *arguments)
        time.sleep(after)
        child.kill()
        return child.wait()

    return kill


@pytest.fixture
def launch(begin, cached):
    """Starts launchers on ``results`` in the folder; their events are lines of their stdout."""

    def start(grid, executor="local", devices=1, strategy="ddp"):
        return begin("launcher", grid, cached / "results", executor, devices, strategy)

    return start
