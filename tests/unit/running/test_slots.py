"""What runs at once: one run a GPU, or one a core, without CUDA being touched by the launcher."""

import math
from types import SimpleNamespace

import pytest
import torch

from ablations.core import provenance
from ablations.core.machine import cores, gpus, listed, slots
from ablations.running import estimate, local
from ablations.running.local import Local, LocalOptions
from lightning_modules.training.execution import Execution


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine whose driver lists these GPUs."""

    def have(*names, chosen=None, uses=()):
        tool = tmp_path / "nvidia-smi"
        said = "".join(f"echo '{name}'\n" for name in names)
        at_work = "".join(f"echo '{row}'\n" for row in uses)
        tool.write_text(f'#!/bin/sh\ncase "$*" in *memory.used*)\n{at_work};;\n*)\n{said};;\nesac\n')
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


@pytest.fixture
def launch(monkeypatch):
    """Eight runs of 3 GB each by plan, one of which trains."""
    monkeypatch.setattr(local, "_PERIOD", 0.0)
    monkeypatch.setattr(estimate, "memory", lambda systems, execution: [3e9 for _ in systems])
    runs = [SimpleNamespace(id=str(number), system=object()) for number in range(8)]
    todo, shares = {run.id: run for run in runs}, {"0": 0.3}
    pending = SimpleNamespace(pending=runs, cells=runs)
    return SimpleNamespace(plan=pending, todo=todo, execution=Execution(), shares=shares, is_crowded=False)


def laid_out(machine, launch, names, idle, busy, **options):
    """The devices of the slots before and after the first run on each."""
    machine(*names, uses=idle)
    executor = Local(LocalOptions(**options))
    executor.open(launch)
    machine(*names, uses=busy)
    before = [slot["CUDA_VISIBLE_DEVICES"] for slot in executor.slots]
    rooms = [executor.room() for _ in range(local._LOOKS)]
    assert rooms[:-1] == [len(before)] * (local._LOOKS - 1)
    return before, [slot["CUDA_VISIBLE_DEVICES"] for slot in executor.slots]


MEMORY = 80_000  # MiB of the devices


@pytest.mark.parametrize(
    ("used", "work", "many"),
    [(4_000, 20, 4), (4_000, 34, 3), (4_000, 52, 2), (4_000, 97, 1), (20_000, 20, 3), (40_000, 20, 1)],
    ids=["small", "a third of the time", "half of the time", "all of the time", "large", "too large for two"],
)
def test_a_first_run_says_how_many_share_a_gpu(machine, launch, capsys, used, work, many):
    before, after = laid_out(machine, launch, "A", [f"0, {MEMORY}, 0"], [f"{used}, {MEMORY}, {work}"])
    assert (before, after) == (["0"], ["0"] * many)
    assert (f"up to {many} runs share a GPU" in capsys.readouterr().err) == (many > 1)


def test_memory_that_others_hold_is_not_given_out(machine, launch):
    _, after = laid_out(machine, launch, "A", [f"50000, {MEMORY}, 0"], [f"54000, {MEMORY}, 20"])
    assert after == ["0"] * 3


def test_the_fullest_and_the_busiest_of_several_devices_decide(machine, launch):
    idle, busy = [f"0, {MEMORY}, 0"] * 2, [f"4000, {MEMORY}, 20", f"4000, {MEMORY}, 52"]
    before, after = laid_out(machine, launch, "AB", idle, busy)
    assert (before, after) == (["0", "1"], ["0", "1", "0", "1"])


@pytest.mark.parametrize(
    "changes", [{"memory": math.nan}, {"uses": ["[N/A], [N/A], [N/A]"]}, {"options": {"runs_per_device": 1}}]
)
def test_runs_stay_alone_where_it_is_not_known_or_asked(machine, launch, monkeypatch, changes):
    monkeypatch.setattr(estimate, "memory", lambda systems, execution: [changes.get("memory", 3e9) for _ in systems])
    machine("A", uses=changes.get("uses", [f"4000, {MEMORY}, 20"]))
    executor = Local(LocalOptions(**changes.get("options", {})))
    executor.open(launch)
    assert [executor.room() for _ in range(2 * local._LOOKS)] == [1] * (2 * local._LOOKS)


def test_each_run_has_a_gpu_alone_once_one_that_shared_it_lacked_memory(machine, launch, capsys):
    machine("A", "B")
    executor = Local(LocalOptions(runs_per_device=3))
    executor.open(launch)
    assert executor.room() == 6
    launch.is_crowded = True
    assert executor.room() == 2
    assert [slot["CUDA_VISIBLE_DEVICES"] for slot in executor.slots] == ["0", "1"]
    assert "lacked memory" in capsys.readouterr().err


def test_a_run_that_does_not_train_yet_says_nothing(machine, launch):
    launch.shares = {"0": 0.0}
    machine("A", uses=[f"4000, {MEMORY}, 20"])
    executor = Local()
    executor.open(launch)
    assert [executor.room() for _ in range(2 * local._LOOKS)] == [1] * (2 * local._LOOKS)
