"""Conversion of checkpoint folders to our settings and weights, and the reverse."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch
from safetensors.torch import save
from torch import Tensor

from lightning_modules.checkpoints import Released, digests
from lightning_modules.config import ConfigError, Problem, as_data, flat
from lightning_modules.data import Vocabulary
from lightning_modules.files import write_atomically
from lightning_modules.interop.families import (
    CLASSIFIER,
    MLM,
    PLM,
    POOLER,
    POSITION,
    SEGMENT,
    TASK,
    Family,
    family_named,
    family_of,
)
from lightning_modules.interop.families.family import transformer
from lightning_modules.interop.folder import CONFIG, WEIGHTS, Tensors, json_object, tensors
from lightning_modules.interop.own_tokenizer import Frame, own_encoder, write_tokenizer
from lightning_modules.model import Transformer
from lightning_modules.system import System

if TYPE_CHECKING:
    from lightning_modules.training.module import Pretrain

TRAITS = ("pair", "unanswerable")
_MOST_NAMED = 12  # bad tensors that an error lists
_PARTS = {
    MLM: "masked-LM head",
    PLM: "permutation-LM head",
    POOLER: "pooler",
    CLASSIFIER: "classifier of segment pairs",
}


class TaskHead(NamedTuple):
    """The head of a downstream task.

    Attributes:
        kind: Of ``Family.tasks``.
        labels: Names of its classes or tags in the order of their numbers; empty for a number, a span and a choice.
        trait: ``pair`` if it reads two texts as one example, ``unanswerable`` if a passage may lack the answer. Only
            folders of our own say it.
    """

    kind: str
    labels: tuple[str, ...] = ()
    trait: str = ""

    @classmethod
    def named(cls, config: Mapping[str, Any], family: Family) -> Self | None:
        """The head whose class a ``config.json`` names; None if it is no class of ``Family.tasks``."""
        kinds = (kind for kind, (name, _) in family.tasks.items() if config.get("architectures") == [name])
        kind, many = next(kinds, None), config.get("problem_type") == "multi_label_classification"
        if kind is None or many:
            return None
        labels = config.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"})
        if not isinstance(labels, dict) or [*labels] != [str(number) for number in range(len(labels))]:
            raise ConfigError([Problem(f"{CONFIG}: id2label", "must name the classes 0, 1, 2 ..., in this order")])
        is_number = kind in ("span", "choice") or len(labels) < 2 or config.get("problem_type") == "regression"
        trait = next((name for name in TRAITS if name in (config.get("task_specific_params") or ())), "")
        return cls(kind, () if is_number else tuple(map(str, labels.values())), trait)

    def shapes(self, family: Family, width: int) -> dict[str, tuple[int, ...]]:
        """Our names of its weights -> their shapes, for states of a width."""
        outputs = 2 if self.kind == "span" else max(1, len(self.labels))
        rows = {"pooler": width, "output": outputs}
        parts = [(f"{TASK}.{self.kind}.{part}", rows[part]) for part in family.tasks[self.kind][1]]
        return {f"{p}.weight": (k, width) for p, k in parts} | {f"{p}.bias": (k,) for p, k in parts}

    def config(self) -> dict[str, Any]:
        """What ``config.json`` says of it."""
        own = {"task_specific_params": {self.trait: True}} if self.trait else {}
        if self.kind in ("span", "choice"):
            return own
        numbers = {label: number for number, label in enumerate(self.labels or ("LABEL_0",))}
        told = {"id2label": {str(number): label for label, number in numbers.items()}, "label2id": numbers}
        return told | own | ({} if self.labels else {"problem_type": "regression"})


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A pretrained network.

    Attributes:
        family: Its family.
        system: Its settings. For a checkpoint that was read, only ``model``, ``objectives`` and the vocabulary size
            are known.
        weights: Our names -> float32 tensors, as in the file of `fit`; without missing parts.
        pad: Id of the padding piece.
        end: Id of the piece that ends documents, if the family has one.
        notes: Missing parts and differences from ``transformers``, one line each.
        head: The head of a downstream task, whose weights are called ``head.<kind>.<part>``; None without one.
    """

    family: Family
    system: System
    weights: Mapping[str, Tensor]
    pad: int = 0
    end: int | None = None
    notes: tuple[str, ...] = ()
    head: TaskHead | None = None

    def build(self, seed: int = 0) -> "Pretrain":
        """The Lightning module with these weights; missing parts are initialised from ``seed``."""
        module = self.system.build(seed)
        module.load_state_dict(dict(self.weights), strict=False)
        return module

    def trained(self, weights: Mapping[str, Tensor], system: System, head: TaskHead | None = None) -> "Checkpoint":
        """The network with weights of `fit` or `finetune`.

        Args:
            weights: The weights.
            system: The system of this checkpoint, with the layers that are kept.
            head: The head of their task, which is left out by default.
        """
        of_task = {name.removeprefix(f"{TASK}."): name for name in weights if name.startswith(f"{TASK}.")}
        renamed = {f"{TASK}.{head.kind}.{name}": weights[ours] for name, ours in of_task.items()} if head else {}
        weights = {name: tensor for name, tensor in weights.items() if name not in of_task.values()} | renamed
        weights, zeros = _with_all_heads(weights, transformer(system))
        heads = sorted({name.split(".")[1] for name in weights if _foreign(name, self.family)})
        left = [f"left out, because transformers has no such head: {', '.join(heads)}"] if heads else []
        left += [f"{zeros} heads that were removed are zeros"] if zeros else []
        return replace(self, system=system, weights=weights, notes=(*self.notes, *left), head=head)


def read(folder: str | Path) -> Checkpoint:
    """Reads a folder, without its tokenizer.

    Names, shapes and sizes are compared with the configuration before any weight is read. Heads that neither are of a
    pretraining nor belong to the class that the configuration names are left out and listed in ``notes``.

    Raises:
        ConfigError: When something is missing, damaged, of another architecture or unsupported.
    """
    folder = Path(folder)
    config = json_object(folder / CONFIG)
    family = family_named(config)
    with tensors(folder) as stored:
        names = _canonical(stored, family)
        present = {part for part in _PARTS if _has(part, family, names)}
        system = family.system(config, POOLER in present, folder.resolve().name)
        head = TaskHead.named(config, family)
        told = {**family.defaults, **config}
        pad, end = told["pad_token_id"] or 0, told.get("eos_token_id")
        expected_weights = {
            ours: (family.theirs(ours, transformer(system)), shape)
            for ours, shape in _shapes(system).items()
            if all(part in present for part in _PARTS if ours.startswith(part))
        }
        for ours, shape in (head.shapes(family, transformer(system).hidden_size) if head else {}).items():
            expected_weights[ours] = (family.theirs(ours, transformer(system)), shape)
        _compare(family, system, pad, expected_weights, {name: stored.shapes[actual] for name, actual in names.items()})

        def get(name: str) -> Tensor:
            return stored[names[name]]

        weights = {
            ours: _joined(ours, map(get, theirs), shape, family, pad)
            for ours, (theirs, shape) in expected_weights.items()
        }
        _check_ties(family, {name: get(name) for name in names if _is_output(name)}, weights)
        if family.factorised and system.model.embedding_size == system.model.hidden_size:
            _check_identity(*map(get, _projection(family)))
    system, weights = _without_empty_segments(system, weights)
    lacking = [f"it has no {what}" for part, what in _PARTS.items() if part not in present and part in family.heads]
    used = {name for theirs, _ in expected_weights.values() for name in theirs}
    others = sorted(n for n in names if n not in used and not _of_backbone(n, family) and not _is_output(n))
    left = [f"left out: {', '.join(others[:6])}{' ...' if len(others) > 6 else ''}"] if others else []
    end = end if type(end) is int and family.objective == "lm" else None
    return Checkpoint(family, system, weights, pad, end, (*lacking, *left), head)


def of_run(system: System, weights: Mapping[str, Tensor], head: TaskHead | None = None) -> Checkpoint:
    """The checkpoint of a training, from the weights of `fit` or `finetune`; see `Checkpoint.trained`.

    ``transformers`` has no layers of fewer heads than others. Heads that were removed (``finetuning.head_pruning``)
    come back as zeros, behind those that are left, and add nothing.

    Raises:
        ConfigError: With every knob that ``transformers`` does not support.
    """
    family, end = family_of(system), Vocabulary.sep if system.format.frame == "document_ends" else None
    return Checkpoint(family, system, {}, end=end, notes=(*family.differences(system),)).trained(weights, system, head)


def _with_all_heads(weights: Mapping[str, Tensor], model: Transformer) -> tuple[dict[str, Tensor], int]:
    """The weights with zeros for heads that were removed, and how many these are."""
    full, added, width = dict(weights), 0, model.hidden_size
    for name, tensor in weights.items():
        stem, found, part = name.rpartition("attention.function.")
        missing = width - weights[f"{stem}{found}output.weight"].shape[1] if found else 0
        if not missing:
            continue
        if part.startswith("qkv."):
            parts = (torch.cat([one, one.new_zeros(missing, *one.shape[1:])]) for one in tensor.chunk(3))
            full[name] = torch.cat([*parts])
        elif part == "output.weight":
            full[name] = torch.cat([tensor, tensor.new_zeros(width, missing)], 1)
            added += missing * model.heads // width
    return full, added


def write(checkpoint: Checkpoint, folder: str | Path, tokenizer: Path | None = None) -> None:
    """Writes a folder that ``transformers`` loads.

    Rows that only ``transformers`` has are zeros: RoBERTa's positions before the first, and the segment table of a
    model without one.

    Args:
        checkpoint: The checkpoint.
        folder: The destination; it must be empty or not exist. Heads that the family lacks are left out.
        tokenizer: The ``tokenizer.json`` that this project trained for the checkpoint's system, to write it too.

    Raises:
        ConfigError: When the folder is not empty.
    """
    folder, family, system = Path(folder), checkpoint.family, checkpoint.system
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError([f"{folder} exists already and is not an empty folder. Choose another."])
    model, spelled = transformer(system), {}
    for ours, tensor in checkpoint.weights.items():
        if _foreign(ours, family):
            continue
        if ours == POSITION:
            tensor = torch.cat([tensor.new_zeros(family.offset(checkpoint.pad), tensor.shape[1]), tensor])
        spelled |= family.stored(ours, tensor, model)
    width, segments = model.embedding_size or model.hidden_size, model.segment_types
    if not segments and family.segment_types:
        segments = family.segment_types
        (name,) = family.theirs(SEGMENT, model)
        spelled[name] = torch.zeros(segments, width)
    if family.factorised and model.embedding_size is None:
        weight, bias = _projection(family)
        spelled |= {weight: torch.eye(width), bias: torch.zeros(width)}
    both, mlm, encoder = family.architectures
    has = {part for part in _PARTS if any(ours.startswith(part) for ours in checkpoint.weights)}
    chosen = (both if both and CLASSIFIER in has else mlm) if {MLM, PLM} & has else encoder
    if (head := checkpoint.head) is not None:
        chosen = family.tasks[head.kind][0]
        for ours, shape in head.shapes(family, model.hidden_size).items():  # a choice has no bias here
            spelled = {family.theirs(ours, model)[0]: torch.zeros(shape)} | spelled
    config = {
        "architectures": [chosen],
        **(head.config() if head else {}),
        **family.config(system, checkpoint.pad, segments, checkpoint.end),
    }
    data = save({name: tensor.float().contiguous() for name, tensor in spelled.items()}, metadata={"format": "pt"})
    if tokenizer is not None:
        framed = system.format.frame == "cls_sep" or system.cls_last
        longest = model.max_positions or system.format.sequence_length
        frame: Frame = "ends" if not framed else "cls_last" if system.cls_last else "cls_first"
        write_tokenizer(folder, tokenizer, system.data.tokenizer, longest, segments, frame)
    write_atomically(folder / WEIGHTS, lambda file: file.write(data))
    content = json.dumps(config, indent=2, sort_keys=True) + "\n"
    write_atomically(folder / CONFIG, lambda file: file.write(content.encode()))


def _foreign(ours: str, family: Family) -> bool:
    """Whether a weight is of a head that the family lacks: RoBERTa has a pooler but no classifier."""
    return ours.startswith("heads.") and ours.rpartition(".")[0] not in family.heads


def _canonical(stored: Tensors, family: Family) -> dict[str, str]:
    """The tensors' names in the family's largest class -> names in the file.

    Folders of the bare backbone omit its prefix; old ones call LayerNorm's parameters gamma and beta.
    """
    names: dict[str, str] = {}
    for actual in stored.shapes:
        name = actual.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        if name.split(".")[0] in family.bare:
            name = f"{family.stem}{name}"
        if name in names:
            raise ConfigError([f"{stored.path} has {name} twice: as {names[name]} and as {actual}"])
        names[name] = actual
    if MLM in family.heads:  # a bias stored only with the output layer
        head = family.heads[MLM]
        if f"{head}.bias" not in names and f"{head}.decoder.bias" in names:
            names[f"{head}.bias"] = names.pop(f"{head}.decoder.bias")
    return names


def _has(part: str, family: Family, names: Mapping[str, str]) -> bool:
    """Whether any tensor of a head exists, except the output table, which is the word table."""
    theirs = family.heads.get(part)
    return theirs is not None and any(n.startswith(f"{theirs}.") and not _is_output(n) for n in names)


def _shapes(system: System) -> dict[str, tuple[int, ...]]:
    """The shapes of a system's weights, without allocating memory."""
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in system.build(0).state_dict().items()}


def _compare(
    family: Family,
    system: System,
    pad: int,
    expected_weights: Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]],
    shapes: Mapping[str, tuple[int, ...]],
) -> None:
    """Compares names and shapes with those of the configuration."""
    expected = {}
    for ours, (theirs, (rows, *rest)) in expected_weights.items():
        rows += family.offset(pad) if ours == POSITION else 0
        expected |= dict.fromkeys(theirs, family.shape(ours, (rows, *rest), transformer(system)))
    if family.factorised and system.model.embedding_size == system.model.hidden_size:
        weight, bias = _projection(family)
        expected |= {weight: (system.model.hidden_size,) * 2, bias: (system.model.hidden_size,)}
    wrong = [f"{name} is missing" for name in expected if name not in shapes]
    wrong += [
        f"{name} has the shape {list(shapes[name])}, but {CONFIG} makes it {list(shape)}"
        for name, shape in expected.items()
        if shapes.get(name, shape) != shape
    ]
    wrong += [
        f"{name} is a part of an unsupported encoder"
        for name in shapes
        if _of_backbone(name, family) and name not in expected and not _is_ignored(name, family)
    ]
    if wrong:
        more = [f"{len(wrong) - _MOST_NAMED} more tensors are wrong"] if len(wrong) > _MOST_NAMED else []
        raise ConfigError(f"{WEIGHTS}: {problem}" for problem in wrong[:_MOST_NAMED] + more)


def _of_backbone(name: str, family: Family) -> bool:
    """Whether a tensor is a part of the backbone."""
    return name.startswith(family.stem)


def _is_ignored(name: str, family: Family) -> bool:
    """Whether a tensor is no weight."""
    return re.fullmatch(re.escape(family.stem) + family.ignored, name) is not None


def _is_output(name: str) -> bool:
    """Whether a tensor is the output layer, which is tied."""
    return ".decoder." in name or name in ("lm_head.weight", "lm_loss.weight", "vocab_projector.weight")


def _joined(ours: str, theirs: Iterable[Tensor], shape: tuple[int, ...], family: Family, pad: int) -> Tensor:
    joined = family.joined(ours, theirs, shape)
    return joined[family.offset(pad) :].clone() if ours == POSITION else joined


def _check_ties(family: Family, decoder: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """Checks that the output layer is the word table, as in our models."""
    tied = {"weight": weights["backbone.embeddings.word.weight"], "bias": weights.get(f"{MLM}.bias")}
    heads = family.heads.get(MLM, ("lm_head", "lm_loss"))
    for name, tensor in decoder.items():
        ours = tied[name.rpartition(".")[2]]
        if name.startswith(heads) and (ours is None or not torch.equal(ours, tensor)):
            raise ConfigError(
                [f"{WEIGHTS}: {name} is not tied (tie_word_embeddings). Other output layers are unsupported."]
            )


def _projection(family: Family) -> tuple[str, str]:
    stem = f"{family.name}.encoder.embedding_hidden_mapping_in"
    return f"{stem}.weight", f"{stem}.bias"


def _check_identity(weight: Tensor, bias: Tensor) -> None:
    if not torch.equal(weight, torch.eye(len(weight))) or bias.any():
        raise ConfigError(
            [f"{CONFIG}: embedding_size: a projection of embeddings as wide as the stream is not supported"]
        )


def _without_empty_segments(system: System, weights: dict[str, Tensor]) -> tuple[System, dict[str, Tensor]]:
    """Removes a segment table of zeros, which `write` adds for a model without one."""
    if SEGMENT not in weights or weights[SEGMENT].any():
        return system, weights
    rest = {name: tensor for name, tensor in weights.items() if name != SEGMENT}
    return system.but(**{"model.segment_types": 0}), rest


def row_of(source: Path, **said: Any) -> Released:
    """The row of ``checkpoints.yaml`` for a folder; plans and pages need nothing else of it.

    Args:
        source: The folder, whose tokenizer is read too.
        **said: The other fields of `Released`.

    Raises:
        ConfigError: As `read` and `own_encoder`, and for a family without a row of its own.
    """
    checkpoint, plain = read(source), System()
    system = checkpoint.system
    encoder = own_encoder(source, checkpoint.family.name, system.data.tokenizer.vocab_size)
    knobs = {path: as_data(value) for path, value in flat(system).items() if plain.get(path) != value}
    knobs = {**knobs, "data.tokenizer.kind": encoder.kind}
    knobs.pop("name", None)
    return Released(family=checkpoint.family.name, knobs=knobs, digests=digests(source), **said)
