"""One pretraining from start to finish."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_modules import cached, parts
from lightning_modules.batch import OF_WORDS
from lightning_modules.config import ConfigError, Problem, flat, identity
from lightning_modules.data import fingerprints_of
from lightning_modules.data.annotations import token_bytes
from lightning_modules.data.baselines.bigram import prefix
from lightning_modules.data.loader import QUESTIONS, PretrainingData
from lightning_modules.data.order.heldout import HeldOutStream
from lightning_modules.data.store import pieces
from lightning_modules.draws import of_rank
from lightning_modules.evaluation import MOST_SEQUENCES
from lightning_modules.measures import heldout_text, per_byte, translated
from lightning_modules.measures.by_sequence import BySequence, losses_by_sequence
from lightning_modules.measures.final_metrics import layer_similarity, measures, pair_measures
from lightning_modules.measures.joint import joint_losses
from lightning_modules.model import Transformer
from lightning_modules.model.settings import only
from lightning_modules.model.weights import chosen_layers
from lightning_modules.probing.measure import probe, questions, simple_methods
from lightning_modules.speed import denormals_as_zero
from lightning_modules.system import System
from lightning_modules.tasks.scores.kept import pack
from lightning_modules.training import ranks
from lightning_modules.training.callbacks import CHECKPOINT, Fitted, Interrupted, Progress, Recorder
from lightning_modules.training.checkpoint import resumable
from lightning_modules.training.execution import ALONE, Execution, compiled, recompute_layers
from lightning_modules.training.module import Pretrain
from lightning_modules.training.trainer import executed, logger, trainer
from lightning_modules.training.weights import (
    filled,
    keep_weights,
    load_into,
    load_weights,
    remapped,
    round_weights,
    stacked,
    taken_over,
)


def fit(
    system: System,
    seed: int,
    folder: Path,
    *,
    start: Path | None = None,
    teacher: Path | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    execution: Execution = ALONE,
    run_id: str = "",
) -> Fitted:
    """Trains a system with a seed, resuming from the checkpoint in ``folder`` if there is one.

    Writes the weights to ``folder``. Of several processes that share it (`ranks.join`) each calls it; rank 0 measures.

    Args:
        seed: Determines initialisation, dropout, data order and corruption.
        folder: Folder of checkpoint and weights.
        start: Weights of the run that this one starts from (`System.ancestor`): of a shallower one, which are stacked,
            or of one that is continued.
        teacher: Weights of the teacher of a distillation.
        on_progress: Called at least about 64 times.
        stop: Called after every step; True writes a checkpoint and raises `Interrupted`.
        execution: How it is executed; there must be as many processes as it has ranks.
        run_id: Id of the run, which its checkpoints name: one of another run is not resumed. By default a hash of
            system, seed, text and ``start``.

    Raises:
        ConfigError: When the system has a parent and its weights, ``start`` or ``teacher``, are missing or do not fit;
            when it cannot be executed like this.
        Diverged: When the loss is no longer finite.
        Interrupted: When ``stop`` returns True.
    """
    checkpoint, module, data = folder / CHECKPOINT, system.build(seed), system.data_module(seed)
    _begin(module, system, start, teacher, execution)
    if execution.compile_layers:
        compiled(module)
    parents = [start and cached.digest(start), *([cached.digest(teacher)] if teacher else [])]
    run_id = run_id or identity([system.essence(), seed, fingerprints_of(system.corpora), *parents])
    training, evaluation = system.training, system.evaluation
    rows, every = training.batch_size // ranks.size(), -(-training.steps // evaluation.points)
    plan = {"steps": training.last_step, "every": every, "tokens": system.tokens, "measured": "heldout."}
    recorder = Recorder(checkpoint, on_progress, stop, execution.checkpoint_seconds, **plan)
    lightning = trainer(
        recorder,
        folder,
        training.precision,
        execution,
        run_id,
        micro_batches=rows // min(training.micro_batch_size or rows, rows),
        logger=logger(execution, run_id, {"seed": seed, **flat(system)}),
        callbacks=[translated.AtPoints(data, system)] if evaluation.resolved().translate_at == "points" else [],
    )
    torch.manual_seed(of_rank(system.data_seed(seed), ranks.rank()))  # dropout
    with denormals_as_zero():
        lightning.fit(module, data, ckpt_path=resumable(checkpoint, module, execution, run_id))
    if not recorder.curve["step"] or recorder.curve["step"][-1] < training.last_step:
        lightning.validate(module, data, verbose=False)
    if evaluation.probes:
        lightning.save_checkpoint(checkpoint, weights_only=False)  # an end during the probes costs no training
    module = ranks.whole(module, lambda: system.build(seed))
    if ranks.rank():
        return Fitted()
    fitted = _fitted(system, data, recorder)
    fitted.execution = executed(data.provenance, module)
    if named := training.start_parts:
        fitted.execution["start"] = parts.listed(named, system.model, module.state_dict())
    module.to(lightning.strategy.root_device)  # Lightning moves it to the CPU after training
    if training.kept_as == "bf16":
        round_weights(module)  # behind the last checkpoint, so that what is resumed is rounded once
    _measure(fitted, module, data, system)
    if evaluation.translations:
        _translate(fitted, module, data, system)
    if evaluation.probes:
        _probe(fitted, module, system, seed, stop)
    keep_weights(module, folder, training.kept_as)
    return fitted


def prepare(system: System, seed: int) -> None:
    """Makes all that `fit` reads from the cache, so that it needs no text: what is trained on, measured and counted.

    Raises:
        ConfigError: When a text is missing.
    """
    data, evaluation, targets = system.data_module(seed), system.evaluation, system.heldout_objective.targets
    data.prepare_data()
    data.setup("fit")
    if system.training.vocabulary == "remapped" and (ancestor := system.ancestor()) is not None:
        pieces(ancestor.data)
    _ = data.baselines(targets), data.baselines(targets, data.some_heldout(evaluation.sequences_at_end))
    if evaluation.words:
        token_bytes(data.data, "heldout", data.heldout.sequences.store)
        data.baselines(("mlm",), data.whole_words(evaluation.words).examples)
    if evaluation.pairs:
        data.pair_baselines(evaluation.pairs)
        for negatives in QUESTIONS.values():
            data.heldout_pairs(negatives, evaluation.pairs)
    if evaluation.neighbours:
        data.some_heldout(evaluation.neighbours)
    if evaluation.translations:
        translated.prepare(data, system)
    if evaluation.translated_pairs:
        data.heldout_translations(evaluation.translated_pairs, system.collate_translations())
    for question in questions(system):
        simple_methods(question)


def _begin(module: Pretrain, system: System, start: Path | None, teacher: Path | None, execution: Execution) -> None:
    wrong = list(execution.problems(system.model, system.training))
    if execution.ranks != ranks.size():
        text = f"{execution.ranks} devices need the same number of processes that share the training, and there are"
        wrong.append(Problem("devices", f"{text} {ranks.size()}: let `ablations run` start them"))
    if wrong:
        raise ConfigError(wrong)
    if (described := system.parents().get("teacher")) is not None:
        if teacher is None:
            text = "needs the weights of a finished pretraining: pass them as `teacher`"
            raise ConfigError([Problem("objectives.distillation.teacher", text)])
        trained = described.system.build(0)
        load_into(trained, teacher)
        module.distil_from(trained)
    if execution.activation_checkpointing:
        recompute_layers(module)
    if (ancestor := system.ancestor()) is not None:
        module.load_state_dict(_initial(system, ancestor, start, module))


def _initial(system: System, ancestor: System, start: Path | None, module: Pretrain) -> dict[str, Tensor]:
    """The weights of a new module at step 0, from those of its ancestor."""
    knob = "start" if system.training.is_continued else "warm_start"
    if start is None:
        raise ConfigError([f"training.{knob} needs the weights of the run that it starts from: pass them as `start`"])
    weights, fresh = load_weights(start), module.state_dict()
    if system.training.vocabulary == "remapped":
        before, after = (pieces(one.data) for one in (ancestor, system))
        weights = remapped(weights, ancestor.rows_of_words(), before, after)
    if system.training.is_continued:
        if (named := system.training.start_parts) is not None:
            models = system.model, ancestor.model
            return filled(fresh, weights, parts.sources(named, models, (fresh, weights)))
        if chosen := system.training.start_layers:
            weights = chosen_layers(weights, chosen, only(ancestor.model, Transformer, "training.start_layers"), fresh)
        return taken_over(weights, fresh)
    return stacked(weights, ancestor.model, system.model, fresh)


def _measure(fitted: Fitted, module: Pretrain, data: PretrainingData, system: System) -> None:
    """Adds what is measured on held-out text at the end only."""
    evaluation, bf16, found = system.evaluation, system.training.precision == "bf16", fitted.metrics
    heldout, targets = data.heldout, system.heldout_objective.targets
    if evaluation.sequences_at_end != evaluation.sequences:
        heldout = data.some_heldout(evaluation.sequences_at_end)
    if heldout is not data.heldout or system.training.kept_as != "fp32":  # else the end of the curve says it
        found |= _named(measures(module, heldout, bf16))
    found |= _named(data.baselines(targets, heldout))
    if targets[0].endswith(OF_WORDS):
        losses = [float(found[f"heldout.{target}_loss"]) for target in targets]
        found["heldout.word_perplexity"] = float(np.exp(losses).mean())
    elif counted := heldout_text.targets(system):  # whether no held-out loss is better than that of the bigram baseline
        kinds = [f"heldout.{prefix(target)}" for target in counted]
        found["heldout.plateau"] = all(found[f"{kind}loss"] > found[f"{kind}bigram_loss"] for kind in kinds)
    fitted.layers = layer_similarity(module, heldout, bf16)
    few = len(heldout.chosen) <= MOST_SEQUENCES
    if few or isinstance(heldout, HeldOutStream):
        clock = time.process_time if module.device.type == "cpu" else time.monotonic  # other runs there do not count
        started = clock()
        by_sequence = losses_by_sequence(module, heldout, bf16)
        seconds = clock() - started  # sums on the host have waited for the device
        if few:
            text = heldout_text.named(heldout_text.described(system, fingerprints_of(system.data.named)))
            documents = pack(by_sequence.documents)
            fitted.sums = {"text": text, "documents": documents, "losses": _packed(by_sequence)}
        if isinstance(heldout, HeldOutStream):
            fitted.cost["heldout_tokens_per_second"] = heldout.reading.rows * heldout.width / seconds
    if evaluation.words:
        losses = {name.removeprefix("heldout."): float(value) for name, value in found.items()}
        found |= _named(per_byte.of_pieces(data, heldout, targets, losses))
        found |= _named(per_byte.of_words(module, data, evaluation.words, bf16))
    if count := evaluation.neighbours:
        pairs = joint_losses(module, lambda hidden: data.some_heldout(count, system.collate_neighbours(hidden)), bf16)
        found |= _named(pairs.means())
        if few:
            own = {"documents": pack(pairs.documents)}  # there may be more or fewer than of the other losses
            fitted.sums["losses"] |= {name: part | own for name, part in _packed(pairs).items()}
    if evaluation.pairs:
        found |= _on_pairs(module, data, system, bf16)
    if count := evaluation.translated_pairs:
        both = data.heldout_translations(count, system.collate_translations())
        own, other = (measures(module, examples, bf16)["loss"] for examples in both)
        found |= _named({"translated_loss": own, "mistranslated_loss": other, "translation_gain": other - own})


def _named(measured: Mapping[str, float]) -> dict[str, float]:
    return {f"heldout.{name}": value for name, value in measured.items()}


def _probe(fitted: Fitted, module: Pretrain, system: System, seed: int, stop: Callable[[], bool]) -> None:
    """Adds the scores of the probes, and what they took."""

    def between() -> None:
        if stop():
            raise Interrupted

    started = time.monotonic()
    probed = probe(system, seed, module.backbone, module.device, between)
    fitted.metrics |= probed.metrics
    fitted.examples |= probed.examples
    fitted.cost["probes_seconds"] = time.monotonic() - started


def _translate(fitted: Fitted, module: Pretrain, data: PretrainingData, system: System) -> None:
    """Adds the scores of translations, and what they took."""
    started = time.monotonic()
    found = translated.translated(module, data, system)
    fitted.metrics |= _named(found.metrics)
    if system.evaluation.translate_at == "points":
        translated.at_end(fitted.curve, fitted.metrics)
    fitted.examples |= {f"heldout.{name}": pack(each.astype(np.float32)) for name, each in found.by_sentence.items()}
    counts = {name: pack(counted.T.ravel()) for name, counted in found.kept["counts"].items()}
    fitted.execution["translations"] = found.kept["signatures"]
    fitted.sums["translations"] = found.kept | {"counts": counts}
    fitted.cost["translations_seconds"] = time.monotonic() - started


def _packed(found: BySequence) -> dict[str, Any]:
    return {
        name: {"nats": pack(_compact(nats)), "counts": pack(found.counts[name])} for name, nats in found.nats.items()
    }


def _compact(nats: np.ndarray) -> np.ndarray:
    """Sums of nats in half precision, unless a sequence is so long that its sum is beyond that."""
    is_small = not len(nats) or nats.max() < np.finfo(np.float16).max
    return nats.astype(np.float16 if is_small else np.float32)


def _on_pairs(module: Pretrain, data: PretrainingData, system: System, bf16: bool) -> dict[str, float]:
    """Accuracies and AUCs of the sentence head on pairs of both kinds, and the token measures on ordered pairs.

    The head is evaluated on its own objective and on the other one: label 1 means "does not follow" in both (Lan et
    al. 2020, Table 5, which does not describe the procedure).
    """
    count = system.evaluation.pairs
    metrics = _named(data.pair_baselines(count))
    for name, negatives in QUESTIONS.items():
        examples = data.heldout_pairs(negatives, count, system.collate_pairs())
        metrics[f"heldout.{name}_pairs"] = float(len(examples.chosen))
        measured = pair_measures(module, examples, bf16)
        for share in ("accuracy", "auc"):
            if (value := measured.pop(f"sentence_{share}", None)) is not None:
                metrics[f"heldout.{name}_{share}"] = value
        if name == "sop":
            metrics |= {f"heldout.pairs_{measure}": value for measure, value in measured.items()}
    return metrics


def _fitted(system: System, data: PretrainingData, recorder: Recorder) -> Fitted:
    again = system.objectives.presentations  # of each sequence in a step
    curve, steps = recorder.curve, system.training.last_step
    metrics: dict[str, float | bool] = {n: v[-1] for n, v in curve.items() if n not in ("step", "tokens")}
    tokens, seconds, batches = system.tokens(), recorder.elapsed(), data.train_dataloader()
    cost = {
        "seconds": seconds,
        "cpu_seconds": recorder.processed(),
        "tokens": float(tokens),
        "real_tokens": float(batches.real_tokens(steps) * again),
        **{f"tokens.{name}": float(n * again) for name, n in batches.tokens_by_language(steps).items()},
        "flops": system.flops({positions: rows * again for positions, rows in batches.shown(steps).items()}),
        "tokens_per_second": tokens / seconds,
        "parameters": float(system.parameters()),
    }
    return Fitted(metrics=metrics, curve=curve, cost=cost, devices=recorder.devices)
