"""Families of checkpoints: one file each with names of weights and settings, and a shared base.

BERT, RoBERTa, ALBERT, GPT-2 and XLNet as in ``transformers``: ``config.json`` and the names in ``model.safetensors``.
"""

from lightning_modules.interop.families.family import CLASSIFIER, MLM, PLM, POOLER, POSITION, SEGMENT, TASK, Family
from lightning_modules.interop.families.registry import FAMILIES, family_named, family_of

__all__ = [
    "CLASSIFIER",
    "FAMILIES",
    "MLM",
    "PLM",
    "POOLER",
    "POSITION",
    "SEGMENT",
    "TASK",
    "Family",
    "family_named",
    "family_of",
]
