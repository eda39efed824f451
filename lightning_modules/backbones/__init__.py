"""Encoders built from layers, each with its settings. A backbone knows no objective and no system."""

from lightning_modules.backbones.transformer import Transformer, TransformerEncoder

__all__ = ["Transformer", "TransformerEncoder"]
