"""Opens a model by name: a checkpoint's folder, a finished run, or a cell of a grid.

What a model can do is known before its weights are read, so that what it cannot answer is refused first.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablations.core.store import Records
from ablations.inspection.trained import finished, recorded, tokenizer, weights
from ablations.planning import grids
from ablations.schema.kinds import own_encoder_of
from ablations.study import Study
from lightning_modules.config import ConfigError, did_you_mean
from lightning_modules.data.text.encode import Encoder
from lightning_modules.generation.language_model import (
    LanguageModelOf,
    Wording,
    check_predicts_next,
    with_network,
    wording,
)
from lightning_modules.system import System

if TYPE_CHECKING:
    from torch import nn

    from ablations.schema.record import Record
    from lightning_modules.tasks.shapes.shape import Head, Inputs, Shape
    from lightning_modules.training.module import Pretrain


@dataclass(frozen=True)
class Tuned:
    """The head of a downstream task.

    Attributes:
        shape: What its examples and answers are.
        labels: Names of its classes or tags in the order of its outputs.
        networks: Reads the weights: backbone and head, in evaluation mode.
        inputs: How examples become items of the model.
        task: The task, from whose training examples simple methods learn; empty if nobody says.
    """

    shape: "Shape"
    labels: tuple[str, ...]
    networks: "Callable[[], tuple[nn.Module, Head]]"
    inputs: "Callable[[Any], Inputs]"
    task: str = ""


@dataclass(frozen=True)
class Opened:
    """A model whose weights are not read yet.

    Attributes:
        name: What messages call it.
        system: Its settings.
        encoder: Its tokenizer.
        pretrained: Reads its weights, which may be missing or damaged, those of a named objective among them.
        tuned: Its head of a task, for a number of options, and the trait of it (`interop.TaskHead`) where nobody else
            says it. None for a pretraining.
        is_folder: Whether it is a checkpoint, whose training text nobody knows.
    """

    name: str
    system: System
    encoder: Encoder
    pretrained: "Callable[[str], Pretrain]"
    tuned: Callable[[int, str], Tuned] | None = None
    is_folder: bool = False

    @cached_property
    def texts(self) -> Wording:
        """How texts become rows of its language model.

        Raises:
            ConfigError: If it predicts no next token.
        """
        check_predicts_next(self.system, self.name)
        longest = self.system.model.longest if self.is_folder else 0
        return wording(self.system, self.encoder, longest, keeps_space=self.is_folder)

    def language_model(self) -> LanguageModelOf:
        """Its left-to-right language model."""
        return with_network(self.texts, self.pretrained("lm"), self.system)


def opened(
    source: str, records: Records, *, scale: str, filters: Mapping[str, Any] | None = None, train: bool = False
) -> Opened:
    """Opens a model.

    Args:
        source: A folder with ``config.json``, the first digits of a finished training's id, or a grid.
        filters: Of a grid, axis -> value, to leave one cell. Its first seed is opened.
        train: Whether to train a run again if its weights are missing.

    Raises:
        ConfigError: If there is no such model.
    """
    if source and Path(source).is_dir():
        return _of_folder(Path(source))
    if source in grids.available() or source.endswith((".yaml", ".yml")):
        source = _of_cell(Study(source, scale, filters=filters or None, results_dir=records.folder), records)
    elif not re.fullmatch("[0-9a-f]*", source):
        hint = did_you_mean(source, grids.available())
        raise ConfigError(
            [f"'{source}' is neither a checkpoint's folder, nor a grid, nor the first digits of a run.{hint}"]
        )
    record = recorded(source, records)
    kind = "finetune" if record.kind == "finetune" else "pretrain"
    return _of_run(finished(record.id, records, kind), records, train)


def _of_run(record: "Record", records: Records, train: bool) -> Opened:
    made = record.run()
    system, settings, name = made.system, made.finetuning, f"run {record.id}"
    source = own_encoder_of(system)
    encoder = source or Encoder(tokenizer(made, records), system.data.tokenizer.kind)

    def network(objective: str) -> "Pretrain":
        from lightning_modules.analysis.probes import pretrained

        return pretrained(system, weights(record, records, train))

    if settings is None:
        return Opened(name, system, encoder, network)
    from lightning_modules.finetuning.run import FinetuningRun, finetuned
    from lightning_modules.tasks import task_named

    run, shape = FinetuningRun(system, made.task, settings, made.seed, None, source), task_named(made.task).shape

    def inputs(examples: Any) -> Any:
        run.data.dev = run.data.encoded(examples)
        return run.data.shown("dev")

    labels = shape.labels
    tuned = Tuned(shape, labels, lambda: finetuned(run, weights(record, records, train)), inputs, made.task)
    return Opened(name, system, encoder, network, lambda options, trait: tuned)


def _of_cell(study: Study, records: Records) -> str:
    """The id of the first run of a study's only cell, which has been trained."""
    cells = study.resolve().cells
    if len(cells) != 1:
        listed = "; ".join(cell.label for cell in cells[:12])
        raise ConfigError(
            [f"one model is needed, but {len(cells)} cells match. Add --filter to leave one of: {listed}"]
        )
    (cell,) = cells
    if not cell.runs:
        raise ConfigError([f"the search of '{cell.label}' is unfinished. Finish it with `ablations run`."])
    run = cell.runs[0]
    if not records.path(run.id).exists():
        trained = f"`ablations run {study.source} --scale {study.scale}`"
        raise ConfigError([f"the cell '{cell.label}' has no record of seed {run.seed}. Train it with {trained}"])
    return run.id


def _of_folder(folder: Path) -> Opened:
    from lightning_modules import interop
    from lightning_modules.interop.checkpoint import TaskHead
    from lightning_modules.interop.families.registry import family_named
    from lightning_modules.interop.folder import CONFIG, json_object

    config = json_object(folder / CONFIG)
    family = family_named(config)
    system = family.system(config, family.objective == "mlm", folder.resolve().name)
    encoder = interop.own_encoder(folder, family.name, system.data.tokenizer.vocab_size)

    def network(objective: str) -> "Pretrain":
        checkpoint = interop.read(folder)
        heads = [name for name in checkpoint.build().state_dict() if name.startswith(f"heads.{objective}.")]
        if any(name not in checkpoint.weights for name in heads):
            raise ConfigError([f"{folder} has no weights for the objective '{objective}'"])
        return checkpoint.build().eval()

    head = TaskHead.named(config, family)

    def tuned(options: int, trait: str) -> Tuned:
        from lightning_modules.tasks.reading.pieces import Pieces

        assert head is not None
        shape, settings = interop.shape_of(head._replace(trait=head.trait or trait), system, options)

        def networks() -> "tuple[nn.Module, Head]":
            checkpoint = interop.read(folder)
            return checkpoint.build().eval().backbone, interop.read_head(checkpoint, options)

        def inputs(examples: Any) -> Any:
            return shape.inputs(examples, Pieces.of(examples.texts(), encoder), encoder.vocabulary, settings)

        return Tuned(shape, head.labels, networks, inputs)

    return Opened(str(folder), system, encoder, network, tuned if head else None, is_folder=True)
