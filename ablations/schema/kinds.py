"""The kinds of runs, in one table: what each is called, made from, made by, and known again by.

Everything that depends on the kind of a run is read here; a new kind is an entry of `KINDS`.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from lightning_modules import checkpoints
from lightning_modules.data import open_annotated, open_store
from lightning_modules.data.baselines.bigram import prefix
from lightning_modules.data.store import tokenizer_file
from lightning_modules.parents import Role
from lightning_modules.system import System
from lightning_modules.tasks import TASKS, FineTuning, expected_work, task_named
from lightning_modules.tasks import fingerprint as task_fingerprint
from lightning_modules.tasks.distillation import TaskDistillation
from lightning_modules.tasks.pins import checked
from lightning_modules.tasks.settings import OF_SOME_SHAPES
from lightning_modules.training.execution import ALONE, Execution
from lightning_modules.zero_shot.settings import Measurement
from lightning_modules.zero_shot.table import zero_shot_named

if TYPE_CHECKING:
    from lightning_modules.data.text.encode import Encoder
    from lightning_modules.training.callbacks import Fitted

KindName = Literal["pretrain", "finetune", "measure", "checkpoint"]
Work = tuple[int, int, float]  # optimiser steps, positions, FLOPs


class Made(Protocol):
    """The parts of a run that its making needs; as in `Run`."""

    @cached_property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def system(self) -> System:
        """The system that is pretrained, or was before."""
        ...

    @property
    def seed(self) -> int:
        """Its seed."""
        ...

    @property
    def task(self) -> str:
        """The task; empty for pretrainings."""
        ...

    @property
    def finetuning(self) -> FineTuning | None:
        """The settings of a fine-tuning."""
        ...

    @property
    def measuring(self) -> Measurement | None:
        """The settings of a measurement."""
        ...


@dataclass(frozen=True)
class Watch:
    """Where a run is made and who watches.

    Attributes:
        folder: Folder of checkpoint and weights.
        weights: The weights of each parent, by its role.
        on_progress: Called as the run goes on.
        stop: Called again and again; True ends the run with a checkpoint.
        execution: How pretrainings are executed.
        nodes: The folder in which further nodes are called to trainings; None where there are none.
        weights_alone: Whether the run has a record, and is made again for its weights: probes of them are left out.
    """

    folder: Path
    weights: Mapping[Role, Path]
    on_progress: Callable[[Any], None]
    stop: Callable[[], bool]
    execution: Execution = ALONE
    nodes: Path | None = None
    weights_alone: bool = False


@dataclass(frozen=True)
class Kind:
    """One kind of run.

    Attributes:
        noun: What messages call it.
        settings: The field of `Run` with its settings; empty where the system says all.
        numerics: The packages whose numerics its results depend on, see `lightning_modules.NUMERICS`.
        make: Makes a run.
        proof: Metrics of a run; the first that a record has must come out again where the run is made a second time.
        work: The expected work of a run.
        prepare: Makes all that the making of a run reads from the cache, so that it needs neither texts nor data sets.
        fingerprint: The fingerprint of the data of a task, and of how it is presented under a kind of tokenizer. It
            opens no data that are pinned.
        check: Opens the data of a task and compares them with their pins.
        settled: The settings of a run as they act, by field; empty where nothing changes.
        texts: Whether a run reads the texts of its corpora; if not, it reads only their tokenizer.
    """

    noun: str
    settings: str
    numerics: tuple[str, ...]
    make: Callable[[Made, Watch], "Fitted"]
    proof: Callable[[Made], tuple[str, ...]]
    work: Callable[[Made], Work]
    prepare: Callable[[Made], None]
    fingerprint: Callable[[str, str], str] = lambda task, kind: ""
    check: Callable[[str], None] = lambda task: None
    settled: Callable[[Made], dict[str, Any]] = lambda run: {}
    texts: Callable[[Made], bool] = lambda run: True

    def open(self, run: Made) -> None:
        """Opens what a run reads of its corpora, made first where the cache lacks it, or its released checkpoint.

        Raises:
            ConfigError: When a text or the checkpoint is missing.
        """
        data = run.system.data
        if run.system.checkpoint:
            checkpoints.checked(run.system.checkpoint)
        elif self.texts(run):
            open_annotated(data, "train", run.system.objectives.reads)
            open_store(data, "heldout")
        else:
            tokenizer_file(data)


def _pretrained(run: Made, watch: Watch) -> "Fitted":
    from lightning_modules.pretraining import fit

    given: dict[str, Any] = {
        "run_id": run.id,
        **watch.weights,
        "on_progress": watch.on_progress,
        "stop": watch.stop,
        "execution": watch.execution,
    }
    system = run.system.but(**{"evaluation.probes": []}) if watch.weights_alone else run.system
    return fit(system, run.seed, watch.folder, **given)


def _finetuned(run: Made, watch: Watch) -> "Fitted":
    from lightning_modules.finetuning.run import FinetuningRun, finetune

    assert run.finetuning is not None
    start, mask, teacher = (watch.weights.get(role) for role in ("start", "mask", "teacher"))
    own = own_encoder_of(run.system)
    parts = FinetuningRun(run.system, run.task, run.finetuning, run.seed, start, own, mask=mask, teacher=teacher)
    given: dict[str, Any] = {"on_progress": watch.on_progress, "stop": watch.stop, "execution": watch.execution}
    return finetune(parts, watch.folder, **given, run_id=run.id)


def own_encoder_of(system: System) -> "Encoder | None":
    """The tokenizer of a released checkpoint; None where a system's own text makes it."""
    from lightning_modules.interop import own_encoder

    if not system.checkpoint:
        return None
    family = checkpoints.released(system.checkpoint).family
    return own_encoder(checkpoints.checked(system.checkpoint), family, system.data.tokenizer.vocab_size)


def _read(run: Made, watch: Watch) -> "Fitted":
    """Keeps the weights of a released checkpoint as `fit` keeps those of a training."""
    from lightning_modules import interop
    from lightning_modules.training.callbacks import Fitted
    from lightning_modules.training.weights import keep_weights

    started = time.monotonic()
    released = interop.read(checkpoints.checked(run.system.checkpoint))
    keep_weights(released.build(), watch.folder)
    size = sum(weight.numel() for weight in released.weights.values())
    square = sum(float(weight.double().square().sum()) for weight in released.weights.values()) / size
    cost = {"seconds": time.monotonic() - started, "tokens": 0.0, "flops": 0.0, "parameters": float(size)}
    return Fitted({_SQUARE: square}, cost=cost)


def _measured(run: Made, watch: Watch) -> "Fitted":
    from lightning_modules.zero_shot.measure import measured

    assert run.measuring is not None
    start = watch.weights["start"]
    return measured(run.system, run.task, run.measuring, start, on_progress=watch.on_progress, stop=watch.stop)


def _prepare_pretraining(run: Made) -> None:
    from lightning_modules.pretraining import prepare

    prepare(run.system, run.seed)


def _prepare_finetuning(run: Made) -> None:
    from lightning_modules.finetuning.run import FinetuningRun

    assert run.finetuning is not None
    FinetuningRun(run.system, run.task, run.finetuning, run.seed, None, own_encoder_of(run.system)).prepare()


def _prepare_measuring(run: Made) -> None:
    from lightning_modules.zero_shot.measure import prepare

    assert run.measuring is not None
    prepare(run.system, run.task, run.measuring)


def _heldout(run: Made) -> tuple[str, ...]:
    return tuple(f"heldout.{prefix(target)}loss" for target in run.system.heldout_objective.targets)


def _pretraining_work(run: Made) -> Work:
    return run.system.training.last_step, run.system.tokens(), run.system.flops()


def _finetuning_work(run: Made) -> Work:
    assert run.finetuning is not None
    return expected_work(run.system, run.task, run.finetuning)


def _has_word_vectors(run: Made) -> bool:
    assert run.finetuning is not None
    return run.finetuning.vectors is not None


def _measuring_work(run: Made) -> Work:
    assert run.measuring is not None
    tokens, flops = zero_shot_named(run.task).work(run.system, run.measuring)
    return 0, tokens, flops


def _check_task(task: str) -> None:
    for split in ("train", "dev"):
        checked(task, split)


def _settled_finetuning(run: Made) -> dict[str, FineTuning | None]:
    """With settings for some shapes of tasks only where they act, and without those that say a default.

    These are a reader that would be chosen anyway, a transfer of all layers, and the name of the task itself.
    """
    tuning, model = run.finetuning, run.system.model
    if tuning is not None and tuning.layers_transferred == tuning.cut(run.system).model.depth:
        tuning = tuning.model_copy(update={"layers_transferred": None})
    if tuning is not None and tuning.masking is not None and tuning.masking.mask_from == run.task:
        tuning = tuning.but(**{"weight_pruning.mask_from": "task"})
    if tuning is not None and tuning.distillation is not None:
        tuning = _settled_teacher(run.task, tuning, tuning.distillation)
    if tuning is None or all(getattr(tuning, name) == neutral for name, neutral in OF_SOME_SHAPES.items()):
        return {"finetuning": tuning}  # records of tasks that this version lacks stay readable
    settled = task_named(run.task).shape.settled(tuning)
    return {"finetuning": settled.read_by_default(model.direction)}


def _settled_teacher(task: str, tuning: FineTuning, distillation: TaskDistillation) -> FineTuning:
    """Without the description of a teacher, whose id is among the parents, and a temperature that has no effect."""
    own: dict[str, Any] = {"teacher": {}}
    if task in TASKS and TASKS[task].shape.numbers:
        own["temperature"] = TaskDistillation().temperature
    return tuning.model_copy(update={"distillation": distillation.model_copy(update=own)})


def _settled_measurement(run: Made) -> dict[str, Measurement]:
    """With settings only where they act."""
    if run.measuring is None or run.measuring == Measurement():
        return {}
    return {"measuring": zero_shot_named(run.task).settled(run.measuring)}


_PRETRAINING = ("data", "pretrain", "evaluate")
_SQUARE = "checkpoint.mean_square"  # of its weights
KINDS: dict[KindName, Kind] = {
    "pretrain": Kind("pretraining", "", _PRETRAINING, _pretrained, _heldout, _pretraining_work, _prepare_pretraining),
    "finetune": Kind(
        "fine-tuning",
        "finetuning",
        (*_PRETRAINING, "finetune"),
        _finetuned,
        lambda run: (f"{run.task}.dev_loss",),
        _finetuning_work,
        _prepare_finetuning,
        lambda task, kind: task_fingerprint(task),
        _check_task,
        _settled_finetuning,
        _has_word_vectors,
    ),
    "measure": Kind(
        "measurement",
        "measuring",
        (*_PRETRAINING, "measure"),
        _measured,
        lambda run: (f"{run.task}.{zero_shot_named(run.task).main}",),
        _measuring_work,
        _prepare_measuring,
        lambda task, kind: zero_shot_named(task).fingerprint_under(kind),
        lambda task: zero_shot_named(task).check(),
        _settled_measurement,
    ),
    "checkpoint": Kind(
        "checkpoint",
        "",
        ("checkpoint",),
        _read,
        lambda run: (_SQUARE,),
        lambda run: (0, 0, 0.0),
        lambda run: KINDS["checkpoint"].open(run),
    ),
}


def numerics_of(kind: KindName, system: System) -> tuple[str, ...]:
    """The packages whose numerics a run depends on: after a released checkpoint no pretraining is behind it."""
    packages = KINDS[kind].numerics
    if not system.checkpoint:
        return packages
    return ("checkpoint", *(package for package in packages if package not in (*_PRETRAINING[1:], "checkpoint")))
