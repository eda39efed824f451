"""New layers of heads, whose weights are drawn as BERT's are."""

from torch import nn

_STD = 0.02  # cut at two standard deviations


def draw(*layers: nn.Linear | nn.Embedding) -> None:
    """Draws the weights of layers, in turn, from torch's global generator; biases are 0."""
    for layer in layers:
        nn.init.trunc_normal_(layer.weight, std=_STD, a=-2 * _STD, b=2 * _STD)
        if isinstance(layer, nn.Linear) and layer.bias is not None:
            nn.init.zeros_(layer.bias)
