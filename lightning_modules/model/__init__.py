"""Encoders with their settings, layers and losses. Models do not depend on objectives or systems."""

from typing import TYPE_CHECKING, Annotated, Union, get_args

from lightning_modules import plugins
from lightning_modules.config import ByKind
from lightning_modules.model.recurrent import Recurrent
from lightning_modules.model.seq2seq import EncoderDecoder, RecurrentEncoderDecoder
from lightning_modules.model.settings import Backbone, BackboneModule
from lightning_modules.model.transformer import Transformer, TransformerEncoder

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
