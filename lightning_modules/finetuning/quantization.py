"""Dynamic quantisation: linear layers of a trained encoder multiply in int8, on a CPU and without more training.

The weights of a matrix are rounded to int8 once, by one scale. Inputs are rounded at each product. Embeddings, norms,
attention scores and the head of a task stay in fp32.
"""

import warnings
from dataclasses import replace

import torch
from torch import nn

from lightning_modules.batch import Encoded, Example


class Quantized(nn.Module):
    """An encoder whose linear layers multiply in int8, as `torch.ao.quantization.quantize_dynamic` makes them.

    It has no parameters for these layers: their packed weights are entries of its ``state_dict``, of one byte a weight.

    Args:
        encoder: A trained encoder on the CPU; it stays as it is.
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        from torch.ao.quantization import quantize_dynamic

        with warnings.catch_warnings():  # torchao, its successor, is a package of its own
            warnings.filterwarnings("ignore", "torch.ao.quantization is deprecated", DeprecationWarning)
            warnings.filterwarnings("ignore", "torch.quantize_per_tensor", UserWarning)
            self.encoder = quantize_dynamic(encoder.eval(), {nn.Linear}, dtype=torch.qint8)

    def forward(self, example: Example) -> Encoded:
        """The states at all positions: a packed matrix multiplies as a whole, so it reads no chosen ones."""
        return self.encoder(replace(example, output_positions=None))
