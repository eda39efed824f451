"""GPT-2: Radford et al. (2019)."""

from lightning_modules.interop.families.config_json import DECODER_FIXED
from lightning_modules.interop.families.family import Family, classes

_END = "<|endoftext|>"  # its only special piece

GPT2 = Family(
    name="gpt2",
    heads={},  # its output layer is the table of words
    tasks={kind: classes("GPT2", {}, {})[kind] for kind in ("tokens", "span")},  # that of whole rows has no bias
    architectures=("", "GPT2LMHeadModel", "GPT2LMHeadModel"),
    defaults={
        "vocab_size": 50_257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": None,
        "activation_function": "gelu_new", "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
        "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "pad_token_id": None, "eos_token_id": 50_256,
    },
    specials=dict.fromkeys(("pad", "unk", "cls", "sep", "mask"), _END),
    suits=lambda system: system.objectives.lm is not None,
    init="normal",
    pieces="byte_bpe",
    segment_types=0,
    layer="h.{}",
    parts={
        "attention.function.qkv": ("attn.c_attn",),
        "attention.function.output": ("attn.c_proj",),
        "attention.norm": ("ln_1",),
        "ffn.function.expand": ("mlp.c_fc",),
        "ffn.function.contract": ("mlp.c_proj",),
        "ffn.norm": ("ln_2",),
    },
    around={"embeddings.word": "wte", "embeddings.position": "wpe", "final_norm": "ln_f"},
    prefix="transformer",
    bare=("wte", "wpe", "h", "ln_f"),
    ignored=r"h\.\d+\.attn\.(bias|masked_bias)",  # the causal mask, which old versions saved
    inputs_first=r".+\.function\..+",
    knobs={
        "num_layers": "n_layer", "hidden_size": "n_embd", "num_heads": "n_head", "ffn_size": "n_inner",
        "activation": "activation_function", "max_positions": "n_positions", "embedding_dropout": "embd_pdrop",
        "dropout": "resid_pdrop", "attention_dropout": "attn_pdrop", "norm_eps": "layer_norm_epsilon",
        "init_std": "initializer_range",
    },
    fixed=DECODER_FIXED,
    form={
        "positions": ("learned",), "norm": ("pre",), "sharing": ("none",), "direction": ("left_to_right",),
        "embedding_norm": (False,), "segment_types": (0,), "embedding_size": (None,),
        "embedding_divisor": (1,),
    },
    objective="lm",
)  # fmt: skip
