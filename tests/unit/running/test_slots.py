"""What runs at once: one run a GPU, or one a core, without CUDA being touched by the launcher."""

import sys

import pytest
import torch

from ablations.core import provenance
from ablations.core.machine import cores, gpus, listed, slots
from ablations.running.local import Local, LocalOptions
from lightning_modules.training.execution import Execution


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine whose driver lists these GPUs."""

    def have(*names, chosen=None):
        tool = tmp_path / "nvidia-smi"
        tool.write_text("#!/bin/sh\n" + "".join(f"echo '{name}'\n" for name in names))
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(torch.version, "cuda", "13.0" if names else None)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if chosen is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)

    listed.cache_clear()
    yield have
    listed.cache_clear()


def test_without_a_gpu_there_is_a_slot_a_core(machine):
    machine()
    executor = Local()
    assert executor.slots == [{}] * cores()
    assert executor.threads == 1
    assert slots() == cores()
    assert provenance.device_class(here=False) == "cpu"


def test_each_gpu_is_a_slot(machine):
    machine("NVIDIA H200", "NVIDIA H200")
    executor = Local()
    assert executor.slots == [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}]
    assert executor.threads == max(1, cores() // 2)
    assert provenance.device_class(here=False) == "NVIDIA H200"


@pytest.mark.parametrize(
    ("chosen", "devices"),
    [("1", {"1": "B"}), ("1,0", {"1": "B", "0": "A"}), ("", {}), ("-1", {}), ("GPU-abc", {"GPU-abc": "A"})],
)
def test_the_choice_of_devices_is_kept(machine, chosen, devices):
    machine("A", "B", chosen=chosen)
    assert gpus() == devices
    assert slots() == (len(devices) or cores())


def test_the_number_of_slots_can_be_less(machine):
    machine("A", "B")
    assert len(Local(LocalOptions(slots=1)).slots) == 1


def test_runs_share_a_gpu_and_first_go_to_different_ones(machine):
    machine("A", "B")
    names = [slot["CUDA_VISIBLE_DEVICES"] for slot in Local(LocalOptions(runs_per_device=2)).slots]
    assert names == ["0", "1", "0", "1"]
    assert len(Local(LocalOptions(runs_per_device=4, slots=3)).slots) == 3


@pytest.mark.parametrize(("names", "execution"), [([], Execution()), (["A", "B"], Execution(devices=2))])
def test_what_cannot_be_shared_is_refused(machine, names, execution):
    machine(*names)
    (problem,) = Local(LocalOptions(runs_per_device=2)).problems(execution)
    assert problem.path == "executor option runs_per_device"
    assert list(Local().problems(execution)) == []


@pytest.mark.skipif(sys.platform == "win32", reason="affinity is a matter of Linux and macOS")
def test_there_is_a_core():
    assert cores() >= 1
