"""The mean of the weights that a training had after some of its steps (Polyak and Juditsky 1992)."""

# torch does not export its _foreach functions
# pyright: reportPrivateImportUsage=false
from collections.abc import Sequence
from typing import Any

import torch


class MeanWeights:
    """The mean of the weights after the steps at which `add` is called, kept in the state of their optimiser.

    ::

        mean_k = mean_{k - 1} + (p - mean_{k - 1}) / k

    So checkpoints hold count and means, and an averaging resumes exactly. There is nothing to exchange or keep before
    the first `add`. `Pretrain` calls it: NT-ASGD (Merity et al. 2018, Algorithm 1) after each step from an evaluation
    on, averaged checkpoints (Vaswani et al. 2017, section 6.1) after some of the last steps. The mean of k steps is of
    k weights; ``torch.optim.ASGD``, which the released code of AWD-LSTM uses, leaves out the first of them.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def begin(self) -> None:
        """Marks that a mean has begun, of no weights yet."""
        for group in self.optimizer.param_groups:
            group["averaged"] = 0

    @property
    def is_begun(self) -> bool:
        """Whether a mean has begun."""
        return "averaged" in self.optimizer.param_groups[0]

    @torch.no_grad()
    def add(self) -> None:
        """Adds the weights as they are."""
        state = self.optimizer.state
        for group in self.optimizer.param_groups:
            group["averaged"] = group.get("averaged", 0) + 1
            weights = self._weights(group)
            for p in weights:
                if "mean" not in state[p]:
                    state[p]["mean"] = p.clone()
            if weights:
                torch._foreach_lerp_([state[p]["mean"] for p in weights], weights, 1 / group["averaged"])

    @torch.no_grad()
    def exchange(self) -> None:
        """Puts the means in the place of the weights, and the reverse."""
        for p, state in self.optimizer.state.items():
            if "mean" in state:
                weights = p.clone()
                p.copy_(state["mean"])
                state["mean"].copy_(weights)

    @torch.no_grad()
    def keep(self) -> None:
        """Makes the weights the means, for good; once or several times."""
        for p, state in self.optimizer.state.items():
            if "mean" in state:
                p.copy_(state["mean"])

    def _weights(self, group: dict[str, Any]) -> list[torch.Tensor]:
        """Those of a group that move: without a gradient so far a weight is its own mean.

        Such a weight has no moments, and Adam and LAMB would take a mean in its state for them. SGD has none at all.
        """
        is_sgd = isinstance(self.optimizer, torch.optim.SGD)
        return [p for p in group["params"] if is_sgd or self.optimizer.state.get(p)]


def is_nonmonotone(losses: Sequence[float], interval: int) -> bool:
    """Whether the last of some held-out losses triggers NT-ASGD (Merity et al. 2018, Algorithm 1).

    It does if it is above the least of those before it, the last ``interval`` of these left out. With no more than
    ``interval`` before it, none is left.
    """
    *before, last = losses
    earlier = before[: max(0, len(before) - interval)]
    return bool(earlier) and last > min(earlier)
