"""Attention heads that are removed from a fine-tuned model, without training it again (Michel et al. 2019).

Heads are numbered through the layers, from the first layer's first head. Layers that share their attention share its
heads, which count once.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lightning_modules.batch import Example
from lightning_modules.draws import permutation
from lightning_modules.model.attention import MultiHeadAttention
from lightning_modules.tasks.settings import HeadPruning
from lightning_modules.tasks.shapes.shape import Head


def attentions(backbone: nn.Module) -> list[MultiHeadAttention]:
    """The attention of each layer, from the first; one that layers share comes once."""
    return [module for module in backbone.modules() if isinstance(module, MultiHeadAttention)]


def importances(
    backbone: nn.Module, head: Head, batches: Iterable[Example], rows: int = 1
) -> list[Float[Tensor, " h"]]:
    """The importance of each head left, by layers (Michel et al. 2019, section 4.1, equation 2).

    ``I_h = E_x |dL(x)/dxi_h| = E_x |Att_h(x)^T dL(x)/dAtt_h(x)|``, where xi_h is a factor of 1 on what head h reads.
    The expectation is over examples x, without dropout, and L(x) is the summed loss of the answers of x. As in the
    paper, the importances of a layer are divided by their L2 norm. The released code takes the absolute value at each
    position of an example; equation 2 takes it of their sum.

    Args:
        backbone: The fine-tuned backbone, in evaluation mode.
        head: The head of the task, in evaluation mode.
        batches: Training examples of the task.
        rows: Rows of an example, which are one after the other.
    """
    layers = attentions(backbone)
    sums = [torch.zeros(layer.num_heads, dtype=torch.float64) for layer in layers]
    read: dict[int, list[Tensor]] = {}

    def kept_by(number: int) -> Callable[[nn.Module, tuple[Tensor]], None]:
        def keep(module: nn.Module, given: tuple[Tensor]) -> None:
            read.setdefault(number, []).append(given[0])

        return keep

    hooks = [layer.output.register_forward_pre_hook(kept_by(number)) for number, layer in enumerate(layers)]
    examples = 0
    try:
        for example in batches:
            read.clear()
            loss = head.loss(head(backbone(example), example), example)
            every = [states for number in read for states in read[number]]
            gradients = iter(torch.autograd.grad(loss, every))
            for number, uses in read.items():
                form = layers[number].num_heads, layers[number].head_size
                products = ((states * next(gradients)).detach() for states in uses)
                by_head = sum(each.unflatten(2, form).sum((1, 3)) for each in products)  # of each row's loss
                assert isinstance(by_head, Tensor)
                sums[number] += by_head.unflatten(0, (-1, rows)).sum(1).abs().sum(0).double().cpu()
            examples += len(example.inputs.ids) // rows
    finally:
        for hook in hooks:
            hook.remove()
    means = [total / max(1, examples) for total in sums]
    return [mean / mean.norm().clamp_min(1e-300) for mean in means]


@dataclass
class Heads:
    """The heads of a backbone, of which some are left.

    Attributes:
        left: The numbers of the heads left in each layer, as they were numbered at first.
    """

    backbone: nn.Module
    left: list[list[int]]

    @classmethod
    def of(cls, backbone: nn.Module) -> "Heads":
        """All heads of a backbone that has lost none."""
        numbers = itertools.count()
        return cls(backbone, [[next(numbers) for _ in range(layer.num_heads)] for layer in attentions(backbone)])

    @property
    def count(self) -> int:
        """How many are left."""
        return sum(map(len, self.left))

    def remove(self, numbers: Iterable[int]) -> None:
        """Removes heads with their weights."""
        gone = set(numbers)
        for place, layer in enumerate(attentions(self.backbone)):
            kept = [index for index, number in enumerate(self.left[place]) if number not in gone]
            if len(kept) < len(self.left[place]):
                layer.keep_heads(kept)
                self.left[place] = [self.left[place][index] for index in kept]

    def least(self, count: int, importance: Sequence[Float[Tensor, " h"]]) -> list[int]:
        """The least important of the heads left; of equals the first."""
        numbers = [number for layer in self.left for number in layer]
        order = torch.cat(list(importance)).argsort(stable=True)
        return [numbers[place] for place in order[:count].tolist()]


def removals(
    heads: Heads, settings: HeadPruning, seed: int, importance: Callable[[], Sequence[Tensor]]
) -> Iterator[list[int]]:
    """Removes heads round by round and yields the numbers of those that each round removed.

    A round removes a tenth of all heads, at least one (Michel et al. 2019, section 4.2). Their importance is computed
    again before each round, on the model that is left.

    Args:
        seed: Determines a random order.
        importance: Computes that of the heads left.
    """
    total = heads.count
    each, last = settings.each_round(total), settings.removed(total)
    drawn = permutation(seed, "heads", 0, total).tolist()
    for done in range(0, last, each):
        count = min(each, last - done)
        by_importance = settings.order == "importance"
        chosen = heads.least(count, importance()) if by_importance else drawn[done : done + count]
        heads.remove(chosen)
        yield chosen


def fit_heads(backbone: nn.Module, weights: dict[str, Tensor], prefix: str = "") -> None:
    """Removes heads of a new backbone until it has as many in each layer as some weights.

    Which of them go is of no account, because the weights of the others replace theirs.
    """
    for name, module in backbone.named_modules():
        if isinstance(module, MultiHeadAttention):
            left = weights[f"{prefix}{name}.output.weight"].shape[1] // module.head_size
            if left < module.num_heads:
                module.keep_heads(range(left))
