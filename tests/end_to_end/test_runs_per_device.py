"""Runs that share a device are each what they are alone."""

import os

import pytest
import torch

from ablations.core import machine
from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running import local
from ablations.running.execute import execute
from tests import tiny
from tests.depth import NIGHTLY
from tests.faults.support import attempts, contents


@pytest.fixture
def device(tmp_path, monkeypatch, forking):
    """A device that the driver lists and torch does not have: workers see its number, and compute on the CPU."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    at_work = "100, 80000, 30"  # MiB in use, of so many, and the share of the time that it works in per cent
    tool.write_text(f"#!/bin/sh\ncase \"$*\" in *memory.used*) echo '{at_work}';; *) echo 'A device';; esac\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    machine.listed.cache_clear()
    yield
    machine.listed.cache_clear()


@pytest.mark.parametrize("options", [{"runs_per_device": 2}, {"slots": 2}][: 1 + NIGHTLY])
def test_two_at_once_are_each_alone(tmp_path, device, monkeypatch, options):
    monkeypatch.setattr(local, "_PERIOD", 0.0)
    monkeypatch.setattr(local, "cores", lambda: 1)  # the threads of a run that is alone too: they order its sums
    file = tiny.grid(tmp_path / "grid", steps=60 if "slots" not in options else 200)
    alone, shared = Records(tmp_path / "alone"), Records(tmp_path / "shared")
    execute(plan(grids.read(file), "smoke", records=alone), alone, "inline")
    most, seen = 0, plan(grids.read(file), "smoke", records=shared)

    def watch(*_):
        nonlocal most
        most = max(most, sum(shared.is_locked(run.id) for run in seen.runs))

    summary = execute(seen, shared, {"kind": "local", **options}, on_event=watch)
    assert not summary.problems
    assert most == 2
    assert contents(shared) == contents(alone)
    assert len(attempts(shared)) == len(seen.runs) == 4
