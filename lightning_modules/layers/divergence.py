"""The divergence of a student's answers from its teacher's, and of its words, without a copy of either's logits.

The two distributions over the vocabulary at every position are the largest arrays of a distillation. As in
`cross_entropy`, the gradient by the student's logits is known as soon as the divergence is, and only few rows are in
work at a time.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from lightning_modules.layers.cross_entropy import in_one_precision

_ENTRIES = 1 << 19  # of the logits that are in work at a time: 2 MiB in fp32


def summed_divergence(
    states: Float[Tensor, "n e"],
    table: Float[Tensor, "v e"],
    bias: Float[Tensor, " v"],
    teachers: tuple[Float[Tensor, "n f"], Float[Tensor, "v f"], Float[Tensor, " v"]],
    temperature: float,
) -> Float[Tensor, ""]:
    """KL(teacher || student) in nats, summed over rows, times the square of the temperature (Hinton et al. 2015).

    Both distributions are softmax(logits / T) with logits ``states table^T + bias``. The gradient by the student's
    logits is T (q - p), of the same size at any T, where p is the teacher's distribution and q the student's.

    Args:
        states: The student's states below its word table.
        bias: One number for each word.
        teachers: The same three of the teacher, which get no gradient.
    """
    ours, theirs = in_one_precision(states, table), in_one_precision(*teachers[:2])
    return _SummedDivergence.apply(*ours, bias, *theirs, teachers[2], temperature)


def summed_divergence_of_logits(
    ours: Float[Tensor, "n k"], theirs: Float[Tensor, "n k"], temperature: float
) -> Float[Tensor, ""]:
    """As `summed_divergence`, of logits that are there."""
    q, p = (logits.float() / temperature for logits in (ours, theirs.detach()))
    apart = F.kl_div(q.log_softmax(-1), p.log_softmax(-1), reduction="sum", log_target=True)
    return apart * temperature**2


class _SummedDivergence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        table: Tensor,
        bias: Tensor,
        teacher_states: Tensor,
        teacher_table: Tensor,
        teacher_bias: Tensor,
        temperature: float,
    ) -> Tensor:
        rows = max(1, _ENTRIES // len(table)) if states.device.type == "cpu" else max(1, len(states))
        total, by_bias = bias.new_zeros(()), torch.zeros_like(bias)
        by_states, by_table = torch.empty_like(states), torch.zeros_like(table)
        parts = zip(states.split(rows), teacher_states.split(rows), by_states.split(rows), strict=True)
        for ours, theirs, slope in parts:
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
