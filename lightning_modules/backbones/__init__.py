"""Encoders built from layers, each with its settings. A backbone knows no objective and no system."""

from lightning_modules.backbones.stack import TransformerEncoder
from lightning_modules.backbones.transformer import Transformer

__all__ = ["Transformer", "TransformerEncoder"]
