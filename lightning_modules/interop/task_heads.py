"""Heads of downstream tasks between our fine-tunings and the classes of ``transformers``."""

from dataclasses import replace
from pathlib import Path

from lightning_modules.finetuning.run import FinetuningRun, encoder_of
from lightning_modules.interop.checkpoint import Checkpoint, TaskHead
from lightning_modules.interop.families import TASK, Family
from lightning_modules.system import System
from lightning_modules.tasks import FineTuning, task_named
from lightning_modules.tasks.shapes.choice import Choice
from lightning_modules.tasks.shapes.shape import Head, Shape
from lightning_modules.tasks.shapes.span import Spans
from lightning_modules.tasks.shapes.tagging import Tagging, TagHead
from lightning_modules.tasks.shapes.texts import Texts
from lightning_modules.training.weights import load_weights


def head_of(run: FinetuningRun, family: Family) -> TaskHead | str:
    """The head of a fine-tuning in the form of a family, or the reason why ``transformers`` has no class for it."""
    shape, settings = task_named(run.task).shape, run.reading
    if isinstance(shape, Tagging):
        return TaskHead("tokens", shape.labels)
    if isinstance(shape, Spans):
        trait = "unanswerable" * shape.unanswerable
        return "finetuning.span_beam" if settings.span_beam else TaskHead("span", (), trait)
    if not isinstance(shape, Texts | Choice):
        return f"the task {run.task}"
    kind = "sequence" if isinstance(shape, Texts) else "choice"
    reader = "last" if family.objective == "plm" else "first"
    refused = {
        f"its {kind} head of {family.name}": kind in family.tasks,
        f"finetuning.reader {settings.reader}": settings.reader == reader,
        "finetuning.pooler false": settings.pooler,
        "finetuning.hidden_layer": settings.hidden_layer is None,
        "finetuning.both_orders": not (shape.symmetric and settings.both_orders),
    }
    lacking = next((what for what, fits in refused.items() if not fits), None)
    return lacking or (
        TaskHead(kind, shape.labels, "pair" * shape.pair) if isinstance(shape, Texts) else TaskHead(kind)
    )


def tuned(checkpoint: Checkpoint, run: FinetuningRun, weights: Path) -> Checkpoint:
    """A checkpoint with the weights that `finetune` wrote, its head too where ``transformers`` has a class for it."""
    head, system = head_of(run, checkpoint.family), run.settings.cut(run.system)
    if isinstance(head, TaskHead):
        notes = tuple(note for note in checkpoint.notes if "masked-LM head" not in note)  # which is not written
        return replace(checkpoint, notes=notes).trained(load_weights(weights), system, head)
    bare = checkpoint.trained(encoder_of(run, weights), system)
    return replace(bare, notes=(*bare.notes, f"the head is left out, because transformers has no class for {head}"))


def shape_of(head: TaskHead, system: System, options: int) -> tuple[Shape, FineTuning]:
    """What a head answers, and the settings that its examples are read by; ``options`` of a question to choose from."""
    last, longest = system.objectives.plm is not None, system.model.longest or 512
    settings = FineTuning().but(reader="last" if last else "first", max_length=min(512, longest))
    shapes = {
        "sequence": lambda: Texts(head.labels, head.trait == "pair"),
        "tokens": lambda: Tagging(()),
        "span": lambda: Spans(head.trait == "unanswerable"),
        "choice": lambda: Choice(options),
    }
    return shapes[head.kind](), settings.but(layout="cls_last" if last else "cls_sep")


def read_head(checkpoint: Checkpoint, options: int) -> Head:
    """The head of a checkpoint in evaluation mode; ``options`` as in `shape_of`."""
    head, width = checkpoint.head, checkpoint.system.model.width
    assert head is not None, "the caller has looked"
    shape, settings = shape_of(head, checkpoint.system, options)
    is_tagger = head.kind == "tokens"  # whose tags have an order of their own in a folder of others
    module = TagHead(width, len(head.labels), 0.0) if is_tagger else shape.head(width, settings)
    stem = f"{TASK}.{head.kind}."
    own = {name.removeprefix(stem): tensor for name, tensor in checkpoint.weights.items() if name.startswith(stem)}
    module.load_state_dict({name: tensor for name, tensor in own.items() if name in module.state_dict()})
    return module.eval()
