"""Two stacks of layers, left-to-right and right-to-left, whose states are concatenated after the last layer.

The shallow bidirectional encoder that deep bidirectionality is compared with: ELMo with attention in place of LSTMs
(Peters et al. 2018, section 3.1; Devlin et al. 2019, section 5.1). Both stacks share their embeddings, as ELMo's
directions share their token representation.
"""

import torch

from lightning_modules.backbones.backbone import BackboneModule
from lightning_modules.backbones.settings import StackSettings
from lightning_modules.backbones.stack import TransformerEncoder
from lightning_modules.batch import Encoded, Example, Unsupported


class TwoWayEncoder(BackboneModule):
    """Two encoders over the same embeddings, each with half of the layers; states are concatenated ``[b t 2d]``.

    No layer of one stack sees the other. The first half of a state depends on its position and those to the left, the
    second half on its position and those to the right.
    """

    def __init__(self, settings: StackSettings, vocab_size: int) -> None:
        super().__init__()
        self.supports = settings.supports
        stack = settings.model_copy(update={"num_layers": settings.depth})
        ways = [stack.model_copy(update={"direction": way}) for way in ("left_to_right", "right_to_left")]
        self.rightward, self.leftward = (TransformerEncoder(way, vocab_size) for way in ways)
        self.embeddings = self.rightward.embeddings
        del self.rightward.embeddings, self.leftward.embeddings

    def forward(self, example: Example, carry: object = None) -> Encoded:
        """Encodes a batch.

        Raises:
            Unsupported: For a carry; the stack that reads to the left begins at the end of the text.
        """
        example.check_readable(self.supports)
        if carry is not None:
            raise Unsupported("a model with direction 'two_way' has no carry: what it read changes with more text")
        x = self.embeddings(example)
        ways = [stack.above(x, example) for stack in (self.rightward, self.leftward)]
        layers = [torch.cat(both, -1) for both in zip(*(layers for layers, _, _ in ways), strict=True)]
        last, table = torch.cat([last for _, last, _ in ways], -1), self.table
        return Encoded(layers=layers, last=last, table=table, clusters=self.clusters)

    def depth(self, name: str) -> int:
        """The depth of a parameter, as in `TransformerEncoder.depth`."""
        return 0 if name.startswith("embeddings.") else self.rightward.depth(name.partition(".")[2])
