"""The processes that share the steps of a training: which of them this one is, and what they say to each other.

One alone is rank 0 of 1, and nothing here costs it anything. What they say goes over gloo, on the host, so that no rank
waits for its device.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from pytorch_lightning.plugins.environments import LightningEnvironment  # pyright: ignore[reportPrivateImportUsage]
from torch import Tensor, nn

from lightning_modules.training.execution import units

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_Value = TypeVar("_Value")
_Module = TypeVar("_Module", bound=nn.Module)
_host: list[Any] = []  # the group for what is said on the host, where that of tensors is of devices


def join(rank: int, size: int, meeting: Path, device: int) -> None:
    """Joins the other processes; waits for all of them.

    Args:
        meeting: A file that does not exist yet, in which they find each other: no port is guessed.
        device: The number of this one's GPU on its machine.
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
    values = [value]
    dist.broadcast_object_list(values, src=0, group=_host[0] if _host else None)
    return values[0]


def of_all(value: _Value) -> list[_Value]:
    """What each rank says."""
    if size() == 1:
        return [value]
    values: list[Any] = [None] * size()
    dist.all_gather_object(values, value, group=_host[0] if _host else None)
    return values


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


class Processes(LightningEnvironment):
    """Says to Lightning that the processes are there, whatever scheduler or variables it would believe in.

    Within a job of Slurm it would otherwise count Slurm's tasks as ranks and ask on SIGUSR1 for the job to be queued
    again; that is the executor's affair. ``devices`` of them are on one machine.
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


def divide(module: nn.Module, mesh: "DeviceMesh", *steps: str) -> None:
    """Leaves each rank its part of every weight, gradient and moment; nothing happens to a module that is divided.

    FSDP (Zhao et al. 2023) is ZeRO's third stage (Rajbhandari et al. 2020). Each of the `execution.units` is gathered
    when it computes, and given up afterwards. What is left, embeddings and heads, is gathered for the whole step.

    Args:
        steps: Names of the methods, besides ``forward``, that compute with the weights.
    """
    from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

    if isinstance(module, FSDPModule):
        return
    for part in (*units(module), module):
        fully_shard(part, mesh=mesh)
    for step in steps:
        register_fsdp_forward_method(module, step)


def whole(module: _Module, build: Callable[[], _Module]) -> _Module:
    """A module with all weights on rank 0: itself, or a new one if it is divided. Every rank calls it."""
    if size() == 1:
        return module
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.fsdp import FSDPModule

    if not isinstance(module, FSDPModule):
        return module
    weights = get_model_state_dict(module, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank():
        return module
    built = build()
    built.load_state_dict(weights)
    return built
