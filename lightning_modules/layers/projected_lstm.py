"""An LSTM layer whose outputs are projected and whose cells are clipped (Sak et al. 2014, equations 1 to 7; ELMo).

No kernel of torch clips cells, so each position is a handful of products and elementwise operations. The gradient is
written out: autograd would keep five times as many tensors and call three times as many operations.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lightning_modules.layers.dropout import drop

State = tuple[Float[Tensor, "b d"], Float[Tensor, "b c"]]  # after a position: output and cells


class ProjectedLSTM(nn.Module):
    """One layer in one direction. It computes in the precision of its weights, even under autocast.

    ::

        i, f, o = sigmoid(...), z = tanh(...)   each of W x_t + R h_{t-1} + b
        c_t = clip(f c_{t-1} + i z)             h_t = clip(P (o tanh(c_t)))

    Weights are uniform within cells ** -0.5. The bias of forget gates starts at 1, other biases at 0, as in the layers
    that are not projected.

    Args:
        cells: Its cells c.
        size: Width d of its output.
        cell_clip: Largest absolute value of a cell; without limit with 0.
        output_clip: Largest absolute value of an output; without limit with 0.
        weight_dropout: Share of the recurrent weights R that are zero in a training batch.
    """

    spared = ("bias",)  # without weight decay

    def __init__(
        self,
        inputs: int,
        cells: int,
        size: int,
        cell_clip: float = 0.0,
        output_clip: float = 0.0,
        weight_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.clips, self.weight_dropout = (cell_clip or float("inf"), output_clip or float("inf")), weight_dropout
        self.input, self.recurrent = (nn.Parameter(torch.empty(4 * cells, width)) for width in (inputs, size))
        self.projection, self.bias = nn.Parameter(torch.empty(size, cells)), nn.Parameter(torch.zeros(4 * cells))
        for weight in (self.input, self.recurrent, self.projection):
            nn.init.uniform_(weight, -(cells**-0.5), cells**-0.5)
        with torch.no_grad():
            self.bias[cells : 2 * cells] = 1.0

    def states(
        self, x: Float[Tensor, "b t k"], before: State | None = None, sizes: Int[Tensor, " b"] | None = None
    ) -> tuple[Float[Tensor, "b t d"], State]:
        """The output after each position, and the state after the last one of each row.

        Args:
            before: The state before the first position; by default zeros.
            sizes: The positions of each row that it reads, the first ones; by default all.
        """
        with torch.autocast(x.device.type, enabled=False):
            recurrent = drop(self.recurrent, self.weight_dropout if self.training else 0.0)
            shares = torch.addmm(self.bias, x.to(self.bias.dtype).transpose(0, 1).flatten(0, 1), self.input.T)
            shares = shares.view(x.shape[1], x.shape[0], -1)
            if before is None:
                width, count = self.projection.shape
                before = shares.new_zeros(len(x), width), shares.new_zeros(len(x), count)
            outputs, cells = _Recurrence.apply(shares, recurrent, self.projection, *before, *self.clips)
        if sizes is None:
            return outputs.transpose(0, 1), (outputs[-1], cells[-1])
        row, last = torch.arange(len(x), device=x.device), (sizes - 1).clamp(min=0)
        read = (sizes > 0)[:, None]
        output, cell = (
            torch.where(read, held[last, row], old) for held, old in zip((outputs, cells), before, strict=True)
        )
        return outputs.transpose(0, 1), (output, cell)


class _Recurrence(torch.autograd.Function):
    """All positions, one after the other, time first. What is carried, cells included, has no gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        shares: Float[Tensor, "t b g"],  # of the gates: input, forget, output, cell
        recurrent: Float[Tensor, "g d"],
        projection: Float[Tensor, "d c"],
        output: Float[Tensor, "b d"],
        cell: Float[Tensor, "b c"],
        cell_clip: float,
        output_clip: float,
    ) -> tuple[Tensor, Tensor]:
        steps, rows, _ = shares.shape
        width, count = projection.shape
        gates, outputs = torch.empty_like(shares), shares.new_empty(steps, rows, width)
        cells, squashed = (shares.new_empty(steps, rows, count) for _ in range(2))
        ctx.clips = cell_clip, output_clip
        before = output, cell
        for t in range(steps):
            gate = torch.addmm(shares[t], output, recurrent.T, out=gates[t])
            gate[:, : 3 * count].sigmoid_()
            gate[:, 3 * count :].tanh_()
            i, f, o, z = gate.chunk(4, 1)
            cell = torch.mul(f, cell, out=cells[t]).addcmul_(i, z).clamp_(-cell_clip, cell_clip)
            output = torch.mm(torch.tanh(cell, out=squashed[t]) * o, projection.T, out=outputs[t])
            output.clamp_(-output_clip, output_clip)
        ctx.save_for_backward(gates, cells, squashed, outputs, recurrent, projection, *before)
        ctx.mark_non_differentiable(cells)
        return outputs, cells

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        by_outputs, (cell_clip, output_clip) = gradients[0], ctx.clips
        gates, cells, squashed, outputs, recurrent, projection, first_output, first_cell = ctx.saved_tensors
        count = projection.shape[1]
        by_shares, by_projected = torch.empty_like(gates), torch.empty_like(outputs)
        by_output, by_cell = torch.zeros_like(first_output), torch.zeros_like(first_cell)
        for t in reversed(range(len(gates))):
            i, f, o, z = gates[t].chunk(4, 1)
            # a clip lets through the gradient of what it left as it was
            by_output = torch.add(by_outputs[t], by_output, out=by_projected[t]).mul_(outputs[t].abs() < output_clip)
            by_product = by_output @ projection
            by_cell += _by_tanh(by_product * o, squashed[t])
            by_cell *= cells[t].abs() < cell_clip
            share = by_shares[t]
            torch.mul(by_cell, z, out=share[:, :count])
            torch.mul(by_cell, cells[t - 1] if t else first_cell, out=share[:, count : 2 * count])
            torch.mul(by_product, squashed[t], out=share[:, 2 * count : 3 * count])
            share[:, : 3 * count] = _by_sigmoid(share[:, : 3 * count], gates[t][:, : 3 * count])
            share[:, 3 * count :] = _by_tanh(by_cell * i, z)
            by_cell *= f
            by_output = share @ recurrent
        flat = by_shares.flatten(0, 1)
        read = torch.cat([first_output[None], outputs[:-1]]).flatten(0, 1)
        products = (gates[:, :, 2 * count : 3 * count] * squashed).flatten(0, 1)
        return by_shares, flat.T @ read, by_projected.flatten(0, 1).T @ products, None, None, None, None


_by_sigmoid, _by_tanh = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
