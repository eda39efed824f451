"""Encoders built from layers, with their settings. Backbones do not depend on objectives or systems."""

from lightning_modules.backbones.stack import TransformerEncoder
from lightning_modules.backbones.transformer import Transformer

__all__ = ["Transformer", "TransformerEncoder"]
