"""XLNet: Yang et al. (2019)."""

from lightning_modules.interop.families.config_json import XLNET_FIXED
from lightning_modules.interop.families.family import PLM, Family, classes
from lightning_modules.model import Transformer

_ATTENTION = "attention.function"
_BY_HEAD = (f"{_ATTENTION}.qkv", f"{_ATTENTION}.output", f"{_ATTENTION}.relation.project")


def _shaped(ours: str, shape: tuple[int, ...], model: Transformer) -> tuple[int, ...]:
    """Projections of attention are divided among the heads, which biases of queries know without an axis of ones."""
    if ours == "backbone.query":
        return (1, 1, *shape)
    if any(f".{part}." in ours for part in _BY_HEAD):
        return (shape[0], model.heads, -(-shape[1] // model.heads))
    biases = f"{_ATTENTION}.relation.biases." in ours or ours.endswith(f"{_ATTENTION}.segments.w")
    return (shape[0], shape[2]) if biases else shape


XLNET = Family(
    name="xlnet",
    heads={PLM: "lm_loss"},
    tasks=classes("XLNet", *[{"pooler": "sequence_summary.summary", "output": "logits_proj"}] * 2)
    | {"span": ("XLNetForQuestionAnsweringSimple", {"output": "qa_outputs"})},
    architectures=("", "XLNetLMHeadModel", "XLNetModel"),
    defaults={
        "vocab_size": 32_000, "d_model": 1024, "n_layer": 24, "n_head": 16, "d_inner": 4096, "ff_activation": "gelu",
        "dropout": 0.1, "layer_norm_eps": 1e-12, "initializer_range": 0.02, "pad_token_id": 5,
    },
    specials={"pad": "<pad>", "unk": "<unk>", "cls": "<cls>", "sep": "<sep>", "mask": "<mask>"},
    suits=lambda system: system.objectives.plm is not None,
    init="normal",
    pieces="unigram",
    segment_types=0,
    layer="layer.{}",
    parts={
        f"{_ATTENTION}.qkv.weight": ("rel_attn.q", "rel_attn.k", "rel_attn.v"),
        f"{_ATTENTION}.output.weight": ("rel_attn.o",),
        f"{_ATTENTION}.relation.project.weight": ("rel_attn.r",),
        f"{_ATTENTION}.relation.biases.u": ("rel_attn.r_w_bias",),
        f"{_ATTENTION}.relation.biases.v": ("rel_attn.r_r_bias",),
        f"{_ATTENTION}.segments.w": ("rel_attn.r_s_bias",),
        f"{_ATTENTION}.segments.s": ("rel_attn.seg_embed",),
        "attention.norm": ("rel_attn.layer_norm",),
        "ffn.function.expand": ("ff.layer_1",),
        "ffn.function.contract": ("ff.layer_2",),
        "ffn.norm": ("ff.layer_norm",),
    },
    around={"embeddings.word": "word_embedding", "query": "mask_emb"},
    prefix="transformer",
    bare=("word_embedding", "mask_emb", "layer"),
    inputs_first=r"attention\.function\.(qkv|relation\.project)",  # that of the output is stored with its outputs first
    shaped=_shaped,
    knobs={
        "num_layers": "n_layer", "hidden_size": "d_model", "num_heads": "n_head", "ffn_size": "d_inner",
        "activation": "ff_activation", "embedding_dropout": "dropout", "dropout": "dropout",
        "attention_dropout": "dropout", "norm_eps": "layer_norm_eps", "init_std": "initializer_range",
    },
    fixed=XLNET_FIXED,
    form={
        "positions": ("relative",), "query_biases": ("layer",), "norm": ("post",), "sharing": ("none",),
        "direction": ("both",), "embedding_norm": (False,), "segment_types": (0,), "embedding_size": (None,),
        "attention_biases": (False,), "segment_relation": (True,), "query_stream": (True,), "clamp_length": (0,),
    },
    objective="plm",
    memory="mem_len",
    reused="reuse_len",
)  # fmt: skip
