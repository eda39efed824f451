"""How each family spells settings and weights.

BERT, RoBERTa and ALBERT as in ``transformers``: ``config.json`` and the names in ``model.safetensors``. A setting
that this project has no knob for is refused unless it has the one value that changes nothing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lightning_modules.backbones import Transformer
from lightning_modules.config import ConfigError, Problem
from lightning_modules.interop.folder import CONFIG
from lightning_modules.objectives import MaskedLM, Objectives, SentencePair
from lightning_modules.system import System

MLM, POOLER, CLASSIFIER = "heads.mlm.vocabulary", "heads.sentence.pair.pooler", "heads.sentence.pair.classifier"
POSITION, SEGMENT = "backbone.embeddings.position.weight", "backbone.embeddings.tables.segment.weight"

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "relu": "relu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
}
# knob -> key of config.json
_KNOBS = {
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
_SHARED = {
    "num_hidden_layers": 12, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512, "type_vocab_size": 2, "initializer_range": 0.02, "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}  # fmt: skip
_BASE = _SHARED | {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
_EMBEDDINGS = {
    "word": "embeddings.word_embeddings",
    "position": "embeddings.position_embeddings",
    "tables.segment": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
    "projection": "encoder.embedding_hidden_mapping_in",
}
_LAYER = {
    "attention.function.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.function.output": ("attention.output.dense",),
    "attention.norm": ("attention.output.LayerNorm",),
    "ffn.function.expand": ("intermediate.dense",),
    "ffn.function.contract": ("output.dense",),
    "ffn.norm": ("output.LayerNorm",),
}
_OURS = re.compile(r"backbone\.blocks\.(?P<layer>\d+)\.(?P<part>.+)\.(?P<kind>weight|bias)")


@dataclass(frozen=True)
class Family:
    """A family of checkpoints.

    Attributes:
        name: Its ``model_type``, and what the names of the encoder's weights begin with.
        heads: Our part of a head -> their name of it.
        architectures: Class of ``transformers`` with both heads (empty where there is none), with the masked-LM head,
            and without.
        defaults: Values of the settings that a ``config.json`` leaves out.
        init: How its weights were drawn.
        layer: Name of a layer, before its number.
        parts: Our part of a layer -> their names of it, several where ours is one matrix.
    """

    name: str
    heads: Mapping[str, str]
    architectures: tuple[str, str, str]
    defaults: Mapping[str, Any]
    init: str = "truncated_normal"
    layer: str = "encoder.layer.{}"
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _LAYER)

    @property
    def factorised(self) -> bool:
        """Whether it is ALBERT: a projection after the embeddings, layers that share."""
        return "embedding_size" in self.defaults

    def offset(self, pad: int) -> int:
        """Rows of its position table before that of the first position: RoBERTa's come after its padding's."""
        return pad + 1 if self.name == "roberta" else 0

    def theirs(self, ours: str, model: Transformer) -> tuple[str, ...]:
        """Their names of one of our weights; several are stacked in ours."""
        if layer := _OURS.fullmatch(ours):
            owners = sorted({model.owners(i)["ffn"] for i in range(model.num_layers)})
            place = f"{self.name}.{self.layer.format(owners.index(int(layer['layer'])))}"
            return tuple(f"{place}.{part}.{layer['kind']}" for part in self.parts[layer["part"]])
        stem, _, kind = ours.rpartition(".")
        if ours.startswith("backbone.embeddings."):
            return (f"{self.name}.{_EMBEDDINGS[stem.removeprefix('backbone.embeddings.')]}.{kind}",)
        return (f"{self.heads[stem]}.{kind}",)

    def system(self, config: Mapping[str, Any], pooler: bool, name: str) -> System:
        """The system of a configuration. Of its data and its training nothing is known: they are our defaults.

        Raises:
            ConfigError: Naming every setting that is missing, malformed or has no knob here.
        """
        found = {**self.defaults, **config}
        found["pad_token_id"] = self._checked(found)
        model = {knob: found[key] for knob, key in _KNOBS.items()} | {"init": self.init}
        model["activation"] = ACTIVATIONS[found["hidden_act"]]
        model["max_positions"] = found["max_position_embeddings"] - self.offset(found["pad_token_id"])
        if self.factorised:
            model |= {"embedding_size": found["embedding_size"], "sharing": "all"}
            model["sharing_groups"] = found["num_hidden_groups"]
        activation = "gelu" if self.name == "roberta" else model["activation"]
        try:
            settings = Transformer.read(model)
            _check_groups(settings)
            system = _with(settings, MaskedLM(activation=activation, norm_eps=settings.norm_eps), pooler, self)
            return system.but(**{"name": name, "data.tokenizer.vocab_size": found["vocab_size"]})
        except ConfigError as error:
            wrong = [Problem(_KNOBS.get(p.path, p.path), p.message) for p in error.problems]
            raise ConfigError(Problem(f"{CONFIG}: {p.path}".rstrip(": "), p.message) for p in wrong) from None

    def _checked(self, found: Mapping[str, Any]) -> int:
        """The number of the padding piece, once the settings are known to be such as can be expressed."""
        wrong = [_fixed(key, found[key], value) for key, value in _FIXED.items() if found.get(key) not in (value, None)]
        wrong += [_large(key, found[key], most) for key, most in _MOST.items() if not _counts(found.get(key, 1), most)]
        if not isinstance(found["hidden_act"], str) or found["hidden_act"] not in ACTIVATIONS:
            wrong.append(_unknown("hidden_act", found["hidden_act"], ACTIVATIONS))
        pad = found["pad_token_id"]
        if pad is None and not self.offset(0):
            pad = 0
        if not wrong and not _counts(pad, found["max_position_embeddings"] - 1, least=0):
            wrong.append(Problem(f"{CONFIG}: pad_token_id", f"must be a small whole number, not {str(pad)[:80]}"))
        if wrong:
            raise ConfigError(wrong)
        return pad

    def config(self, system: System, pad: int, segment_types: int) -> dict[str, Any]:
        """The ``config.json`` of a system that `refusals` has no objection to, without its ``architectures``."""
        model = system.model.resolved()
        found = {key: getattr(model, knob) for knob, key in _KNOBS.items()}
        found["hidden_act"] = next(name for name, ours in ACTIVATIONS.items() if ours == model.activation)
        found["type_vocab_size"] = segment_types
        found["max_position_embeddings"] = model.max_positions + self.offset(pad)
        found |= {"vocab_size": system.data.tokenizer.vocab_size, "pad_token_id": pad, "model_type": self.name}
        found |= {"tie_word_embeddings": True, "bos_token_id": None, "eos_token_id": None}
        if self.factorised:
            found["embedding_size"] = model.embedding_size or model.hidden_size
            found["num_hidden_groups"] = model.num_layers if model.sharing == "none" else model.sharing_groups
            found["inner_group_num"] = 1
        return found


def _fixed(key: str, value: Any, allowed: Any) -> Problem:
    why = f": {_WHY[key]}" if key in _WHY else ""
    return Problem(f"{CONFIG}: {key}", f"{str(value)[:80]!r} cannot be expressed, only {allowed!r}{why}")


def _large(key: str, value: Any, most: int) -> Problem:
    return Problem(f"{CONFIG}: {key}", f"must be a whole number from 1 to {most:,}, not {str(value)[:80]}")


def _counts(value: Any, most: int, least: int = 1) -> bool:
    return type(value) is int and least <= value <= most


def _unknown(key: str, value: Any, allowed: Mapping[str, Any]) -> Problem:
    return Problem(f"{CONFIG}: {key}", f"{str(value)[:80]!r} is not known here, only {', '.join(allowed)}")


def _check_groups(model: Transformer) -> None:
    """ALBERT's code numbers a layer's group by a division of floats, which is one less for a few depths."""
    groups = model.sharing_groups
    for layer in range(model.num_layers):
        if int(layer / (model.num_layers / groups)) != layer * groups // model.num_layers:
            raise ConfigError([f"{model.num_layers} layers in {groups} groups are shared otherwise in transformers"])


def _with(model: Transformer, mlm: MaskedLM, pooler: bool, family: Family) -> System:
    length = min(512, model.max_positions)
    objectives = Objectives(mlm=mlm, sentence=SentencePair() if pooler else None)
    pairs = {"kind": "segment_pairs", "negatives": "swapped" if family.factorised else "random"} if pooler else {}
    pieces = "byte_bpe" if family.name == "roberta" else "wordpiece"
    return System.read(
        {
            "model": model.plain(),
            "objectives": objectives.plain(),
            "format": {"sequence_length": length, **pairs},
            "data": {"tokenizer": {"kind": pieces}},
        }
    )


BERT = Family(
    "bert",
    {
        MLM: "cls.predictions",
        f"{MLM}.dense": "cls.predictions.transform.dense",
        f"{MLM}.norm": "cls.predictions.transform.LayerNorm",
        POOLER: "bert.pooler.dense",
        CLASSIFIER: "cls.seq_relationship",
    },
    ("BertForPreTraining", "BertForMaskedLM", "BertModel"),
    _BASE | {"vocab_size": 30_522},
)
ROBERTA = Family(
    "roberta",
    {
        MLM: "lm_head",
        f"{MLM}.dense": "lm_head.dense",
        f"{MLM}.norm": "lm_head.layer_norm",
        POOLER: "roberta.pooler.dense",
    },
    ("", "RobertaForMaskedLM", "RobertaModel"),
    _BASE | {"vocab_size": 50_265, "pad_token_id": 1},
    init="normal",
)
ALBERT = Family(
    "albert",
    {
        MLM: "predictions",
        f"{MLM}.dense": "predictions.dense",
        f"{MLM}.norm": "predictions.LayerNorm",
        POOLER: "albert.pooler",
        CLASSIFIER: "sop_classifier.classifier",
    },
    ("AlbertForPreTraining", "AlbertForMaskedLM", "AlbertModel"),
    _SHARED
    | {"vocab_size": 30_000, "embedding_size": 128, "hidden_size": 4096, "num_attention_heads": 64}
    | {"intermediate_size": 16_384, "num_hidden_groups": 1, "hidden_act": "gelu_new"}
    | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
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
FAMILIES = {family.name: family for family in (BERT, ROBERTA, ALBERT)}


def family_named(config: Mapping[str, Any]) -> Family:
    """The family of a configuration.

    Raises:
        ConfigError: When it names none of those known.
    """
    name = config.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        raise ConfigError([_unknown("model_type", name, FAMILIES)])
    return FAMILIES[name]


def family_of(system: System) -> Family:
    """The family whose form a system has.

    ALBERT where layers share or embeddings are narrow, RoBERTa for byte-level pieces without a sentence objective,
    else BERT.

    Raises:
        ConfigError: Naming every knob that no family expresses, with what is allowed.
    """
    model = system.model.resolved()
    allowed = {"positions": ("learned",), "norm": ("post",), "sharing": ("none", "all"), "direction": ("both",)}
    wrong = [
        Problem(f"model.{knob}", f"'{getattr(model, knob)}' has no place in transformers; it can be {' or '.join(can)}")
        for knob, can in allowed.items()
        if getattr(model, knob) not in can
    ]
    if wrong:
        raise ConfigError(wrong)
    _check_groups(model)
    if model.sharing == "all" or model.embedding_size is not None:
        return ALBERT
    return ROBERTA if system.data.tokenizer.kind == "byte_bpe" and system.objectives.sentence is None else BERT


def differences(family: Family, system: System) -> list[str]:
    """What a network of a family does otherwise than a system, though every weight has its place: a line each."""
    model, head, found = system.model.resolved(), system.objectives.mlm, []
    theirs = "gelu" if family.name == "roberta" else model.activation
    if head is not None and head.activation != theirs:
        found.append(f"the masked-LM head has the activation {head.activation} here and {theirs} there")
    if head is not None and head.norm_eps != model.norm_eps:
        found.append(f"the masked-LM head's LayerNorm adds {head.norm_eps} here and {model.norm_eps} there")
    if model.embedding_dropout != model.dropout:
        found.append(f"training on drops {model.dropout} of the embeddings there, {model.embedding_dropout} here")
    return found
