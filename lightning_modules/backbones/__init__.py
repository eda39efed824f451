"""Encoders with their settings. Backbones do not depend on objectives or systems."""

from typing import TYPE_CHECKING, Annotated, Union, get_args

from lightning_modules import plugins
from lightning_modules.backbones.backbone import Backbone, BackboneModule
from lightning_modules.backbones.encoder_decoder import EncoderDecoder
from lightning_modules.backbones.recurrent import Recurrent
from lightning_modules.backbones.recurrent_encoder_decoder import RecurrentEncoderDecoder
from lightning_modules.backbones.stack import TransformerEncoder
from lightning_modules.backbones.transformer import Transformer
from lightning_modules.config import ByKind

_Ours = Transformer | Recurrent | EncoderDecoder | RecurrentEncoderDecoder
MODELS = plugins.parts("MODELS", {part.model_fields["kind"].default: part for part in get_args(_Ours)}, Backbone)
if TYPE_CHECKING:
    AnyBackbone = _Ours
else:
    AnyBackbone = Annotated[Union[tuple(MODELS.values())], ByKind()]  # noqa: UP007

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
