"""ALBERT: Lan et al. (2020)."""

from lightning_modules.interop.families.family import CLASSIFIER, MLM, POOLER, SHARED, Family, classes, transformer
from lightning_modules.system import System


def _suits(system: System) -> bool:
    """Shared layers, or embeddings narrower than the stream."""
    model = transformer(system)
    return model.sharing == "all" or model.embedding_size is not None


ALBERT = Family(
    name="albert",
    heads={
        MLM: "predictions",
        f"{MLM}.dense": "predictions.dense",
        f"{MLM}.norm": "predictions.LayerNorm",
        POOLER: "albert.pooler",
        CLASSIFIER: "sop_classifier.classifier",
    },
    tasks=classes("Albert", *[{"pooler": "albert.pooler", "output": "classifier"}] * 2),
    architectures=("AlbertForPreTraining", "AlbertForMaskedLM", "AlbertModel"),
    defaults=SHARED
    | {"vocab_size": 30_000, "embedding_size": 128, "hidden_size": 4096, "num_attention_heads": 64}
    | {"intermediate_size": 16_384, "num_hidden_groups": 1, "hidden_act": "gelu_new"}
    | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    specials={"pad": "<pad>", "unk": "<unk>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    suits=_suits,
    pieces="unigram",
    negatives="swapped",
    layer="encoder.albert_layer_groups.{}.albert_layers.0",
    parts={
        "attention.function.qkv": ("attention.query", "attention.key", "attention.value"),
        "attention.function.output": ("attention.dense",),
        "attention.norm": ("attention.LayerNorm",),
        "ffn.function.expand": ("ffn",),
        "ffn.function.contract": ("ffn_output",),
        "ffn.norm": ("full_layer_layer_norm",),
    },
)
