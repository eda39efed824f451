"""The loss of a step as terms: sums with counts and weights, of pretraining objectives and tasks alike."""

from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

Terms = Mapping[str, tuple[Tensor, float, float]]  # term -> its summed loss, its count in this batch, its weight


def share(terms: Terms, counts: Mapping[str, float], module: pl.LightningModule) -> Tensor:
    """A micro-batch's share of the loss: its sums over the counts of the whole optimiser step.

    Lightning divides by the number of accumulated micro-batches and averages over ranks; multiplying by both makes the
    gradient equal to that of the undivided batch.

    Args:
        counts: The denominator of each term over the whole step; empty for a step of one batch.
    """
    times = module.trainer.accumulate_grad_batches * module.trainer.world_size if counts else 1
    parts = []
    for name, (total, count, weight) in terms.items():
        whole = (counts or {name: count})[name] or 1.0  # nothing to predict in a step adds nothing
        parts.append(total * (weight * times / whole))
    return torch.stack(parts).sum()


class Logged:
    """What a module logs of its training steps: the loss of each term in the last micro-batch, and the learning rate.

    They go to Lightning's own loggers, every ``log_every_n_steps`` of its Trainer. Between these steps nothing is read
    from the device.
    """

    def __init__(self) -> None:
        self._last: Terms = {}

    def keep(self, terms: Terms) -> None:
        """Keeps the terms of a micro-batch."""
        self._last = {name: (total.detach(), count, weight) for name, (total, count, weight) in terms.items()}

    def write(self, module: pl.LightningModule, optimizer: torch.optim.Optimizer, total: str = "") -> None:
        """Logs the step that is about to be made, where one is due.

        Args:
            optimizer: Its optimiser; of parameter groups the highest rate counts.
            total: A name for the weighted sum of all terms; empty for none.
        """
        every = module.trainer.log_every_n_steps  # pyright: ignore[reportAttributeAccessIssue]  (set by a connector)
        if not every or (module.trainer.global_step + 1) % every:
            return
        means = {name: one / max(count, 1.0) for name, (one, count, _) in self._last.items()}
        shown = {f"train.{name}": mean for name, mean in means.items()}
        if total:
            weights = {name: weight for name, (_, _, weight) in self._last.items()}
            shown[total] = torch.stack([mean * weights[name] for name, mean in means.items()]).sum()
        rate = max(group["lr"] for group in optimizer.param_groups)
        module.log_dict({**shown, "lr": rate}, on_step=True, on_epoch=False)


class RunningLosses:
    """Summed loss and count of each term since the last read ``[2]``."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}

    def add(self, terms: Terms) -> None:
        """Adds the terms of a micro-batch, on their device."""
        for name, (total, count, _) in terms.items():
            both = torch.stack([total.detach().float(), total.new_tensor(count, dtype=torch.float32)])
            self._sums[name] = self._sums[name].to(both.device) + both if name in self._sums else both

    def read(self) -> dict[str, Tensor]:
        """The sums by term, which start again from nothing."""
        sums, self._sums = self._sums, {}
        return sums

    def state(self) -> dict[str, Any]:
        """What was not read yet, for a checkpoint, so that a resumed training has the curve of an uninterrupted one."""
        return {name: both.tolist() for name, both in self._sums.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        self._sums = {name: torch.tensor(both) for name, both in state.items()}
