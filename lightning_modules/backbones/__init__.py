"""Encoders with their settings. Backbones do not depend on objectives or systems."""

from typing import Annotated

from lightning_modules.backbones.backbone import Backbone, BackboneModule
from lightning_modules.backbones.encoder_decoder import EncoderDecoder
from lightning_modules.backbones.recurrent import Recurrent
from lightning_modules.backbones.recurrent_encoder_decoder import RecurrentEncoderDecoder
from lightning_modules.backbones.stack import TransformerEncoder
from lightning_modules.backbones.transformer import Transformer
from lightning_modules.config import ByKind

AnyBackbone = Annotated[Transformer | Recurrent | EncoderDecoder | RecurrentEncoderDecoder, ByKind()]

__all__ = [
    "AnyBackbone",
    "Backbone",
    "BackboneModule",
    "EncoderDecoder",
    "Recurrent",
    "RecurrentEncoderDecoder",
    "Transformer",
    "TransformerEncoder",
]
