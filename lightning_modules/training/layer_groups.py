"""The parameters of a training in groups by depth: which learn at which rate, and which are frozen at which step.

The first group is the highest: heads, and what a backbone has above its last layer. Below it there is a group for each
layer, then one for the embeddings, with a tied output layer. Layers that share their weights are one group.
"""

from typing import Literal

from torch import nn

from lightning_modules.model.settings import BackboneModule

Freezing = Literal["none", "last", "gradual", "chain_thaw"]


def layer_groups(module: nn.Module) -> list[list[nn.Parameter]]:
    """The parameters of a module with a ``backbone``, each once, from the highest group to the embeddings."""
    by_depth: dict[int, list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        by_depth.setdefault(_depth(module, name), []).append(parameter)
    return [by_depth[depth] for depth in sorted(by_depth, reverse=True)]


def _depth(module: nn.Module, name: str) -> int:
    backbone, place = getattr(module, "backbone", None), "backbone."
    if not isinstance(backbone, BackboneModule):  # what reads in windows, or has more on top, has its encoder inside
        backbone, place = getattr(backbone, "encoder", None), "backbone.encoder."
    if not isinstance(backbone, BackboneModule):
        return 0
    return backbone.depth(name.removeprefix(place) if name.startswith(place) else "")


def trained(freezing: Freezing, groups: int, step: int, steps: int, each_epoch: int) -> range:
    """The groups that learn at a step, counted from the highest; the others are frozen.

    * ``last``: the first group alone.
    * ``gradual``: the first one in the first epoch, then one more each epoch (Howard and Ruder 2018, section 3.3). The
      released code trains one, then two, then all.
    * ``chain_thaw``: the first one, then each other one alone from the embeddings upwards, then all (Felbo et al. 2017,
      section 3.3), each for the same share of the steps. There each is trained until it converges.

    >>> [list(trained("gradual", 3, step, 8, 2)) for step in (0, 2, 4, 6)]
    [[0], [0, 1], [0, 1, 2], [0, 1, 2]]
    >>> [list(trained("chain_thaw", 3, step, 8, 2)) for step in (0, 2, 4, 6)]
    [[0], [2], [1], [0, 1, 2]]

    Args:
        step: Optimiser step, from 0.
    """
    if freezing == "last":
        return range(1)
    if freezing == "gradual":
        return range(min(groups, step // each_epoch + 1))
    if freezing == "chain_thaw":
        stage = step * (groups + 1) // steps
        if stage < groups:
            only = (groups - stage) % groups
            return range(only, only + 1)
    return range(groups)
