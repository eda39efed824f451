"""RoBERTa with LayerNorm before each part of a layer: Ott et al. (2019), fairseq's ``encoder_normalize_before``."""

from dataclasses import replace

from lightning_modules.interop.families.family import classes
from lightning_modules.interop.families.roberta import ROBERTA

ROBERTA_PRELAYERNORM = replace(
    ROBERTA,
    name="roberta-prelayernorm",
    prefix="roberta_prelayernorm",
    heads={ours: theirs.replace("roberta.", "roberta_prelayernorm.") for ours, theirs in ROBERTA.heads.items()},
    tasks=classes(
        "RobertaPreLayerNorm",
        ROBERTA.tasks["sequence"][1],
        {"pooler": "roberta_prelayernorm.pooler.dense", "output": "classifier"},
    ),
    architectures=("", "RobertaPreLayerNormForMaskedLM", "RobertaPreLayerNormModel"),
    suits=lambda system: ROBERTA.suits(system) and system.model.get("norm") == "pre",
    parts={**ROBERTA.parts, "attention.norm": ("attention.LayerNorm",), "ffn.norm": ("intermediate.LayerNorm",)},
    around={**ROBERTA.around, "final_norm": "LayerNorm"},
    bare=(*ROBERTA.bare, "LayerNorm"),
    form={**ROBERTA.form, "norm": ("pre",)},
)
