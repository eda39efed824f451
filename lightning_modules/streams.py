"""What fits a stream, whose rows go on from step to step, and what only a stream has."""

from collections.abc import Iterator

from lightning_modules.batch import BOTH_WAYS, CHARACTERS, REUSE
from lightning_modules.data import InputFormat
from lightning_modules.data.order.heldout import Reading
from lightning_modules.evaluation import Evaluation
from lightning_modules.model import Backbone
from lightning_modules.objectives import Objectives
from lightning_modules.training.optimizers import Schedule
from lightning_modules.training.settings import Training


def reading(form: InputFormat, evaluation: Evaluation) -> Reading:
    """How a held-out stream is read."""
    return Reading(evaluation.rows, evaluation.sequence_length or form.sequence_length, evaluation.context)


def check(
    model: Backbone, objectives: Objectives, form: InputFormat, training: Training, evaluation: Evaluation
) -> None:
    """Checks that a system with a stream can read it, and that one without a stream asks for nothing that is of it.

    Raises:
        ValueError: Naming every knob that is in the way.
    """
    if form.kind == "stream":
        wrong = [*_of_training(model, objectives, training), *_of_evaluation(model, form, evaluation)]
        if CHARACTERS in model.supports:
            wrong.append(
                "format.kind stream cuts words where a row ends, and model.characters reads whole words: choose "
                "another format.kind, or set model.characters to null"
            )
        wrong += _of_both_ways(model, training) if form.both_ways else []
        if form.reuse_length is not None and REUSE not in model.supports:
            wrong.append(
                f"format.reuse_length {form.reuse_length} is of transformers that read both sides (model.kind "
                "transformer, model.direction both): leave it out"
            )
        if evaluation.context and objectives.lm is None:
            wrong.append("evaluation.context is of models that predict next tokens (objectives.lm): set it to 0")
    else:
        own = evaluation.changed(("rows", "sequence_length", "context", "memory_length"))
        wrong = [f"evaluation.{name} is of streams: leave it out" for name in own]
        if memory := getattr(model, "memory_length", 0):
            wrong.append(f"model.memory_length {memory} is of rows that continue from step to step: set it to 0")
        wrong[-1:] = [f"{last}, or set format.kind {form.kind} to stream" for last in wrong[-1:]]
    if wrong:
        raise ValueError("; ".join(wrong))


def check_rate(form: InputFormat, schedule: Schedule) -> None:
    """Checks that a rate by the length of a step has lengths that differ.

    Raises:
        ValueError: Naming both knobs.
    """
    if schedule.by_length and form.lengths != "drawn":
        raise ValueError(
            f"schedule.by_length multiplies the rate by the length of a step, and format.lengths is {form.lengths}: "
            "set it to drawn (format.kind stream), or schedule.by_length to false"
        )


def _of_training(model: Backbone, objectives: Objectives, training: Training) -> Iterator[str]:
    lm = objectives.lm
    if lm and lm.direction != "left_to_right":
        yield (
            f"format.kind stream continues to the right, but objectives.lm.direction is {lm.direction}: set it to "
            "left_to_right, or choose another format.kind"
        )
    if lm is None and "direction both" not in model.supports:
        yield (
            "format.kind stream is read by objectives.lm from the left, or by other objectives from both sides: add "
            "objectives.lm, or set model.direction to both"
        )
    if training.batch_by == "tokens":
        yield (
            "training.batch_by tokens is of rows of several lengths, and those of format.kind stream are all full: set "
            "it to sequences"
        )


def _of_both_ways(model: Backbone, training: Training) -> Iterator[str]:
    if BOTH_WAYS not in model.supports:
        yield (
            "format.both_ways is of transformers that read both sides (model.kind transformer, model.direction both): "
            "set format.both_ways to false"
        )
    if (batch := training.batch_size) % 2:
        near = f"{batch - 1} or {batch + 1}" if batch > 1 else "2"
        yield (
            f"format.both_ways has equally many rows in each direction, and training.batch_size {batch} is odd: "
            f"set it to {near}"
        )


def _of_evaluation(model: Backbone, form: InputFormat, evaluation: Evaluation) -> Iterator[str]:
    kind, read = type(model).model_fields["kind"].default, reading(form, evaluation)
    if evaluation.memory_length is not None and "memory_length" not in type(model).model_fields:
        yield f"evaluation.memory_length is of models that count what they remember, and model.kind {kind} does not"
    if evaluation.memory_length == 0 and getattr(model, "same_length", False):
        yield (
            "with model.same_length a position attends to evaluation.memory_length positions before it, so with 0 to "
            "itself alone. Set it to 1 or more, or model.same_length to false"
        )
    if evaluation.memory_length is not None and evaluation.context:
        yield (
            "evaluation.memory_length is carried from segment to segment, and evaluation.context is read in its place: "
            "leave one of them out"
        )
    if model.longest and read.context + read.length > model.longest:
        yield (
            f"evaluation.context {read.context} and segments of {read.length} positions are longer together than "
            f"model.max_positions {model.longest}: lower evaluation.context or evaluation.sequence_length, or raise it"
        )
