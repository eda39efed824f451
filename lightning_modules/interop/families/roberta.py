"""RoBERTa: Liu et al. (2019)."""

from lightning_modules.interop.families.family import BASE, MLM, POOLER, Family, classes

ROBERTA = Family(
    name="roberta",
    heads={
        MLM: "lm_head",
        f"{MLM}.dense": "lm_head.dense",
        f"{MLM}.norm": "lm_head.layer_norm",
        POOLER: "roberta.pooler.dense",
    },
    tasks=classes(
        "Roberta",
        {"pooler": "classifier.dense", "output": "classifier.out_proj"},
        {"pooler": "roberta.pooler.dense", "output": "classifier"},
    ),
    architectures=("", "RobertaForMaskedLM", "RobertaModel"),
    defaults=BASE | {"vocab_size": 50_265, "pad_token_id": 1},
    specials={"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"},
    suits=lambda system: system.data.tokenizer.kind == "byte_bpe" and system.objectives.sentence is None,
    init="normal",
    pieces="byte_bpe",
    head_activation="gelu",
    segment_types=1,
    positions_after_padding=True,
)
