"""One fine-tuning from start to finish: a pretrained system trained on a task, recorded and resumable."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lightning_modules import NUMERICS, cached, languages
from lightning_modules.config import ConfigError, Problem, flat, identity
from lightning_modules.data import Data, fingerprints_of, open_store
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.word_vectors import Vectors, word_vectors
from lightning_modules.files import write_atomically
from lightning_modules.finetuning.features import FeatureData, FrozenFeatures
from lightning_modules.finetuning.finetune import TASK, Finetune, TaskTeacher
from lightning_modules.finetuning.head_pruning import Heads, attentions, fit_heads, importances, removals
from lightning_modules.finetuning.quantization import Quantized
from lightning_modules.finetuning.weight_pruning import Masks, at_random, by_magnitude, hold, matrices, sparsity
from lightning_modules.finetuning.windows import InWindows
from lightning_modules.model import BackboneModule, Transformer
from lightning_modules.model.embeddings import ExtendedTable
from lightning_modules.model.recurrent import BiLSTMOnTop
from lightning_modules.model.weights import chosen_layers, undrawn
from lightning_modules.objectives import Objectives
from lightning_modules.parents import SEED, Role, parts
from lightning_modules.places import cache
from lightning_modules.speed import denormals_as_zero
from lightning_modules.system import System, parameters_of
from lightning_modules.tasks import FineTuning, Task, fingerprint, fitting, task_named
from lightning_modules.tasks.loader import Batches, TaskData
from lightning_modules.tasks.measured_baselines import references
from lightning_modules.tasks.reading.layout import LAYOUTS
from lightning_modules.tasks.reading.text_vectors import READERS
from lightning_modules.tasks.settings import HeadPruning
from lightning_modules.tasks.shapes.shape import Head, Scored
from lightning_modules.tasks.shapes.texts import TextHead, TextInputs
from lightning_modules.tasks.task import Split
from lightning_modules.training.callbacks import CHECKPOINT, Fitted, Interrupted, Progress, Recorder
from lightning_modules.training.checkpoint import resumable
from lightning_modules.training.execution import ALONE, Execution, compiled
from lightning_modules.training.trainer import executed, logger, trainer
from lightning_modules.training.weights import keep_weights, load_weights

PREDICTIONS = "predictions.json"
_POINTS = 64  # of a curve, maximum
_BACKBONE = "backbone."  # prefix in the weights of `fit` and `finetune`
_HEADS, _LM_HEAD = "heads.", "heads.lm."  # the same of objectives
_PRETRAINED_POOLER, _TASK_POOLER = "heads.sentence.pair.pooler.", "head.pooler."  # prefixes of `fit` and `finetune`


@dataclass(frozen=True)
class FinetuningRun:
    """The parts of a fine-tuning.

    Attributes:
        system: The pretrained system.
        task: The name of the task.
        settings: The fine-tuning settings.
        seed: Determines the head's initialisation, dropout and the order of the examples.
        weights: The weights file of the pretraining; None starts from random weights, as a control.
        encoder: The tokenizer of a published checkpoint; None uses the one trained on the text of ``system``.
        mask: The weights file that the mask of ``weight_pruning`` is made from.
        teacher: The weights file of the fine-tuned teacher of ``distillation``.
    """

    system: System
    task: str
    settings: FineTuning
    seed: int
    weights: Path | None
    encoder: Encoder | None = None
    mask: Path | None = None
    teacher: Path | None = None

    @cached_property
    def data(self) -> TaskData:
        """The Lightning data module."""
        features, system = self.settings.features, self.system
        if features is None or features.layers == "none":
            return TaskData(
                *self._of_data,
                language_model=self.settings.language_model(system),
                characters=system.reads_characters,
                backward=system.reads_backward,
                languages=self._languages,
            )
        return FeatureData(
            *self._of_data,
            characters=system.reads_characters,
            backward=system.reads_backward,
            languages=self._languages,
            frozen=self._frozen,
        )

    @property
    def _languages(self) -> dict[Split, int] | None:
        """The numbers that the model has for the languages of both splits; None without embeddings of languages.

        A validation part is of the training examples, and in their language.
        """
        system, named = self.system, task_named(self.task).languages
        if not languages.of(system.model) or not named:
            return None
        train, dev = named[0], named[0] if self.settings.validation_share else named[1]
        known = languages.of(system.model)
        read = languages.read_as(system.model, system.evaluation, dev)
        assert read is not None  # for the model has languages
        return {"train": known.index(train), "dev": read}

    @property
    def _of_data(self) -> tuple[Data, Task, FineTuning, int, Encoder | None]:
        return self.system.data, task_named(self.task), self.settings, self.seed, self.encoder

    def prepare(self) -> None:
        """Makes all that `finetune` reads from the cache but what follows from weights, which need not exist yet.

        Raises:
            ConfigError: When the data of the task or a text are missing.
        """
        TaskData(*self._of_data).setup("fit")
        _ = self.word_vectors, self.simple_methods

    @property
    def simple_methods(self) -> dict[str, float]:
        """The scores of methods without a network."""
        return references(self.task, self.settings.validation_share, self.settings.train_examples, self.seed)

    def _frozen(self) -> FrozenFeatures:
        backbone, _ = self.networks()
        assert isinstance(backbone, FrozenFeatures)
        return backbone

    def build(self) -> Finetune:
        """The Lightning module with the pretrained backbone, and its pooler if pretraining had a sentence objective.

        From scratch with word vectors, only the embedding table starts from these; all else is random. In regression
        with ``mean_label`` the first answers are near the mean label of the training examples that are used.

        Raises:
            ConfigError: When the position table is shorter than ``max_length``, the encoder has too few layers for its
                features, the settings do not fit task and model (`tasks.fitting`), or the data or the weights of the
            teacher are missing.
        """
        settings, teacher = self.settings, self._taught_by
        settings.check_length(self.system.model.longest)
        backbone, head = self.networks()
        if self.word_vectors is not None:
            if isinstance(backbone, FrozenFeatures):
                backbone.vectors = self.word_vectors.table(self.system.data.tokenizer.vocab_size)
            else:
                self.word_vectors.place(backbone.get_parameter("embeddings.word.weight"))
        if self.reading.mean_label:
            inputs = self.data.train
            assert isinstance(head, TextHead)
            assert isinstance(inputs, TextInputs)
            head.start_at_mean(inputs.labels)
        if (masks := self.masks) is not None:
            hold(backbone, masks)
        batches = self.data.train_dataloader()
        parts = settings, len(batches), self.objectives(), batches.each_epoch
        module = Finetune(backbone, head, self.data.score, *parts)
        if teacher is not None:
            module.distil_from(TaskTeacher(*teacher))
        return module

    @property
    def parents(self) -> "dict[Role, FinetuningRun | None]":
        """The fine-tunings whose weights this one reads, by role, without theirs; None for its pretraining."""
        runs: dict[Role, FinetuningRun | None] = {}
        for role, description in self.settings.parents.items():
            described, seed = parts(description), description.get(SEED, self.seed)
            task = self.task if described.task is None else described.task
            settings = self.settings.but(**described.finetuning)
            runs[role] = FinetuningRun(self.system, task, settings, seed, None, self.encoder) if task else None
        return runs

    @property
    def lineage(self) -> "Iterator[FinetuningRun]":
        """This fine-tuning and those that it descends from."""
        yield self
        for parent in filter(None, self.parents.values()):
            yield from parent.lineage

    @property
    def _taught_by(self) -> tuple[nn.Module, Head] | None:
        """The networks of the teacher; None without one."""
        fitting.check(self.system, self.task, self.settings)
        described = self.settings.teacher_of(self.system, self.task)
        if described is None:
            return None
        if self.teacher is None:
            text = "needs the weights of a finished fine-tuning: pass them as `teacher`"
            raise ConfigError([Problem("finetuning.distillation.teacher", text)])
        return finetuned(FinetuningRun(*described, self.seed, None, self.encoder), self.teacher)

    @cached_property
    def masks(self) -> Masks | None:
        """The masks on the encoder's matrices; None without ``weight_pruning``."""
        pruning = self.settings.masking
        if pruning is None or self.settings.quantization is not None:  # whose weights have their zeros
            return None
        assert self.mask is not None, "its parents have the mask"
        weights, encoder = _below(load_weights(self.mask), _BACKBONE), self.networks()[0]
        masks = by_magnitude({name: weights[name] for name in matrices(encoder)}, pruning.sparsity)
        return at_random(masks, self.seed) if pruning.choose == "random" else masks

    @cached_property
    def word_vectors(self) -> Vectors | None:
        """Static vectors, cached or made now: of the embedding table, or to add to features. None without any.

        Raises:
            ConfigError: For the tokenizer of a published checkpoint, and for missing text.
        """
        settings, model, data = self.settings.vectors, self.system.model, self.system.data
        if settings is None:
            return None
        if self.encoder is not None:
            raise ConfigError(
                ["static word vectors are of our own tokenizer, not a checkpoint's. Leave them out of finetuning."]
            )
        return word_vectors(open_store(data, "train"), settings, model.table_width, self.seed)

    def objectives(self) -> tuple[Objectives, nn.ModuleDict] | None:
        """The language model that continues next to the task, with its head, new or from the weights. None without one.

        Its head is no layer: it comes from the weights whatever ``layers_transferred`` says.
        """
        lm = self.settings.language_model(self.system)
        if lm is None:
            return None
        objectives = Objectives(lm=lm)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            heads = objectives.heads(self.system.model.size(self.system.data.tokenizer.vocab_size))
        if self.weights is not None:
            of_lm = {name: tensor for name, tensor in load_weights(self.weights).items() if name.startswith(_LM_HEAD)}
            heads.load_state_dict(_below(of_lm, _HEADS))
        return objectives, heads

    def identity(self) -> str:
        """A hash of the parts, files by their content.

        Raises:
            ConfigError: When the examples or the text are missing.
        """
        files = [cached.digest(path) if path else None for path in (self.weights, self.encoder and self.encoder.path)]
        files += [cached.digest(path) for path in (self.mask, self.teacher) if path]
        text = {} if self.encoder else fingerprints_of(self.system.corpora)
        settings = [self.system.essence(), self.settings.essence(), self.seed]
        return identity([*settings, self.task, fingerprint(self.task), text, files])

    def networks(self) -> tuple[nn.Module, Head]:
        """The backbone and the head, new (without word vectors, which `build` adds) or from the weights.

        Raises:
            ConfigError: As in `build`, and for weights together with ``from_scratch``.
        """
        settings, system = self.settings, self.system
        fitting.check(system, self.task, settings)
        if settings.from_scratch and self.weights is not None and settings.trains:
            raise ConfigError(
                [f"finetuning.from_scratch starts from random weights, but {self.weights} is given. Use one of them."]
            )
        model = settings.cut(system).model
        if settings.encoder_dropout is not None:
            model = model.but(**dict.fromkeys(model.dropouts, settings.encoder_dropout))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            encoder = model.build(system.data.tokenizer.vocab_size)
            width, features = model.width, settings.features
            backbone: nn.Module = encoder
            if settings.bilstm_layers:
                backbone = BiLSTMOnTop(encoder, width, settings.bilstm_layers)
                width = backbone.width
            if features is not None:
                backbone = FrozenFeatures(encoder, model, features)
                width = backbone.hidden_size
            if settings.window is not None:
                backbone = InWindows(encoder, settings.window, self.reading.reader or "last")
            head = task_named(self.task).shape.head(width, self.reading)
            if new := LAYOUTS[settings.layout].new:
                table = encoder.embeddings.word
                assert isinstance(table, nn.Embedding)  # `tasks.fitting` refuses such a layout for clusters of words
                encoder.embeddings.word = ExtendedTable(table, new)
        is_tuned = not settings.trains or settings.keeps_weights
        if self.weights is not None and is_tuned:
            _load(backbone, head, load_weights(self.weights))
        elif self.weights is not None:
            weights, whole = load_weights(self.weights), system.model
            if settings.layers_kept is not None and not settings.first:  # a first task has trained these layers
                assert isinstance(whole, Transformer), "`tasks.fitting` refuses others"
                own = [f"{_BACKBONE}{name}" for name in encoder.state_dict()]
                weights = chosen_layers(weights, settings.layers_kept, whole, own)
            encoder.load_state_dict(self._transferred(_below(weights, _BACKBONE), encoder))
            pooler = self._pooler(weights)
            if pooler and not settings.bilstm_layers and (features is None or features.untouched):
                head.adopt_pooler(pooler)
        return backbone, head

    def parameters_by_part(self) -> dict[str, int]:
        """Parameters of each part of the network and of its head, counted without allocating memory."""
        with undrawn():
            backbone, head = replace(self, settings=self.settings.but(window=None)).networks()  # no window has any
        return parameters_of(backbone, nn.ModuleDict({self.task: head}))

    @property
    def reading(self) -> FineTuning:
        """The settings with the reader that acts on this task and this model."""
        settled = task_named(self.task).shape.settled(self.settings)
        return settled.reading(self.system.model.direction)

    def _transferred(self, weights: dict[str, torch.Tensor], encoder: BackboneModule) -> dict[str, torch.Tensor]:
        """The initial weights of the encoder: the pretrained ones as far as layers are transferred.

        New symbols, which a pretraining has not, start as they are drawn.
        """
        drawn, count = encoder.state_dict(), self._layers_transferred
        if count is None:
            new = f"embeddings.word.{ExtendedTable.NEW}"
            return {name: tensor for name, tensor in drawn.items() if name == new} | weights
        return drawn | {name: tensor for name, tensor in weights.items() if encoder.depth(name) <= count}

    @property
    def _layers_transferred(self) -> int | None:
        """Layers whose weights are transferred, if not all are; then what is above the last layer is not."""
        count = self.settings.layers_transferred
        return None if count == self.settings.cut(self.system).model.depth else count

    def _pooler(self, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The pooler among the weights: of a task before this one, or of pretraining, which read one position."""
        if self._layers_transferred is not None:
            return {}
        of_task, of_pretraining = (_below(weights, prefix) for prefix in (_TASK_POOLER, _PRETRAINED_POOLER))
        reader = READERS[self.reading.reader or "first"]
        return of_task or (of_pretraining if reader.at_a_position else {})


def finetuned(run: FinetuningRun, weights: Path) -> tuple[nn.Module, Head]:
    """The networks of a finished fine-tuning, in evaluation mode; quantised if it was.

    Args:
        run: The fine-tuning.
        weights: The file that `finetune` wrote.

    Raises:
        ConfigError: If the encoder was frozen, because the file does not contain its weights.
    """
    if run.settings.features is not None:
        raise ConfigError(
            ["a fine-tuning on frozen features saves no whole model. Choose one without finetuning.features."]
        )
    backbone, head = replace(run, weights=None).networks()
    _load(backbone, head, load_weights(weights))
    if run.settings.quantization is not None:
        backbone = Quantized(backbone)
    return backbone.eval(), head.eval()


def encoder_of(run: FinetuningRun, weights: Path) -> dict[str, torch.Tensor]:
    """The weights of a finished fine-tuning for another to start from: the encoder and, if it reads [CLS], the pooler.

    Args:
        run: The fine-tuning.
        weights: The file that `finetune` wrote.
    """
    stored = load_weights(weights)
    pooler = _below(stored, _TASK_POOLER) if run.reading.reader in (None, "first") else {}
    encoder = {name: tensor for name, tensor in stored.items() if name.startswith(_BACKBONE)}
    return encoder | {f"{_PRETRAINED_POOLER}{name}": tensor for name, tensor in pooler.items()}


def _load(backbone: nn.Module, head: Head, weights: dict[str, torch.Tensor]) -> None:
    """Gives both the weights of a fine-tuning, which may have fewer heads."""
    fit_heads(backbone, weights, _BACKBONE)
    backbone.load_state_dict(_below(weights, _BACKBONE))
    head.load_state_dict(_below(weights, "head."))


def _below(weights: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}


def finetune(
    run: FinetuningRun,
    folder: Path,
    *,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    execution: Execution = ALONE,
    run_id: str = "",
) -> Fitted:
    """Fine-tunes, resuming from the checkpoint in ``folder`` if there is one, and evaluates after each epoch.

    Features of a frozen encoder are computed before the clock starts; FLOPs include them, and parameters are the
    trained ones. Word vectors are also made before: their cost ``word_vectors_seconds`` is the time of the run that
    made them, and is not part of ``seconds`` and FLOPs. The metrics are those after the last step: no epoch is chosen
    by the dev set. Writes the weights to ``folder``, and the answers as ``predictions.json`` if the data set has an
    official format for them.

    With ``head_pruning`` nothing is trained: heads of the given weights are removed, and the curve has a point for each
    round of it. That takes seconds, so an interrupted removal starts again. With ``quantization`` the given weights are
    scored in int8. They are kept as they are, and are rounded again where they are loaded (`finetuned`).

    Args:
        run: The fine-tuning.
        folder: Folder of checkpoint, weights and predictions.
        on_progress: Called at least about 64 times.
        stop: Called after every step; True writes a checkpoint and raises `Interrupted`.
        execution: The time between checkpoints, who draws live curves, whether layers are compiled; of devices it has
            one.
        run_id: Id of the run, which its checkpoints name: one of another run is not resumed. By default a hash of
            the parts of ``run``: the examples, the text or the tokenizer, and the weights are in it by content.

    Raises:
        ConfigError: When the data are missing or the position table is too short; when layers that are no transformer's
            are to be compiled.
        DataMismatch: When the examples are not the pinned ones.
        Diverged: When the loss is no longer finite.
        Interrupted: When ``stop`` returns True.
    """
    if wrong := list(execution.compiling(run.system.model)):
        raise ConfigError(wrong)
    if run.settings.quantization is not None:
        return _quantized(run, folder, on_progress, stop)
    if run.settings.removal is not None:
        return _without_heads(run, run.settings.removal, folder, on_progress, stop)
    checkpoint, module, batches = folder / CHECKPOINT, run.build(), run.data.train_dataloader()
    if execution.compile_layers:
        compiled(module)
    run_id = run_id or run.identity()
    tokens = [0, *batches.shapes[:, 2].cumsum().tolist()]
    every = max(batches.each_epoch, -(-len(batches) // _POINTS))
    plan = {"steps": len(batches), "every": every, "tokens": tokens.__getitem__}
    recorder = Recorder(checkpoint, on_progress, stop, execution.checkpoint_seconds, **plan)
    torch.manual_seed(run.seed)  # dropout
    curve = logger(execution, run_id, {"seed": run.seed, "task": run.task, **flat(run.settings)})
    lightning = trainer(recorder, folder, run.settings.precision, run_id=run_id, logger=curve)
    with denormals_as_zero():
        lightning.fit(module, run.data, ckpt_path=resumable(checkpoint, module, run_id=run_id))
    if not recorder.curve["step"] or recorder.curve["step"][-1] < len(batches):
        lightning.validate(module, run.data, verbose=False)
    scored = module.scored
    assert scored is not None, "the last step is evaluated"
    cost = _cost(run, batches, module, recorder)
    points = len(recorder.curve["step"])  # a task may get or lose a metric while its run waits to be resumed
    whole = {name: values for name, values in recorder.curve.items() if len(values) == points}
    curve = {_named(name, run.task): values for name, values in whole.items()}
    metrics = {name: values[-1] for name, values in curve.items() if name not in ("step", "tokens")}
    keep_weights(module, folder)
    _keep_predictions(scored, folder)
    metrics[f"{run.task}.all_equal"] = scored.all_equal
    if isinstance(module.backbone, FrozenFeatures):
        metrics |= {f"{run.task}.{name}": share for name, share in module.backbone.shares().items()}
    metrics |= run.simple_methods
    if run.masks is not None:
        metrics[f"{run.task}.sparsity"] = sparsity(run.masks)
    made = {"devices": recorder.devices, "execution": executed(run.data.provenance, module)}
    return Fitted(metrics, curve, examples=scored.kept, cost=cost, **made)


def _without_heads(
    run: FinetuningRun,
    settings: HeadPruning,
    folder: Path,
    on_progress: Callable[[Progress], None],
    stop: Callable[[], bool],
) -> Fitted:
    """Removes heads round by round, scored before the first and after each.

    Removals of several shares pass through the same states of one model. The cache keeps the importances and scores of
    each, so those of a grid cost one curve. FLOPs are those of this removal alone.
    """
    module, data, batches = run.build(), run.data, run.data.train_dataloader()
    recorder = Recorder(folder / CHECKPOINT, on_progress, stop)
    lightning, curve = trainer(recorder, folder, run.settings.precision), dict[str, list[float]]()
    heads, backbone, head = Heads.of(module.backbone), module.backbone, module.head
    epoch = batches.shapes[: batches.each_epoch]
    total, each_pass, passes = heads.count, float(epoch[:, 2].sum()), 0
    last, device = total - settings.removed(total), lightning.strategy.root_device
    whole = replace(run, settings=run.settings.but(**{"head_pruning.share": 1.0})).identity()
    key = identity([whole, NUMERICS["finetune"], device.type])

    def once(name: str, compute: Callable[[], Any]) -> Any:
        path = cache() / "heads" / key[:24] / f"{name}-{heads.count}.json"
        if (found := cached.recalled(path, key)) is None:
            cached.remember(path, key, found := compute())
        return found

    def scored_now() -> dict[str, float]:
        return dict(lightning.validate(module, data, verbose=False)[0])

    def measure(rounds: int) -> None:
        scores = scored_now() if heads.count == last else once("scores", scored_now)
        once("scores", lambda: scores)
        point = {"step": float(rounds), "tokens": passes * each_pass, "dev.heads": float(heads.count), **scores}
        for name, value in point.items():
            curve.setdefault(name if name in ("step", "tokens") else _named(name, run.task), []).append(value)
        speed = passes * each_pass / recorder.elapsed()
        on_progress(Progress(total - heads.count, settings.removed(total), scores["dev.loss"], speed))
        if stop():
            raise Interrupted

    def importance() -> list[torch.Tensor]:
        nonlocal passes
        passes += 1
        return [torch.tensor(layer, dtype=torch.float64) for layer in once("importances", important)]

    def important() -> list[list[float]]:
        items = data.shown("train")
        shown = (items.batch(numbers).to(device) for numbers in batches.epoch(0))
        found = importances(backbone.to(device).eval(), head.to(device).eval(), shown, items.sizes.shape[1])
        return [layer.tolist() for layer in found]

    with denormals_as_zero():
        measure(0)
        for number, _ in enumerate(removals(heads, settings, run.seed, importance), 1):
            measure(number)
    scored, seconds, each = module.scored, recorder.elapsed(), run.settings.flops_per_sequence
    assert scored is not None, "every round is scored"
    keep_weights(module, folder)
    _keep_predictions(scored, folder)
    metrics: dict[str, float | bool] = {name: of[-1] for name, of in curve.items() if name not in ("step", "tokens")}
    metrics |= {f"{run.task}.all_equal": scored.all_equal} | run.simple_methods
    cost = {
        "seconds": seconds,
        "tokens": passes * each_pass,
        "flops": passes * sum(rows * each(run.system, length, 1.0) for rows, length, _ in epoch.tolist()),
        "tokens_per_second": passes * each_pass / seconds,
        "parameters": float(sum(p.numel() for p in module.parameters())),
    }
    layers = {"heads": [float(layer.num_heads) for layer in attentions(backbone)]}
    return Fitted(metrics, curve, layers, scored.kept, cost=cost, execution=executed(data.provenance, module))


def _quantized(
    run: FinetuningRun, folder: Path, on_progress: Callable[[Progress], None], stop: Callable[[], bool]
) -> Fitted:
    """Scores the given weights in int8, which computes in fp32 what it does not round."""
    module, data = run.build(), run.data
    recorder = Recorder(folder / CHECKPOINT, on_progress, stop)
    keep_weights(module, folder)
    parameters = sum(p.numel() for p in module.parameters())
    module.backbone = Quantized(module.backbone)
    with denormals_as_zero():
        (scores,) = trainer(recorder, folder, accelerator="cpu").validate(module, data, verbose=False)
    scored = module.scored
    assert scored is not None, "all dev examples are scored"
    _keep_predictions(scored, folder)
    metrics: dict[str, float | bool] = {_named(name, run.task): value for name, value in scores.items()}
    metrics |= {f"{run.task}.all_equal": scored.all_equal} | run.simple_methods
    seconds = recorder.elapsed()
    cost = {"seconds": seconds, "tokens": 0.0, "flops": 0.0, "tokens_per_second": 0.0, "parameters": float(parameters)}
    return Fitted(metrics, examples=scored.kept, cost=cost, execution=executed(data.provenance, module))


def _keep_predictions(scored: Scored, folder: Path) -> None:
    if scored.predictions is not None:
        text = json.dumps(scored.predictions, ensure_ascii=False)
        write_atomically(folder / PREDICTIONS, lambda file: file.write(text.encode()))


def _cost(run: FinetuningRun, batches: Batches, module: Finetune, recorder: Recorder) -> dict[str, float]:
    tokens, seconds = float(batches.shapes[:, 2].sum()), recorder.elapsed()
    cost = {
        "seconds": seconds,
        "cpu_seconds": recorder.processed(),
        "tokens": tokens,
        "flops": _flops(run, batches),
        "tokens_per_second": tokens / seconds,
        "parameters": float(sum(p.numel() for p in module.parameters())),
    }
    if run.word_vectors is not None:
        cost["word_vectors_seconds"] = run.word_vectors.seconds
    return cost


def _flops(run: FinetuningRun, batches: Batches) -> float:
    """FLOPs of the matrix products, padding included and those of a teacher; see `FineTuning.flops_per_sequence`."""
    system, passes, settings = run.system, len(batches) / batches.each_epoch, run.settings
    taught = {length: settings.teacher_flops(system, length) for length in set(batches.shapes[:, 1].tolist())}
    each = settings.flops_per_sequence
    return sum(rows * (each(system, length, passes) + taught[length]) for rows, length, _ in batches.shapes.tolist())


def _named(name: str, task: str) -> str:
    """The name in a record: ``dev.accuracy`` -> ``<task>.accuracy``, ``train.loss`` -> ``<task>.train_loss``.

    The loss of an objective next to the task, ``train.next``, is called ``<task>.train_next_loss``.
    """
    kind, _, rest = name.partition(".")
    if not rest:
        return name
    if kind == "train":
        return f"{task}.train_loss" if rest == TASK else f"{task}.train_{rest}_loss"
    return f"{task}.{f'{kind}_{rest}' if rest == TASK else rest}"
