"""Attention of a recurrent decoder to the states of its source (Bahdanau et al. 2015; Luong et al. 2015)."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lightning_modules.layers.scene import Source

Score = Literal["dot", "scaled_dot", "general", "additive", "uniform"]


class SourceAttention(nn.Module):
    """Attends to a source from each state of a decoder, and combines both (Luong et al. 2015, equations 5 to 8).

    ::

        dot          q . k                   Luong et al.
        scaled_dot   q . k / sqrt(d)         Vaswani et al. 2017, section 3.2.1
        general      q . W k                 Luong et al.
        additive     v . tanh(W q + U k)     Bahdanau et al. 2015, appendix A.1.2
        uniform      0                       the control: the mean of the source

        tanh(C [mean of the source by the softmax of the scores; q])

    Queries are the states after the word that is read, as in Luong et al.; Bahdanau et al. ask with those before it.

    Args:
        size: Width d of states on both sides.
    """

    def __init__(self, size: int, score: Score) -> None:
        super().__init__()
        self.score = score
        self.query = nn.Linear(size, size, bias=False) if score == "additive" else None
        self.key = nn.Linear(size, size, bias=False) if score in ("general", "additive") else None
        self.sum = nn.Linear(size, 1, bias=False) if score == "additive" else None
        self.combine = nn.Linear(2 * size, size, bias=False)

    def keys(self, states: Float[Tensor, "b s d"]) -> Float[Tensor, "b s d"]:
        """The states of a source as they meet those of a decoder."""
        return states if self.key is None else self.key(states)

    def weights(self, x: Float[Tensor, "b t d"], source: Source) -> Float[Tensor, "b t s"]:
        """The share of each position of the source, from each state; none on padding."""
        return torch.softmax(self._scores(x, self._kept(source)) + source.bias[:, 0].to(x.dtype), -1)

    def forward(self, x: Float[Tensor, "b t d"], source: Source) -> Float[Tensor, "b t d"]:
        mixed = torch.bmm(self.weights(x, source), source.states.to(x.dtype))
        return torch.tanh(self.combine(torch.cat([mixed, x], -1)))

    def _scores(self, x: Float[Tensor, "b t d"], keys: Float[Tensor, "b s d"]) -> Float[Tensor, "b t s"]:
        if self.score == "uniform":
            return x.new_zeros(x.shape[0], x.shape[1], keys.shape[1])
        if self.query is not None and self.sum is not None:
            return self.sum(torch.tanh(self.query(x)[:, :, None] + keys[:, None]))[..., 0]
        scale = x.shape[-1] ** -0.5 if self.score == "scaled_dot" else 1.0
        return torch.bmm(x * scale, keys.transpose(1, 2))

    def _kept(self, source: Source) -> Float[Tensor, "b s d"]:
        """The keys of a source, computed once where a decoder goes on from step to step."""
        if source.kept is None:
            return self.keys(source.states)
        if (kept := source.kept.get(id(self))) is None:
            kept = source.kept[id(self)] = (self.keys(source.states),)
        return kept[0]
