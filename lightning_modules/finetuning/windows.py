"""Whole documents in bounded memory: read window by window, with what the model carries from one to the next.

ULMFiT's classifier (Howard and Ruder 2018, section 3.3, "BPTT for text classification"). As in the released code,
gradients do not pass from a window into the one before, and dropout masks are drawn for each window. There only states
of the last 1,400 positions are pooled; here those of all are.
"""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lightning_modules.batch import BEGIN, Encoded, Example
from lightning_modules.model.settings import BackboneModule
from lightning_modules.tasks.reading.text_vectors import FOLDED, Part, ReaderName

_AT_HAND = 4  # windows at the end whose states are kept for the backward pass; those before are computed a second time


class InWindows(nn.Module):
    """An encoder that reads rows in windows, and returns what represents each row in the place of all its states.

    Of each window a maximum, a sum and a last state are kept, so that memory hardly grows with the length of rows.

    Args:
        encoder: A backbone whose rows go on from batch to batch, and whose padding is at the end of rows.
        reader: What represents a row, a name of `FOLDED`.
    """

    def __init__(self, encoder: BackboneModule, window: int, reader: ReaderName) -> None:
        super().__init__()
        self.encoder, self.window = encoder, window
        self.reader: ReaderName = reader

    @property
    def embeddings(self) -> nn.Module:
        """The embeddings of the encoder."""
        return self.encoder.embeddings

    def forward(self, example: Example) -> Encoded:
        """Reads a batch. ``Encoded.vectors`` represent its rows, and ``last`` has the states of the last window."""
        length = example.inputs.ids.shape[1]
        starts, carry, parts, last = range(0, length, self.window), BEGIN, [], None
        for number, start in enumerate(starts):
            inside = self._window(example, start)
            if self.training and torch.is_grad_enabled() and number < len(starts) - _AT_HAND:
                last, part, carry = checkpoint(self._read, inside, carry, use_reentrant=False)
            else:
                last, part, carry = self._read(inside, carry)
            parts.append(part)
        assert last is not None
        vectors = FOLDED[self.reader](parts)
        return Encoded(layers=[last], last=last, table=self.encoder.table, vectors=vectors)

    def _read(self, inside: Example, carry: Any) -> tuple[Float[Tensor, "b t d"], Part, Any]:
        encoded = self.encoder(inside, carry)
        return encoded.last, Part.of(encoded.last, inside.inputs.real), encoded.carry

    def _window(self, example: Example, start: int) -> Example:
        """The columns of a window, as an example of its own."""
        tokens, columns = example.inputs, slice(start, start + self.window)

        def cut(rows: Bool[Tensor, "b t"] | Tensor) -> Tensor:
            return rows[:, columns]

        tables = {name: cut(numbers) for name, numbers in tokens.tables.items()}
        own = {name: cut(getattr(tokens, name)) for name in ("ids", "special", "real")}
        return Example.of(replace(tokens, **own, tables=tables, marks={}, ends=None, following=None, cls=None))
