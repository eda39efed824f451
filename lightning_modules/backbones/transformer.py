"""The composable transformer encoder: BERT's, RoBERTa's, and what lies between and beyond.

Vaswani et al. (2017) section 3.1 as varied by Devlin et al. (2019) section 3: word, position and segment
embeddings are summed, normalised and dropped out; layers of attention and feed-forward follow. Lan et al. (2020)
section 3.1 make the embeddings narrower than the stream, and let layers share their parameters.
"""

from torch import nn

from lightning_modules.backbones.settings import StackSettings
from lightning_modules.backbones.stack import TransformerEncoder
from lightning_modules.backbones.two_way import TwoWayEncoder


class Transformer(StackSettings):
    """The encoder that systems name: one stack of layers, or one each way."""

    def build(self, vocab_size: int) -> nn.Module:
        """The encoder, initialised from torch's current generator."""
        encoder = TwoWayEncoder if self.direction == "two_way" else TransformerEncoder
        return encoder(self.resolved(), vocab_size)
