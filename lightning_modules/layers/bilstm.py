"""A recurrent network that reads a sequence from both ends (Hochreiter and Schmidhuber 1997; Graves 2005)."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class BiLSTM(nn.Module):
    """Layers of two LSTMs each, one a direction; every layer reads both directions of the one below.

    Initialised as torch does: uniform within ``size ** -0.5``. Computes in the precision of its weights, whatever
    autocast says: a recurrence rounded to bfloat16 at each step is no faster on CPUs and loses digits.

    Args:
        inputs: Width of what is read.
        size: Width of each direction.
        layers: How many layers.
    """

    def __init__(self, inputs: int, size: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, size, layers, batch_first=True, bidirectional=True)

    def forward(self, x: Float[Tensor, "b t d"], real: Bool[Tensor, "b t"]) -> Float[Tensor, "b t e"]:
        """States of both directions, e = 2 x size; zeros on padding, which is at the end of rows and never read."""
        lengths = real.sum(1).cpu()
        with torch.autocast(x.device.type, enabled=False):
            packed = pack_padded_sequence(x.float(), lengths, batch_first=True, enforce_sorted=False)
            states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=x.shape[1])
        return states
