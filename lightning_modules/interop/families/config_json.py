"""The settings of a ``config.json``: their knobs, and the supported values.

A setting without a knob is rejected unless it has the one value that our models implement.
"""

from collections.abc import Mapping
from typing import Any, cast

from lightning_modules.config import ConfigError, Problem
from lightning_modules.interop.folder import CONFIG
from lightning_modules.layers.activations import Activation

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
# key of config.json -> the only supported value
_FIXED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "is_encoder_decoder": False,
    "add_cross_attention": False,
    "inner_group_num": 1,
    "pruned_heads": {},
    "quantization_config": None,
    "auto_map": None,
}
_WHY = {"auto_map": "it names custom code, which is never run, so its weights may mean something else"}
_MOST = {"num_hidden_layers": 1000, "hidden_size": 1 << 16, "intermediate_size": 1 << 20, "embedding_size": 1 << 16,
         "vocab_size": 1 << 20, "max_position_embeddings": 1 << 20, "type_vocab_size": 1 << 10}  # fmt: skip


def checked(config: Mapping[str, Any], *, needs_padding: bool) -> int:
    """Checks the settings and returns the id of the padding piece.

    Args:
        config: The settings, including defaults.
        needs_padding: Whether the family's positions start after that id.

    Raises:
        ConfigError: With every setting that is malformed or unsupported.
    """
    wrong = [_fixed(key, config[key], value) for key, value in _FIXED.items() if config.get(key) not in (value, None)]
    wrong += [_large(key, config[key], most) for key, most in _MOST.items() if not _counts(config.get(key, 1), most)]
    if not isinstance(config["hidden_act"], str) or config["hidden_act"] not in ACTIVATIONS:
        wrong.append(unknown("hidden_act", config["hidden_act"], ACTIVATIONS))
    pad = config["pad_token_id"]
    if pad is None and not needs_padding:
        pad = 0
    if not wrong and not _counts(pad, config["max_position_embeddings"] - 1, least=0):
        wrong.append(Problem(f"{CONFIG}: pad_token_id", f"must be a small whole number, not {str(pad)[:80]}"))
    if wrong:
        raise ConfigError(wrong)
    return cast(int, pad)


def unknown(key: str, value: Any, allowed: Mapping[str, Any]) -> Problem:
    """The problem of a name that is not one of those allowed."""
    return Problem(f"{CONFIG}: {key}", f"{str(value)[:80]!r} is not supported; allowed: {', '.join(allowed)}")


def _fixed(key: str, value: Any, allowed: Any) -> Problem:
    why = f": {_WHY[key]}" if key in _WHY else ""
    return Problem(f"{CONFIG}: {key}", f"{str(value)[:80]!r} is not supported; it must be {allowed!r}{why}")


def _large(key: str, value: Any, most: int) -> Problem:
    return Problem(f"{CONFIG}: {key}", f"must be a whole number from 1 to {most:,}, not {str(value)[:80]}")


def _counts(value: Any, most: int, least: int = 1) -> bool:
    return type(value) is int and least <= value <= most
