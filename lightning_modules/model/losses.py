"""Losses over a vocabulary whose gradient is computed in the forward pass, in place of a second copy of the logits.

Autograd keeps the log-probabilities in fp32 next to the logits, and fills a third array with zeros to start the
backward pass. But the gradient by the logits is known as soon as the loss is: softmax minus one-hot, or the difference
of two distributions. So the forward pass computes it, some rows at a time, which stay in the processor's cache.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

_ENTRIES = 1 << 17  # of the logits that are in work at a time: half a MiB in fp32


def summed_cross_entropy(
    states: Float[Tensor, "n e"],
    table: Float[Tensor, "v e"],
    bias: Float[Tensor, " v"] | None,
    ids: Int[Tensor, " n"],
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """The summed cross-entropy in nats of predicting ``ids`` from the logits ``states table^T + bias``.

    The products run in the precision of autocast, bias and softmax in fp32. On other devices than CPUs, where small
    pieces would cost launches, torch's own loss is used.

    ``smoothing`` is the share of the target that all words have together, the right one among them (Szegedy et al.
    2016, section 7).
    """
    if states.device.type == "cpu":
        return _SummedCrossEntropy.apply(*in_one_precision(states, table), bias, ids, smoothing)
    logits = F.linear(states, table)
    logits = (logits if bias is None else logits + bias).float()
    return F.cross_entropy(logits, ids, reduction="sum", label_smoothing=smoothing)


def in_one_precision(states: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the precision of autocast, which does not look into functions with a gradient of their own."""
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        return states.to(dtype), table.to(dtype)
    return states, table


class _SummedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, table: Tensor, bias: Tensor | None, ids: Tensor, smoothing: float) -> Tensor:
        slopes = states @ table.T  # logits at first, in the end the gradient of the loss by them
        wider = torch.promote_types(slopes.dtype, torch.float32) if bias is None else bias.dtype
        total = slopes.new_zeros((), dtype=wider)
        by_bias = None if bias is None else torch.zeros_like(bias)
        rows = max(1, _ENTRIES // len(table))
        work = None if slopes.dtype == wider else slopes.new_empty(rows, len(table), dtype=wider)
        for part, right in zip(slopes.split(rows), ids[:, None].split(rows), strict=True):
            wide = part if work is None else work[: len(part)].copy_(part)
            if bias is not None:
                wide += bias
            total += (wide.amax(-1, keepdim=True) - wide.gather(1, right)).sum()
            if smoothing:
                total += smoothing * (wide.gather(1, right)[:, 0] - wide.mean(-1)).sum()
            torch.softmax(wide, -1, out=wide)
            total -= wide.amax(-1).log().sum()  # the largest share, which is never 0; that of the right word may be
            wide.scatter_add_(1, right, wide.new_full(right.shape, smoothing - 1.0))
            if smoothing:
                wide -= smoothing / len(table)
            if by_bias is not None:
                by_bias += wide.sum(0)
            part.copy_(wide)
        ctx.save_for_backward(states, table, slopes, by_bias)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None]:
        (factor,) = gradients
        states, table, slopes, by_bias = ctx.saved_tensors
        by_states, by_table = slopes @ table, slopes.T @ states
        return by_states.mul_(factor), by_table.mul_(factor), None if by_bias is None else by_bias * factor, None, None


_DIVERGENCE_ENTRIES = 1 << 19  # of the logits that are in work at a time: 2 MiB in fp32


def summed_divergence(
    states: Float[Tensor, "n e"],
    table: Float[Tensor, "v e"],
    bias: Float[Tensor, " v"],
    teachers: tuple[Float[Tensor, "n f"], Float[Tensor, "v f"], Float[Tensor, " v"]],
    temperature: float,
) -> Float[Tensor, ""]:
    """KL(teacher || student) in nats, summed over rows, times the square of the temperature (Hinton et al. 2015).

    Both distributions are softmax(logits / T) with logits ``states table^T + bias``. The gradient by the student's
    logits is T (q - p), with p the teacher's distribution and q the student's, of the same size at any T.
    ``teachers`` are states, table and bias of the teacher, which get no gradient.
    """
    ours, theirs = in_one_precision(states, table), in_one_precision(*teachers[:2])
    return _SummedDivergence.apply(*ours, bias, *theirs, teachers[2], temperature)


def summed_divergence_of_logits(
    ours: Float[Tensor, "n k"], theirs: Float[Tensor, "n k"], temperature: float
) -> Float[Tensor, ""]:
    """As `summed_divergence`, of logits that are there."""
    q, p = (logits.float() / temperature for logits in (ours, theirs.detach()))
    return F.kl_div(q.log_softmax(-1), p.log_softmax(-1), reduction="sum", log_target=True) * temperature**2


class _SummedDivergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        states, table, bias, teacher_states, teacher_table, teacher_bias, temperature = inputs
        rows = max(1, _DIVERGENCE_ENTRIES // len(table)) if states.device.type == "cpu" else max(1, len(states))
        total, by_bias = bias.new_zeros(()), torch.zeros_like(bias)
        by_states, by_table = torch.empty_like(states), torch.zeros_like(table)
        for ours, theirs, slope in zip(*(x.split(rows) for x in (states, teacher_states, by_states)), strict=True):
            q = (ours @ table.T + bias).div_(temperature)
            p = (theirs @ teacher_table.T + teacher_bias).div_(temperature)
            p_shares, q_shares = p.softmax(-1), q.softmax(-1)
            total += (_log_of_sum(q, q_shares) - _log_of_sum(p, p_shares)).sum()
            total += torch.dot(p_shares.flatten(), p.sub_(q).flatten())
            by_logits = q_shares.sub_(p_shares).mul_(temperature)
            by_bias += by_logits.sum(0)
            by_logits = by_logits.to(states.dtype)
            torch.mm(by_logits, table, out=slope)
            by_table.addmm_(by_logits.T, ours)
        ctx.save_for_backward(by_states, by_table, by_bias)
        return total * temperature**2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (factor,) = gradients
        by_states, by_table, by_bias = ctx.saved_tensors
        return by_states * factor, by_table * factor, by_bias * factor, None, None, None, None


def _log_of_sum(logits: Float[Tensor, "n v"], shares: Float[Tensor, "n v"]) -> Float[Tensor, " n"]:
    """The log of the sum of exponentials: the largest logit minus the log of its share, which is never 0."""
    return logits.amax(-1) - shares.amax(-1).log()
