"""The settings of a ``config.json``: which knob each is, and which values can be expressed here.

A setting that this project has no knob for is refused unless it has the one value that changes nothing.
"""

from collections.abc import Mapping
from typing import Any

from lightning_modules.config import ConfigError, Problem
from lightning_modules.interop.folder import CONFIG

ACTIVATIONS = {
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
# key of config.json -> the one value that is understood
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
_WHY = {"auto_map": "it names code of its own, which is never run, and its weights may mean something else"}
_MOST = {"num_hidden_layers": 1000, "hidden_size": 1 << 16, "intermediate_size": 1 << 20, "embedding_size": 1 << 16,
         "vocab_size": 1 << 20, "max_position_embeddings": 1 << 20, "type_vocab_size": 1 << 10}  # fmt: skip


def checked(found: Mapping[str, Any], *, needs_padding: bool) -> int:
    """The number of the padding piece, once the settings are known to be such as can be expressed.

    Args:
        found: The settings, those that the file leaves out included.
        needs_padding: Whether the family's positions are counted from that number on.

    Raises:
        ConfigError: Naming every setting that is malformed or has no knob here.
    """
    wrong = [_fixed(key, found[key], value) for key, value in _FIXED.items() if found.get(key) not in (value, None)]
    wrong += [_large(key, found[key], most) for key, most in _MOST.items() if not _counts(found.get(key, 1), most)]
    if not isinstance(found["hidden_act"], str) or found["hidden_act"] not in ACTIVATIONS:
        wrong.append(unknown("hidden_act", found["hidden_act"], ACTIVATIONS))
    pad = found["pad_token_id"]
    if pad is None and not needs_padding:
        pad = 0
    if not wrong and not _counts(pad, found["max_position_embeddings"] - 1, least=0):
        wrong.append(Problem(f"{CONFIG}: pad_token_id", f"must be a small whole number, not {str(pad)[:80]}"))
    if wrong:
        raise ConfigError(wrong)
    return pad


def unknown(key: str, value: Any, allowed: Mapping[str, Any]) -> Problem:
    """What is wrong with a name that is none of those allowed."""
    return Problem(f"{CONFIG}: {key}", f"{str(value)[:80]!r} is not known here, only {', '.join(allowed)}")


def _fixed(key: str, value: Any, allowed: Any) -> Problem:
    why = f": {_WHY[key]}" if key in _WHY else ""
    return Problem(f"{CONFIG}: {key}", f"{str(value)[:80]!r} cannot be expressed, only {allowed!r}{why}")


def _large(key: str, value: Any, most: int) -> Problem:
    return Problem(f"{CONFIG}: {key}", f"must be a whole number from 1 to {most:,}, not {str(value)[:80]}")


def _counts(value: Any, most: int, least: int = 1) -> bool:
    return type(value) is int and least <= value <= most
