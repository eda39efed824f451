"""A family of checkpoints: its names of settings and weights, and its differences from our models."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from lightning_modules.config import ConfigError, Problem
from lightning_modules.interop.families.config_json import ACTIVATIONS, FIXED, KNOBS, checked
from lightning_modules.interop.folder import CONFIG
from lightning_modules.model import Transformer
from lightning_modules.model.layers import Activation
from lightning_modules.model.settings import only
from lightning_modules.objectives import LanguageModel, MaskedLM, Objectives, PermutationLM, SentencePair
from lightning_modules.system import System

MLM, POOLER, CLASSIFIER = "heads.mlm.vocabulary", "heads.sentence.pair.pooler", "heads.sentence.pair.classifier"
PLM = "heads.plm.vocabulary"
TASK = "head"  # of a downstream task: `head.<kind>.<part>`
POSITION, SEGMENT = "backbone.embeddings.position.weight", "backbone.embeddings.tables.segment.weight"

SHARED = {
    "num_hidden_layers": 12, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512, "type_vocab_size": 2, "initializer_range": 0.02, "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}  # fmt: skip
BASE = SHARED | {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
_AROUND = {
    "embeddings.word": "embeddings.word_embeddings",
    "embeddings.position": "embeddings.position_embeddings",
    "embeddings.tables.segment": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
    "embeddings.projection": "encoder.embedding_hidden_mapping_in",
}
_LAYER = {
    "attention.function.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.function.output": ("attention.output.dense",),
    "attention.norm": ("attention.output.LayerNorm",),
    "ffn.function.expand": ("intermediate.dense",),
    "ffn.function.contract": ("output.dense",),
    "ffn.norm": ("output.LayerNorm",),
}
_ENCODER = {
    "positions": ("learned",), "norm": ("post",), "sharing": ("none", "all"), "direction": ("both",),
    "embedding_norm": (True,),
}  # fmt: skip
# knobs of the backbone that no family has, and what they must be
PLAIN = {"memory_length": (0,), "same_length": (False,), "attention_biases": (True,), "embedding_scale": (False,),
         "segment_relation": (False,), "query_stream": (False,), "languages": ((),),
         "key_size": (None,)}  # fmt: skip
_OURS = re.compile(r"backbone\.blocks\.(?P<layer>\d+)\.(?P<part>.+)\.(?P<kind>\w+)")


def classes(name: str, sequence: Mapping[str, str], choice: Mapping[str, str]) -> Any:
    """The usual ``Family.tasks`` of a name of classes: a linear layer on each position, and heads of a whole row."""
    return {
        "sequence": (f"{name}ForSequenceClassification", sequence),
        "tokens": (f"{name}ForTokenClassification", {"output": "classifier"}),
        "span": (f"{name}ForQuestionAnswering", {"output": "qa_outputs"}),
        "choice": (f"{name}ForMultipleChoice", choice),
    }


@dataclass(frozen=True)
class Family:
    """A family of checkpoints.

    Attributes:
        name: Its ``model_type``.
        heads: Our part of a head -> its name in ``transformers``.
        tasks: Kind of task (sequence, tokens, span, choice) -> its class in ``transformers``, and the name there of
            each part of its head: a pooler tanh(W h + b), the output.
        architectures: Classes of ``transformers`` with both heads (empty if there is none), with the masked-LM head,
            and without heads.
        defaults: Values of settings that a ``config.json`` may omit.
        specials: Default names of the special pieces.
        suits: Whether a system with supported knobs has the form of this family.
        init: Initialisation of its weights.
        pieces: The kind of its tokenizer.
        negatives: The negatives of its sentence objective.
        head_activation: Activation of the masked-LM head, if it can differ from that of the layers.
        segment_types: Rows of the segment table that is written for a model without one, as its tokenizers need.
        positions_after_padding: Whether the first position's row comes after the row of the padding id.
        layer: Format of a layer's name.
        parts: Our part of a layer, or one of its weights -> its names in ``transformers``, several if ours is one
            matrix.
        around: Our part of the backbone outside of its layers, or a weight -> its name in ``transformers``.
        prefix: What is before the names of the backbone's weights. By default it is ``name``.
        bare: How these names begin in folders of the backbone alone, which lack the prefix.
        ignored: Names of tensors that are no weights, as a regular expression.
        inputs_first: The parts of layers whose matrices are stored with their inputs first, as a regular expression.
        shaped: Shape of one of our weights, or of a part of it, as it is stored -> the shape that it has there.
        knobs: Knob of the backbone -> key of ``config.json``.
        fixed: Key of ``config.json`` -> the only supported value.
        form: Knob of the backbone -> the values that its models can have.
        objective: The objective of its models, without and with a head of their own.
        memory: Key of ``config.json`` of how many positions a model remembers, if it can. Weights do not depend on it:
            it is written, and a model that is read remembers nothing until that is set.
        reused: Key of how many positions of a row go on into the memory, if not all need to; written alike.
    """

    name: str
    heads: Mapping[str, str]
    tasks: Mapping[str, tuple[str, Mapping[str, str]]]
    architectures: tuple[str, str, str]
    defaults: Mapping[str, Any]
    specials: Mapping[str, str]
    suits: Callable[[System], bool]
    init: str = "truncated_normal"
    pieces: Literal["wordpiece", "byte_bpe", "unigram"] = "wordpiece"
    negatives: Literal["random", "swapped"] = "random"
    head_activation: Activation | None = None
    segment_types: int = 2
    positions_after_padding: bool = False
    layer: str = "encoder.layer.{}"
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _LAYER)
    around: Mapping[str, str] = field(default_factory=lambda: _AROUND)
    prefix: str = ""
    bare: tuple[str, ...] = ("embeddings", "encoder", "pooler")
    ignored: str = r"embeddings\.(position_ids|token_type_ids)"  # counters that old versions saved
    inputs_first: str = ""
    shaped: Callable[[str, tuple[int, ...], Transformer], tuple[int, ...]] = lambda ours, shape, model: shape
    knobs: Mapping[str, str] = field(default_factory=lambda: KNOBS)
    fixed: Mapping[str, Any] = field(default_factory=lambda: FIXED)
    form: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: _ENCODER)
    objective: Literal["mlm", "lm", "plm"] = "mlm"
    memory: str = ""
    reused: str = ""

    @property
    def stem(self) -> str:
        """What is before the names of the backbone's weights."""
        return f"{self.prefix or self.name}."

    def turned(self, ours: str) -> bool:
        """Whether one of our weights is the transpose of the stored one."""
        layer = _OURS.fullmatch(ours)
        first = layer is not None and re.fullmatch(self.inputs_first, layer["part"]) is not None
        return first and ours.endswith(".weight")

    def shape(self, ours: str, whole: tuple[int, ...], model: Transformer) -> tuple[int, ...]:
        """The stored shape of one of our weights, or of each part if it is stored as several."""
        rows, *rest = whole
        part = (rows // len(self.theirs(ours, model)), *rest)
        return self.shaped(ours, part[::-1] if self.turned(ours) else part, model)

    def stored(self, ours: str, tensor: Tensor, model: Transformer) -> dict[str, Tensor]:
        """One of our weights by its names in ``transformers``, as it is stored there."""
        theirs, shape = self.theirs(ours, model), self.shape(ours, tuple(tensor.shape), model)
        parts = (part.T if self.turned(ours) else part for part in tensor.chunk(len(theirs)))
        return {name: part.reshape(shape) for name, part in zip(theirs, parts, strict=True)}

    def joined(self, ours: str, parts: Iterable[Tensor], whole: tuple[int, ...]) -> Tensor:
        """One of our weights from what is stored of it, but for rows that only ``transformers`` has."""
        rest = whole[1:]
        turned = self.turned(ours)
        plain = (part.reshape(*rest, -1).T if turned else part.reshape(-1, *rest) for part in parts)
        return torch.cat([*plain]).contiguous()

    @property
    def factorised(self) -> bool:
        """Whether it has ALBERT's projected embeddings and shared layers."""
        return "embedding_size" in self.defaults

    def offset(self, pad: int) -> int:
        """Rows of its position table before the first position."""
        return pad + 1 if self.positions_after_padding else 0

    def theirs(self, ours: str, model: Transformer) -> tuple[str, ...]:
        """The names in ``transformers`` of one of our weights; ours stacks several."""
        if layer := _OURS.fullmatch(ours):
            owners = sorted({model.owners(i)["ffn"] for i in range(model.num_layers)})
            place = f"{self.stem}{self.layer.format(owners.index(int(layer['layer'])))}"
            if (weight := f"{layer['part']}.{layer['kind']}") in self.parts:
                return tuple(f"{place}.{part}" for part in self.parts[weight])
            return tuple(f"{place}.{part}.{layer['kind']}" for part in self.parts[layer["part"]])
        stem, _, kind = ours.rpartition(".")
        if (weight := ours.removeprefix("backbone.")) in self.around:
            return (f"{self.stem}{self.around[weight]}",)
        if ours.startswith("backbone."):
            return (f"{self.stem}{self.around[stem.removeprefix('backbone.')]}.{kind}",)
        if ours.startswith(f"{TASK}."):
            _, task, part, _ = ours.split(".")
            return (f"{self.tasks[task][1][part]}.{kind}",)
        return (f"{self.heads[stem]}.{kind}",)

    def system(self, config: Mapping[str, Any], pooler: bool, name: str) -> System:
        """The system of a configuration; its data and training are unknown and have our defaults.

        Raises:
            ConfigError: With every setting that is missing, malformed or unsupported.
        """
        values = {**self.defaults, **config}
        absent = {key for key, value in self.defaults.items() if value is None and values[key] is None}
        known = {key: value for key, value in values.items() if key not in absent} | {
            "pad_token_id": values["pad_token_id"]
        }
        pad = checked(known, self.knobs, self.fixed, needs_padding=self.positions_after_padding)
        model: dict[str, Any] = {knob: values.get(key) for knob, key in self.knobs.items()} | {"init": self.init}
        model |= {knob: allowed[0] for knob, allowed in self.form.items()}
        model["activation"] = ACTIVATIONS[values[self.knobs["activation"]]]
        if "max_positions" in self.knobs:
            model["max_positions"] = values[self.knobs["max_positions"]] - self.offset(pad)
        if self.factorised:
            model |= {"embedding_size": values["embedding_size"], "sharing": "all"}
            model["sharing_groups"] = values["num_hidden_groups"]
        try:
            settings = Transformer.read(model)
            check_groups(settings)
            system = self._with(settings, pooler)
            return system.but(**{"name": name, "data.tokenizer.vocab_size": values["vocab_size"]})
        except ConfigError as error:
            wrong = [Problem(self.knobs.get(p.path, p.path), p.message) for p in error.problems]
            raise ConfigError(Problem(f"{CONFIG}: {p.path}".rstrip(": "), p.message) for p in wrong) from None

    def _with(self, model: Transformer, pooler: bool) -> System:
        data = {"tokenizer": {"kind": self.pieces}}
        if self.objective == "lm":
            lm = Objectives(lm=LanguageModel(transform="none", bias=False))
            blocks = {"sequence_length": model.max_positions, "break_mode": "none", "frame": "document_ends"}
            return System.read({"model": model.to_dict(), "objectives": lm.to_dict(), "format": blocks, "data": data})
        if self.objective == "plm":
            plm, pairs = Objectives(plm=PermutationLM()), {"kind": "segment_pairs", "cls": "last"}
            return System.read({"model": model.to_dict(), "objectives": plm.to_dict(), "format": pairs, "data": data})
        mlm = MaskedLM(activation=self.head_activation or model.activation, norm_eps=model.norm_eps)
        objectives = Objectives(mlm=mlm, sentence=SentencePair() if pooler else None)
        pairs = {"kind": "segment_pairs", "negatives": self.negatives} if pooler else {}
        shown = {"sequence_length": min(512, model.max_positions), **pairs}
        return System.read(
            {"model": model.to_dict(), "objectives": objectives.to_dict(), "format": shown, "data": data}
        )

    def config(self, system: System, pad: int, segment_types: int, end: int | None) -> dict[str, Any]:
        """The ``config.json``, without ``architectures``, of a system that `family_of` accepts."""
        model = transformer(system)
        config = {key: getattr(model, knob) for knob, key in self.knobs.items()}
        config[self.knobs["dropout"]] = model.dropout  # where one rate is of all, `differences` names the others
        config[self.knobs["activation"]] = next(name for name, ours in ACTIVATIONS.items() if ours == model.activation)
        if "segment_types" in self.knobs:
            config[self.knobs["segment_types"]] = segment_types
        if "max_positions" in self.knobs:
            config[self.knobs["max_positions"]] = model.max_positions + self.offset(pad)
        config |= {"vocab_size": system.data.tokenizer.vocab_size, "model_type": self.name}
        config |= {"pad_token_id": None if self.objective == "lm" else pad}
        config |= {"tie_word_embeddings": True, "bos_token_id": end, "eos_token_id": end}
        if self.memory:
            config[self.memory] = model.memory_length or None
        if self.reused:
            config[self.reused] = system.format.reuse_length if system.format.kind == "stream" else None
        if self.factorised:
            config["embedding_size"] = model.embedding_size or model.hidden_size
            config["num_hidden_groups"] = model.num_layers if model.sharing == "none" else model.sharing_groups
            config["inner_group_num"] = 1
        return config

    def differences(self, system: System) -> list[str]:
        """How its network differs from a system although all weights match, one line each."""
        model, head, lines = transformer(system), system.objectives.mlm, []
        theirs = self.head_activation or model.activation
        if head is not None and head.activation != theirs:
            lines.append(f"the masked-LM head has the activation {head.activation} here and {theirs} there")
        if head is not None and head.norm_eps != model.norm_eps:
            lines.append(f"the masked-LM head's LayerNorm adds {head.norm_eps} here and {model.norm_eps} there")
        told = {"embedding_dropout": "the embeddings", "attention_dropout": "attention weights"}
        for knob, what in told.items():
            if self.knobs[knob] == self.knobs["dropout"] and getattr(model, knob) != model.dropout:
                lines.append(f"the dropout of {what} is {getattr(model, knob)} here and {model.dropout} there")
        return lines


def transformer(system: System) -> Transformer:
    """The resolved settings of a system's encoder.

    Raises:
        ConfigError: For an encoder that has no form in ``transformers``.
    """
    return only(system.model.resolved(), Transformer, "a checkpoint of transformers")


def check_groups(model: Transformer) -> None:
    """Checks the groups of layers: for a few depths ALBERT's code, by floating-point division, has other ones."""
    groups = model.sharing_groups
    for layer in range(model.num_layers):
        if int(layer / (model.num_layers / groups)) != layer * groups // model.num_layers:
            raise ConfigError(
                [f"{model.num_layers} layers in {groups} groups are shared differently in transformers. Change either."]
            )
