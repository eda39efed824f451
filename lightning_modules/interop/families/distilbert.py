"""DistilBERT: Sanh et al. (2019). No segments, no pooler, and names of its own."""

from lightning_modules.interop.families.config_json import DISTILBERT_FIXED
from lightning_modules.interop.families.family import MLM, Family, classes

DISTILBERT = Family(
    name="distilbert",
    heads={MLM: "vocab_projector", f"{MLM}.dense": "vocab_transform", f"{MLM}.norm": "vocab_layer_norm"},
    tasks={kind: classes("DistilBert", {}, {})[kind] for kind in ("tokens", "span")},  # others have ReLU for tanh
    architectures=("", "DistilBertForMaskedLM", "DistilBertModel"),
    defaults={
        "vocab_size": 30_522, "max_position_embeddings": 512, "n_layers": 6, "n_heads": 12, "dim": 768,
        "hidden_dim": 3072, "dropout": 0.1, "attention_dropout": 0.1, "activation": "gelu", "initializer_range": 0.02,
        "pad_token_id": 0,
    },
    specials={"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    suits=lambda system: system.objectives.distillation is not None and not system.model.get("segment_types"),
    segment_types=0,
    layer="transformer.layer.{}",
    parts={
        "attention.function.qkv": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        "attention.function.output": ("attention.out_lin",),
        "attention.norm": ("sa_layer_norm",),
        "ffn.function.expand": ("ffn.lin1",),
        "ffn.function.contract": ("ffn.lin2",),
        "ffn.norm": ("output_layer_norm",),
    },
    around={
        "embeddings.word": "embeddings.word_embeddings",
        "embeddings.position": "embeddings.position_embeddings",
        "embeddings.norm": "embeddings.LayerNorm",
    },
    bare=("embeddings", "transformer"),
    knobs={
        "num_layers": "n_layers", "hidden_size": "dim", "num_heads": "n_heads", "ffn_size": "hidden_dim",
        "activation": "activation", "max_positions": "max_position_embeddings", "embedding_dropout": "dropout",
        "dropout": "dropout", "attention_dropout": "attention_dropout", "init_std": "initializer_range",
    },
    fixed=DISTILBERT_FIXED,
    form={
        "positions": ("learned",), "norm": ("post",), "sharing": ("none",), "direction": ("both",),
        "embedding_norm": (True,), "segment_types": (0,), "embedding_size": (None,), "norm_eps": (1e-12,),
    },
)  # fmt: skip
