"""Weights, gradients and moments divided among the devices that share a training: FSDP (Zhao et al. 2023), ZeRO's third
stage (Rajbhandari et al. 2020).

Each sub-layer of a transformer is a unit: its weights are gathered when it computes, and given up afterwards. What is
left, embeddings and heads, is gathered for the whole step. PyTorch's ``fully_shard`` does it, by Lightning's
`ModelParallelStrategy`.
"""

from collections.abc import Callable
from typing import TypeVar

from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

from lightning_modules.training import ranks
from lightning_modules.training.execution import units

_Module = TypeVar("_Module", bound=nn.Module)


def divide(module: nn.Module, mesh: DeviceMesh, *steps: str) -> None:
    """Leaves each rank its part of every weight; nothing happens to a module that is divided already.

    Args:
        steps: Names of the methods, besides ``forward``, that compute with the weights.
    """
    if isinstance(module, FSDPModule):
        return
    for part in (*units(module), module):
        fully_shard(part, mesh=mesh)
    for step in steps:
        register_fsdp_forward_method(module, step)


def whole(module: _Module, build: Callable[[], _Module]) -> _Module:
    """A module with all weights on rank 0: itself, or a new one if it is divided. Every rank calls it."""
    if not isinstance(module, FSDPModule):
        return module
    weights = get_model_state_dict(module, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if ranks.rank():
        return module
    built = build()
    built.load_state_dict(weights)
    return built
