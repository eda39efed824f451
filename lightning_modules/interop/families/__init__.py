"""Families of checkpoints: one file each with names of weights and settings, and a shared base.

BERT, RoBERTa, ALBERT and GPT-2 as in ``transformers``: ``config.json`` and the names in ``model.safetensors``.
"""

from lightning_modules.interop.families.family import CLASSIFIER, MLM, POOLER, POSITION, SEGMENT, Family
from lightning_modules.interop.families.registry import FAMILIES, family_named, family_of

__all__ = [
    "CLASSIFIER",
    "FAMILIES",
    "MLM",
    "POOLER",
    "POSITION",
    "SEGMENT",
    "Family",
    "family_named",
    "family_of",
]
