"""The transformer of BERT, RoBERTa and ALBERT, of GPT, Transformer-XL and XLNet, and of their variants.

Vaswani et al. (2017) section 3.1 as varied by Devlin et al. (2019) section 3: word, position and segment
embeddings are summed, followed by LayerNorm, dropout, and layers of attention and feed-forward. Lan et al. (2020)
section 3.1 make the embeddings narrower than the stream and let layers share parameters.
"""

from typing import Literal

from lightning_modules.backbones.settings import StackSettings
from lightning_modules.backbones.stack import TransformerEncoder
from lightning_modules.backbones.two_way import TwoWayEncoder
from lightning_modules.config import knob


class Transformer(StackSettings):
    """The encoder of a system: one stack of layers, or one per direction."""

    kind: Literal["transformer"] = knob("transformer", "", neutral="transformer")

    def build(self, vocab_size: int) -> TransformerEncoder | TwoWayEncoder:
        """The encoder, initialised from torch's current generator."""
        encoder = TwoWayEncoder if self.direction == "two_way" else TransformerEncoder
        return encoder(self.resolved(), vocab_size)
