"""Runs that share a device are each what they are alone."""

import os

import pytest
import torch

from ablations.core import machine
from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from tests import tiny
from tests.faults.support import attempts, contents


@pytest.fixture
def device(tmp_path, monkeypatch, forking):
    """A device that the driver lists and torch does not have: workers see its number, and compute on the CPU."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho 'A device'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    machine.listed.cache_clear()
    yield
    machine.listed.cache_clear()


def test_two_at_once_are_each_alone(tmp_path, device):
    file = tiny.grid(tmp_path / "grid", steps=60)
    alone, shared = Records(tmp_path / "alone"), Records(tmp_path / "shared")
    execute(plan(grids.read(file), "smoke", records=alone), alone, "inline")
    most, seen = 0, plan(grids.read(file), "smoke", records=shared)

    def watch(*_):
        nonlocal most
        most = max(most, sum(shared.is_locked(run.id) for run in seen.runs))

    summary = execute(seen, shared, {"kind": "local", "runs_per_device": 2}, on_event=watch)
    assert not summary.problems
    assert most == 2
    assert contents(shared) == contents(alone)
    assert len(attempts(shared)) == len(seen.runs) == 4
