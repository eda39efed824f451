"""The processes that share the steps of a training: which of them this one is, and what they say to each other.

One alone is rank 0 of 1, and nothing here costs it anything. What they say goes over gloo, on the host, so that no rank
waits for its device.
"""

from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from pytorch_lightning.plugins.environments import LightningEnvironment  # pyright: ignore[reportPrivateImportUsage]
from torch import Tensor

_Value = TypeVar("_Value")
_host: list[Any] = []  # the group for what is said on the host, where that of tensors is of devices


def join(rank: int, size: int, meeting: Path, device: int) -> None:
    """Joins the other processes; waits for all of them.

    Args:
        rank: The number of this one, from 0.
        meeting: A file that does not exist yet, in which they find each other: no port is guessed.
        device: The number of its GPU on its machine.
    """
    on_device = torch.cuda.is_available()
    if on_device:
        torch.cuda.set_device(device)
    backend, place = "nccl" if on_device else "gloo", meeting.absolute().as_uri()
    dist.init_process_group(backend, init_method=place, rank=rank, world_size=size)
    if on_device:
        _host.append(dist.new_group(backend="gloo"))


def leave() -> None:
    """Parts from the others; this process is alone afterwards."""
    _host.clear()
    if dist.is_initialized():
        dist.destroy_process_group()


def rank() -> int:
    """The number of this process."""
    return dist.get_rank() if dist.is_initialized() else 0


def size() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def agreed(value: _Value) -> _Value:
    """What rank 0 says, on every rank."""
    if size() == 1:
        return value
    told = [value]
    dist.broadcast_object_list(told, src=0, group=_group())
    return told[0]


def of_all(value: _Value) -> list[_Value]:
    """What each rank says."""
    if size() == 1:
        return [value]
    told: list[Any] = [None] * size()
    dist.all_gather_object(told, value, group=_group())
    return told


def summed(value: Tensor) -> Tensor:
    """The sum over ranks."""
    if size() > 1:
        value = value.clone()
        dist.all_reduce(value)
    return value


def kept(state: dict[str, Any]) -> dict[str, Any]:
    """The states of all ranks, for a checkpoint; of one alone, its own as it is."""
    return state if size() == 1 else {"ranks": of_all(state)}


def own(state: dict[str, Any]) -> dict[str, Any]:
    """The state of this rank among those that `kept` gave."""
    return state["ranks"][rank()] if size() > 1 else state


def _group() -> Any:
    return _host[0] if _host else None


class Processes(LightningEnvironment):
    """Says to Lightning that the processes are there, whatever scheduler or variables it would believe in.

    Within a job of Slurm it would otherwise count Slurm's tasks as ranks and ask on SIGUSR1 for the job to be queued
    again; that is the executor's affair.

    Args:
        devices: How many of them are on one machine.
    """

    def __init__(self, devices: int) -> None:
        super().__init__()
        self._devices = devices

    @property
    def creates_processes_externally(self) -> bool:
        """They are started by whoever starts trainings."""
        return True

    def local_rank(self) -> int:
        """The number of this process on this machine."""
        return rank() % self._devices

    def node_rank(self) -> int:
        """The number of this machine."""
        return rank() // self._devices
