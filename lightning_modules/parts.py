"""Parts of a model by name, and a model that starts from those of another one.

A translator may start from a masked language model of both languages (Conneau and Lample 2019, sections 4 and 5.1):
its encoder from the layers, and its decoder from the same layers but for the attention to the source, which is new. The
released code copies whole state dictionaries and draws the layers of that attention (``DECODER_ONLY_PARAMS``). Here a
mapping says which part comes from which::

    words: words            the table of words, and what is applied before the layers: LayerNorm, projection
    positions: positions    the table of positions
    encoder: layers         attention, feed-forward and LayerNorm of each layer, and the last LayerNorm
    decoder: layers         likewise; `source_attention` is a part of its own, with its LayerNorm
    output: output          what is between states and words, but for the table of words that both have in common

Parts that the mapping leaves out keep their random weights.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from torch import Size, Tensor

from lightning_modules.config import ConfigError, Problem, did_you_mean
from lightning_modules.model.seq2seq import EncoderDecoder
from lightning_modules.model.settings import Backbone, StackSettings
from lightning_modules.objectives import Objective, Objectives

KNOB = "training.start_parts"
START = "training.start"
_WORDS, _POSITIONS = r"embeddings\.((?:word|norm|projection)\..+)", r"embeddings\.(position\..+)"
_LAYERS, _ABOVE = r"(?:blocks\.\d+\.(?:attention|ffn)\..+", r"|(?:final_norm|query_biases)\..+)"
_EITHER = {
    "words": rf"backbone\.{_WORDS}",
    "positions": rf"backbone\.{_POSITIONS}",
    "segments": r"backbone\.embeddings\.tables\.segment\.(.+)",
    "output": r"heads\.(?:mlm|lm|plm)\.vocabulary\.(.+)",
}
# Kind of model -> part -> names of its weights, the group being the name within the part.
_PARTS: dict[str, dict[str, str]] = {
    "transformer": _EITHER
    | {
        "languages": r"backbone\.embeddings\.tables\.language\.(.+)",
        "layers": rf"backbone\.({_LAYERS}{_ABOVE})",
        "query": r"backbone\.(query)",
    },
    "encoder_decoder": _EITHER
    | {
        "source_words": rf"backbone\.encoder\.{_WORDS}",
        "source_positions": rf"backbone\.encoder\.{_POSITIONS}",
        "encoder": rf"backbone\.encoder\.({_LAYERS}{_ABOVE})",
        "decoder": rf"backbone\.({_LAYERS}{_ABOVE})",
        "source_attention": r"backbone\.(blocks\.\d+\.cross\..+)",
    },
}
_OF_ENCODER = ("encoder", "source_words", "source_positions")
_TABLE = ("embedding_size", "hidden_size")
# Part -> the knobs of a model that give their weights a shape or a meaning.
_READ = {
    "words": (*_TABLE, "embedding_norm", "embedding_scale", "embedding_cutoffs", "embedding_divisor",
        "languages"),
    "positions": ("positions", "max_positions", *_TABLE),
    "layers": (
        *("num_layers", "hidden_size", "num_heads", "ffn_size", "norm", "activation", "attention_biases"),
        *("positions", "query_biases", "clamp_length", "rotary_size", "segment_relation", "sharing", "sharing_groups"),
    ),
}  # fmt: skip
_READ |= dict.fromkeys(("encoder", "decoder", "source_attention"), _READ["layers"])
_READ |= {f"source_{part}": _READ[part] for part in ("words", "positions")}
_OF_HEAD = ("activation", "transform", "bias")  # of an objective that predicts words

Chosen = Mapping[str, str]  # part of a model -> part of the one that it starts from
Named = dict[str, dict[str, str]]  # part -> name within it -> name of the weight


def check(
    chosen: Chosen,
    models: tuple[Backbone, Backbone],
    objectives: tuple[Objectives, Objectives],
    shapes: tuple[Mapping[str, Size], Mapping[str, Size]],
) -> None:
    """Checks that each part has what it starts from, and that this means the same there.

    Args:
        chosen: Part of a model -> part of the one in ``training.start``.
        models: The settings of both, of the model first.
        objectives: Those of their trainings.
        shapes: Name -> shape of the weights of both, heads included, with the vocabulary of the model.

    Raises:
        ConfigError: With every part that is not there, and every knob in which the two must be equal.
    """
    here, there = models
    for model, knob in ((here, "model.kind"), (there, f"{START}.model.kind")):
        if model.get("kind") not in _PARTS:
            text = f"is {model.get('kind')}, and {KNOB} names parts of the kinds {' and '.join(_PARTS)}"
            raise ConfigError([Problem(knob, text)])
    ours, theirs = (named(model, given) for model, given in zip(models, shapes, strict=True))
    wrong = [*_absent(chosen, "the model", ours), *_absent(chosen.values(), f"the model in {START}", theirs)]
    if wrong:
        raise ConfigError(wrong)
    unlike = {path: text for part, source in chosen.items() for path, text in _unlike(part, source, models, objectives)}
    wrong = [Problem(f"{START}.{path}", text) for path, text in unlike.items()]
    if not wrong:
        wrong = [Problem(f"{KNOB}.{part}", text) for part, source in chosen.items()
                 if (text := _misfit(source, ours[part], theirs[source], shapes))]  # fmt: skip
    if wrong:
        raise ConfigError(wrong)


def _absent(parts: Iterable[str], whose: str, known: Collection[str]) -> Iterator[Problem]:
    for part in dict.fromkeys(parts):
        if part not in known:
            yield Problem(KNOB, f"'{part}' is no part of {whose}.{did_you_mean(part, known)}")


def _unlike(
    part: str, source: str, models: tuple[Backbone, Backbone], objectives: tuple[Objectives, Objectives]
) -> Iterator[tuple[str, str]]:
    """The knobs of the other training that must be as here for one part, each with the reason."""
    why = f"as here, where {KNOB} takes {part} from its {source}"
    if part == source == "output":
        (_, ours), (name, theirs) = map(_predicting, objectives)
        for knob in _OF_HEAD:
            mine, its = _head(ours, knob), _head(theirs, knob)
            if mine != its:
                yield f"objectives.{name}.{knob}", f"is {its!r} and must be {mine!r} {why}"
        return
    here, there = _stack(models[0], part), _stack(models[1], source)
    for knob in _READ.get(part, ()):
        mine, its = here.get(knob), there.get(knob)
        if mine != its:
            yield f"model.{_knob(knob, source)}", f"is {its!r} and must be {mine!r} {why}"


def _knob(name: str, part: str) -> str:
    """What the knob of a stack is called in the settings of the whole model."""
    return "encoder_layers" if (name, part) == ("num_layers", "encoder") else name


def _stack(model: Backbone, part: str) -> StackSettings:
    """The settings of the stack that a part is of."""
    assert isinstance(model, StackSettings)
    inner = model.encoder if isinstance(model, EncoderDecoder) and part in _OF_ENCODER else model
    return inner.resolved()


def _predicting(objectives: Objectives) -> tuple[str, Objective]:
    """The objective whose head predicts words, with its name."""
    return next((name, part) for name, part in objectives.present() if name in ("mlm", "lm", "plm"))


def _head(objective: Objective, knob: str) -> Any:
    """A knob of a head; that of a masked language model has BERT's transform and a bias."""
    return getattr(objective, knob, {"transform": "bert", "bias": True}.get(knob))


def _misfit(
    source: str, ours: Mapping[str, str], theirs: Mapping[str, str], shapes: tuple[Mapping[str, Size], ...]
) -> str:
    """Why the weights of one part are not those of another; empty if they are."""
    if apart := sorted(ours.keys() ^ theirs.keys()):
        return f"consists of other weights than {source}: only one of the two has {apart[0]}"
    for name, place in ours.items():
        mine, its = shapes[0][place], shapes[1][theirs[name]]
        if mine != its:
            return f"has {name} of shape {_told(mine)}, and {source} of {_told(its)}"
    return ""


def _told(shape: Size) -> str:
    return " x ".join(map(str, shape)) or "a single number"


def named(model: Backbone, names: Iterable[str]) -> Named:
    """The parts that a model has, in the order of their first weights, among the weights of these names."""
    patterns = {part: re.compile(pattern) for part, pattern in _PARTS.get(model.get("kind"), {}).items()}
    found: Named = {}
    for name in names:
        for part, pattern in patterns.items():
            if match := pattern.fullmatch(name):
                found.setdefault(part, {})[match[1]] = name
    return found


def sources(
    chosen: Chosen, models: tuple[Backbone, Backbone], names: tuple[Iterable[str], Iterable[str]]
) -> dict[str, str]:
    """Name of a weight -> name of the one that it starts from, for all that are not new."""
    ours, theirs = (named(model, given) for model, given in zip(models, names, strict=True))
    return {
        place: theirs.get(source, {}).get(name, name)  # what a file lacks is missed by its name
        for part, source in chosen.items()
        for name, place in ours[part].items()
    }


def listed(chosen: Chosen, model: Backbone, weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """What of a model is loaded, from which part, and what is new, with parameters, for a record.

    What belongs to no part, such as the head of a second objective, is listed by the name of its weight.
    """
    parts = named(model, weights)
    counts = {part: sum(weights[place].numel() for place in places.values()) for part, places in parts.items()}
    known = {place for places in parts.values() for place in places.values()}
    new = {part: count for part, count in counts.items() if part not in chosen}
    new |= {name: weights[name].numel() for name in weights if name not in known}
    loaded = {part: {"from": source, "parameters": counts[part]} for part, source in chosen.items()}
    return {"loaded": loaded, "new": new}
