"""Bidirectional LSTMs (Hochreiter and Schmidhuber 1997; Graves 2005)."""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lightning_modules.batch import Encoded, Example


class BiLSTM(nn.Module):
    """Layers of two LSTMs each, one per direction; every layer reads both directions of the one below.

    Initialised as in torch: uniform within ``size ** -0.5``. It computes in the precision of its weights, even under
    autocast: rounding a recurrence to bfloat16 at each step is no faster on CPUs and loses precision.

    Args:
        size: Width of each direction.
    """

    def __init__(self, inputs: int, size: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, size, layers, batch_first=True, bidirectional=True)

    def forward(self, x: Float[Tensor, "b t d"], real: Bool[Tensor, "b t"]) -> Float[Tensor, "b t e"]:
        """States of both directions, e = 2 x size; zeros on padding, which must be at the end of rows."""
        lengths = real.sum(1).cpu()
        with torch.autocast(x.device.type, enabled=False):
            packed = pack_padded_sequence(x.float(), lengths, batch_first=True, enforce_sorted=False)
            states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=x.shape[1])
        return states


class BiLSTMOnTop(nn.Module):
    """An encoder with a BiLSTM over its last states (Devlin et al. 2019, Table 5, "+ BiLSTM").

    The paper only says that it is randomly initialised and added for fine-tuning. Its width is our choice: a head reads
    states as wide as without it.

    Args:
        encoder: A pretrained backbone, which is trained too.
        width: Width of its states.
        layers: Layers of the BiLSTM; each direction is half as wide.

    Attributes:
        width: Width of the states that a head reads; one less if the encoder's is odd.
    """

    def __init__(self, encoder: nn.Module, width: int, layers: int) -> None:
        super().__init__()
        self.encoder, self.bilstm = encoder, BiLSTM(width, width // 2, layers)
        self.width = 2 * (width // 2)

    @property
    def embeddings(self) -> nn.Module:
        """The embeddings of the encoder."""
        return self.encoder.get_submodule("embeddings")

    def forward(self, example: Example) -> Encoded:
        encoded = self.encoder(example)
        return replace(encoded, last=self.bilstm(encoded.last, example.inputs.real))
