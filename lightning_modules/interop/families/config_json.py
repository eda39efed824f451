"""The settings of a ``config.json``: their knobs, and the supported values.

A setting without a knob is rejected unless it has the one value that our models implement.
"""

from collections.abc import Mapping
from typing import Any, cast

from lightning_modules.config import ConfigError, Problem
from lightning_modules.interop.folder import CONFIG
from lightning_modules.model.layers import Activation
from lightning_modules.model.settings import LARGEST

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "relu": "relu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
}
# knob -> key of config.json
KNOBS = {
    "num_layers": "num_hidden_layers",
    "activation": "hidden_act",
    "max_positions": "max_position_embeddings",
    "hidden_size": "hidden_size",
    "num_heads": "num_attention_heads",
    "ffn_size": "intermediate_size",
    "segment_types": "type_vocab_size",
    "embedding_dropout": "hidden_dropout_prob",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "norm_eps": "layer_norm_eps",
    "init_std": "initializer_range",
}
# key of config.json -> the only supported value, in every family
_ALWAYS = {
    "is_encoder_decoder": False,
    "add_cross_attention": False,
    "pruned_heads": {},
    "quantization_config": None,
    "auto_map": None,
}
# the same of encoders
FIXED = _ALWAYS | {"position_embedding_type": "absolute", "is_decoder": False, "inner_group_num": 1}
# and of GPT-2
DECODER_FIXED = _ALWAYS | {
    "tie_word_embeddings": True,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
}
# and of DistilBERT
DISTILBERT_FIXED = _ALWAYS | {"sinusoidal_pos_embds": False, "tie_word_embeddings": True, "tie_weights_": True}
# and of XLNet
XLNET_FIXED = _ALWAYS | {
    "tie_word_embeddings": True,
    "attn_type": "bi",
    "untie_r": True,
    "bi_data": False,
    "same_length": False,
    "clamp_len": -1,
}
_WHY = {"auto_map": "it names custom code, which is never run, so its weights may mean something else"}
# knob, or key where there is none -> the largest number
_MOST = LARGEST | {"vocab_size": 1 << 20}


def checked(
    config: Mapping[str, Any], knobs: Mapping[str, str], fixed: Mapping[str, Any], *, needs_padding: bool
) -> int:
    """Checks the settings and returns the id of the padding piece.

    Args:
        knobs: Knob -> its key in this family.
        fixed: Key -> the only value that this family supports.
        needs_padding: Whether the family's positions start after that id.

    Raises:
        ConfigError: With every setting that is malformed or unsupported.
    """
    wrong = [_fixed(key, config[key], value) for key, value in fixed.items() if config.get(key) not in (value, None)]
    most = {knobs.get(name, name): number for name, number in _MOST.items()}
    for key, number in most.items():
        if not _counts(config.get(key, 1), number):
            text = f"must be a whole number from 1 to {number:,}, not {str(config[key])[:80]}"
            wrong.append(Problem(f"{CONFIG}: {key}", text))
    activation = config[knobs["activation"]]
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        wrong.append(unknown(knobs["activation"], activation, ACTIVATIONS))
    pad = config["pad_token_id"]
    if pad is None and not needs_padding:
        pad = 0
    rows = "max_positions" if needs_padding else "vocab_size"
    if not wrong and not _counts(pad, config[knobs.get(rows, rows)] - 1, least=0):
        wrong.append(Problem(f"{CONFIG}: pad_token_id", f"must be a small whole number, not {str(pad)[:80]}"))
    if wrong:
        raise ConfigError(wrong)
    return cast(int, pad)


def unknown(key: str, value: Any, allowed: Mapping[str, Any]) -> Problem:
    """The problem of a name that is not one of those allowed."""
    return Problem(f"{CONFIG}: {key}", f"{str(value)[:80]!r} is not supported. Allowed: {', '.join(allowed)}.")


def _fixed(key: str, value: Any, allowed: Any) -> Problem:
    why = f": {_WHY[key]}" if key in _WHY else ""
    return Problem(f"{CONFIG}: {key}", f"{str(value)[:80]!r} is not supported. It must be {allowed!r}{why}.")


def _counts(value: Any, most: int, least: int = 1) -> bool:
    return type(value) is int and least <= value <= most
