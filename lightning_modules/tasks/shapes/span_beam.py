"""XLNet's head for spans: the end of an answer is predicted given its start (Yang et al. 2019, ``run_squad``).

With states h of positions t, starts have logits ``w h_t``. Given a start at s, ends have logits
``w' norm(tanh(W [h_t; h_s]))``, of the right start in training. When a question is answered, the best starts each have
their best ends, a beam. That there is no answer has the logit ``v tanh(V [E h; h_CLS])``. Here E h is the mean of all
states by the probability that an answer starts there, in training too. The right start would reveal the answer, being
[CLS] where there is none. (``transformers`` trains it on the right start.)

Answers begin and end in the passage or at [CLS], which means none. Other positions have no probability.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lightning_modules.batch import Encoded, Example, Tokens
from lightning_modules.model.layers import Dropout, draw
from lightning_modules.tasks.reading.windows import END, START
from lightning_modules.tasks.shapes.shape import Head

_NORM_EPS = 1e-12
_UNANSWERED = 0.5  # weight of the loss of whether there is an answer, in the released code


class SpanBeamHead(Head):
    """Starts, ends given a start, and whether there is an answer.

    Its outputs are the columns that `decoding.decoded_beam` reads: the logits of starts; those of ends given the right
    start; the logit of no answer, at every position; and, where it does not train, the log-probabilities of the best
    ends of each of the best starts, minus infinity elsewhere.

    Args:
        hidden_size: Width d of the backbone.
        starts: Starts of a row that a beam goes on from.
        ends: Ends that it keeps for each of them.
        dropout: Rate on what says whether there is an answer.
    """

    target = START

    def __init__(self, hidden_size: int, starts: int, ends: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.starts, self.ends = starts, ends
        self.start = nn.Linear(hidden_size, 1)
        self.joined = nn.Linear(2 * hidden_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, eps=_NORM_EPS)
        self.end = nn.Linear(hidden_size, 1)
        self.answer = nn.Linear(2 * hidden_size, hidden_size)
        self.unanswered = nn.Linear(hidden_size, 1, bias=False)
        self.dropout = Dropout(dropout)
        draw(self.start, self.joined, self.end, self.answer, self.unanswered)

    def forward(self, encoded: Encoded, example: Example) -> Float[Tensor, "b t k"]:
        """The columns described above, in single precision."""
        states, allowed = encoded.last, possible(example.inputs)
        rows, length, _ = states.shape
        start = self.start(states)[..., 0].float().masked_fill(~allowed, -torch.inf)
        right = example.targets[START].ids
        ends = self._ends(states, right[:, None], allowed)[:, 0]
        expected = torch.einsum("bt,btd->bd", start.softmax(1).to(states.dtype), states)
        first = torch.arange(rows, device=states.device)
        cls = states[:, 0] if example.inputs.cls is None else states[first, example.inputs.cls]
        columns = torch.stack([start, ends, self._unanswered(expected, cls)[:, None].expand(-1, length)], 2)
        return columns if self.training else torch.cat([columns, self._beam(states, start, allowed)], 2)

    def _ends(
        self, states: Float[Tensor, "b t d"], starts: Int[Tensor, "b k"], allowed: Bool[Tensor, "b t"]
    ) -> Float[Tensor, "b k t"]:
        """The logits of ends given each start."""
        of_end, of_start = self.joined.weight.chunk(2, 1)
        given = states.gather(1, starts[:, :, None].expand(-1, -1, states.shape[2]))
        both = F.linear(states, of_end, self.joined.bias)[:, None] + F.linear(given, of_start)[:, :, None]
        logits = self.end(self.norm(both.tanh()))[..., 0].float()
        return logits.masked_fill(~allowed[:, None], -torch.inf)

    def _unanswered(self, start: Float[Tensor, "b d"], cls: Float[Tensor, "b d"]) -> Float[Tensor, " b"]:
        return self.unanswered(self.dropout(self.answer(torch.cat([start, cls], 1)).tanh()))[:, 0].float()

    def _beam(
        self, states: Float[Tensor, "b t d"], start: Float[Tensor, "b t"], allowed: Bool[Tensor, "b t"]
    ) -> Float[Tensor, "b t k"]:
        """The log-probabilities of the best ends of each of the best starts, minus infinity elsewhere."""
        best = start.argsort(dim=1, descending=True, stable=True)[:, : self.starts]
        ends = self._ends(states, best, allowed).log_softmax(2)
        kept = ends.topk(min(self.ends, ends.shape[2]), dim=2).indices
        return torch.full_like(ends, -torch.inf).scatter(2, kept, ends.gather(2, kept)).transpose(1, 2)

    def loss(self, outputs: Float[Tensor, "b t k"], example: Example) -> Tensor:
        """The summed loss of the rows in nats: the mean of start and end, and half of that of whether there is one."""
        start, end = (example.targets[name].ids for name in (START, END))
        span = F.cross_entropy(outputs[:, :, 0], start, reduction="sum")
        span = span + F.cross_entropy(outputs[:, :, 1], end, reduction="sum")
        place = example.inputs.cls
        none = (start == (0 if place is None else place)).to(outputs.dtype)
        told = F.binary_cross_entropy_with_logits(outputs[:, 0, 2], none, reduction="sum")
        return span / 2 + _UNANSWERED * told

    def by_item(self, outputs: Tensor, example: Example) -> list[Tensor]:
        """The columns of each row without its padding ``[t k]``."""
        sizes = example.inputs.real.sum(1).tolist()
        return [row[:size] for row, size in zip(outputs, sizes, strict=True)]


def possible(tokens: Tokens) -> Bool[Tensor, "b t"]:
    """Where an answer may start or end: in the second text of a row, and at [CLS]."""
    allowed = (tokens.tables["segment"] == 1) & ~tokens.special
    place = torch.zeros_like(tokens.sample) if tokens.cls is None else tokens.cls
    return allowed.scatter(1, place[:, None], torch.ones_like(place[:, None], dtype=torch.bool))
