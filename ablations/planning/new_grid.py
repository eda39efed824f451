"""Writes a new grid file: a question, a base, axes, and the usual scales."""

import contextlib
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

import yaml

from ablations.core import strict_yaml
from ablations.core.formatting import value_text
from ablations.planning import grids, scales
from ablations.schema.grid import PARENTS
from lightning_modules.config import ConfigError, Problem, as_data, flat, has_knob
from lightning_modules.files import write_atomically
from lightning_modules.model import Transformer
from lightning_modules.system import System
from lightning_modules.translation import OF_RUNNING_TEXT

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_NEEDED = ("model.direction", "model.query_stream", "model.memory_length")  # of a model, by objectives and formats
_SIZES = ("num_layers", "hidden_size", "embedding_size", "output_size")
_TEMPLATE, _STUDENTS = (Path(__file__).with_name(f"new_{name}.yaml") for name in ("grid", "students"))
_SCALES = "  smoke: {seeds: 2, looks: [2]}\n  laptop:\n  gpu:\n  paper: {seeds: 1, looks: [1]}"
_START = ("training.start", "training.start_layers")
_OF_STUDENTS = ("objectives.distillation", "finetuning.", *_START)  # knobs that no teacher has


def write(
    name: str,
    axes: list[str],
    base: System,
    question: str | None = None,
    knobs: Mapping[str, Any] | None = None,
    *,
    claims: bool = False,
) -> Path:
    """Writes ``<name>.yaml`` to the folder of new grids and checks it.

    Args:
        name: Lower-case letters, digits and underscores; not the name of another grid.
        axes: Each as ``PATH=V1,V2,...``.
        question: The question; by default "What do <knobs> change?".
        knobs: Knob -> its value in every cell.
        claims: Whether to write a claim for each axis: its last value is better than its first.

    Raises:
        ConfigError: With every problem; the file is removed.
    """
    values, wrong = {}, []
    for text in axes:
        path, _, listed = text.partition("=")
        if not path or not listed:
            wrong.append(Problem("--axis", f"{text!r} must have the form PATH=V1,V2,..."))
        if path in values:
            wrong.append(Problem("--axis", f"{path!r} is given twice. List all its values once."))
        values[path] = strict_yaml.value(f"[{listed}]")
        if len(values[path]) == 1:
            one = f"--set {shlex.quote(f'{path}={listed}')}"
            wrong.append(Problem("--axis", f"{text!r} compares nothing: give two values or more, or set it by {one}"))
    if not _NAME.fullmatch(name):
        wrong.append(Problem("name", f"{name!r} must be lower-case letters, digits and underscores"))
    if name in grids.available():
        wrong.append(Problem("name", f"there is already a grid '{name}'. Choose another name."))
    if wrong:
        raise ConfigError(wrong)
    path = grids.home() / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    text = _text(values, base, question, knobs or {}, claims)
    write_atomically(path, lambda file: file.write(text.encode()))
    try:
        grids.read(name)
    except ConfigError as error:
        path.unlink()
        parts = [(one.path.rpartition(": ")[2], one.message.partition(strict_yaml.ALSO)[0]) for one in error.problems]
        raise ConfigError(Problem(*part) for part in dict.fromkeys(parts)) from None
    return path


def _text(
    axes: dict[str, list[Any]], base: System, question: str | None, knobs: Mapping[str, Any], claims: bool
) -> str:
    varied = " and ".join(path.rpartition(".")[2].replace("_", " ") for path in axes)
    asked = f"What {'does' if len(axes) == 1 else 'do'} {varied} change?"
    loss, metrics = _measured(base, knobs)
    stated = {**_trained_on(base), **knobs}
    template = Template(_TEMPLATE.read_text(encoding="utf-8"))
    return template.substitute(
        question=yaml.safe_dump(question or asked).removesuffix("...\n").strip(),
        base=base.name,
        axes=_block(axes),
        baseline=_block({path: values[0] for path, values in axes.items()}),
        claims="\n" + _block([_expected(path, values, loss) for path, values in axes.items()]) if claims else " []",
        x=next(iter(axes)),
        scales=_scales(base, axes, knobs),
        knobs=f"set:\n{_block(stated)}\n" if stated else "",
        loss=loss,
        metrics=_block(metrics),
    )


def _trained_on(base: System) -> dict[str, Any]:
    """Objective and format of a base that is no masked language model, so that no scale's pins replace them."""
    if base.objectives.mlm is not None:
        mlm = base.objectives.mlm
        student = base.objectives.distilled is not None
        return _of_languages(base) | ({"objectives.mlm.weight": mlm.weight} if student and mlm else {})
    parts = {f"objectives.{name}": getattr(base.objectives, name) for name in type(base.objectives).model_fields}
    own = {path: part.model_dump(mode="json", exclude_defaults=True) for path, part in parts.items() if part}
    pins = {path: pin for name in scales.available() for path, pin in scales.read(name).pins.items()}
    asked = [path for path in pins if path in _NEEDED or path.startswith("format.")]
    asked = [path for path in asked if has_knob(System, path, "model.kind", base.get("model.kind"))]
    return (
        own
        | _of_kind(base)
        | {path: as_data(base.get(path)) for path in asked if as_data(base.get(path)) != pins[path]}
    )


def _of_languages(base: System) -> dict[str, Any]:
    """What a base of several languages has in the place of scales' English text, and of what they measure on it."""
    if base.format.languages == "one_text":
        return {}
    named = (
        "data.corpora",
        "model.languages",
        "format.languages",
        "format.language_exponent",
        "format.reset_positions",
    )
    measured = {"evaluation.probes": ["own_pairs"], "evaluation.words": 0, "evaluation.pairs": 0}
    return {path: as_data(base.get(path)) for path in named} | measured


def _scales(base: System, axes: Mapping[str, list[Any]], knobs: Mapping[str, Any]) -> str:
    """The scales of a grid; of a base with a teacher each says which one its students have, and what they start from.

    All cells have one teacher, with the first value of each axis that it has as well. Where axes or knobs are of
    models, students start from random weights, for those of the teacher might not fit.
    """
    if base.objectives.distilled is None:
        return _SCALES
    entries, given = yaml.safe_load(_STUDENTS.read_text(encoding="utf-8")), {**axes, **knobs}
    fits = not any(path.startswith("model.") for path in given)
    both = {path: values[0] for path, values in axes.items() if not path.startswith((*_OF_STUDENTS, "model."))}
    for entry in entries.values():
        own = {path: value for path, value in entry.pop("set", {}).items() if path not in given}
        own |= {path: value | both for path, value in own.items() if path in PARENTS and isinstance(value, dict)}
        own |= {} if fits else {path: type(base.get(path))() for path in _START if path not in given}
        entry |= {"set": own} if own else {}
    return _block(entries)


def _of_kind(base: System) -> dict[str, Any]:
    """What a base has in the place of scales' transformers and Adam, but for its sizes."""
    stated: dict[str, Any] = {}
    if not isinstance(base.model, Transformer):
        usual = flat(type(base.model)())
        own = {name: as_data(value) for name, value in flat(base.model).items() if usual.get(name, {}) != value}
        stated |= {"model.kind": base.get("model.kind"), "model.embedding_size": None}  # as wide as its layers
        stated |= {f"model.{name}": value for name, value in own.items() if name not in _SIZES}
        if base.get("model.direction") == "two_way":
            stated["model.num_layers"] = base.get("model.num_layers")  # a scale may have one layer, and it needs two
    if base.format.kind == "seq2seq":  # scales have running text, and measure it
        stated["data.corpora"] = list(base.data.corpora)
        usual = flat(base.evaluation)
        stated |= {f"evaluation.{name}": as_data(usual[name]) for name in OF_RUNNING_TEXT}
    if base.optimizer.algorithm == "sgd":
        stated["optimizer.algorithm"] = "sgd"
    return stated


def _measured(base: System, knobs: Mapping[str, Any]) -> tuple[str, list[dict[str, str]]]:
    """The held-out loss of a base with some knobs, and the metrics to begin with."""
    with contextlib.suppress(ConfigError):  # reading the grid says what is wrong with them
        base = base.but(**{path: value for path, value in knobs.items() if path.startswith(("objectives.", "model."))})
    lm = base.objectives.lm
    side = "" if lm is None else "previous_" if lm.direction == "right_to_left" else "next_"
    of = "at 15 %" if lm is None else f"of {side.rstrip('_')} tokens"
    loss = f"heldout.{side}loss"
    return loss, [
        {"name": loss, "label": f"held-out loss {of} (nats)"},
        {"name": f"heldout.{side}accuracy", "label": f"held-out accuracy {of}"},
    ]


def _expected(path: str, values: list[Any], loss: str) -> dict[str, Any]:
    """A hypothesis to begin with: the last value of an axis is better than the first."""
    first, last = values[0], values[-1]
    name, words = re.sub(r"[^a-z0-9]+", "_", path.lower()).strip("_"), path.rpartition(".")[2].replace("_", " ")
    return {
        "id": f"{name}_helps",
        "statement": f"With {words} {value_text(path, last)} the loss is better than with {value_text(path, first)}.",
        "metric": loss,
        "a": {path: last},
        "b": {path: first},
    }


def _block(values: dict[str, Any] | list[Any]) -> str:
    dumped = yaml.safe_dump(values, default_flow_style=None, sort_keys=False, allow_unicode=True)
    return "\n".join(f"  {line}" for line in dumped.splitlines())
