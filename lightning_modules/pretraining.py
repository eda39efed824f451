"""One pretraining, start to finish."""

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file

from lightning_modules.config import ConfigError
from lightning_modules.data.baselines.bigram import prefix
from lightning_modules.data.loader import PretrainingData
from lightning_modules.measures.final_metrics import layer_similarity, measures
from lightning_modules.system import System
from lightning_modules.training.pretrain import Pretrain, stacked
from lightning_modules.training.recorder import CHECKPOINT, Course, Fitted, Progress, Recorder, keep_weights, trainer


def _course(system: System) -> Course:
    training = system.training
    return Course(
        steps=training.steps,
        every=-(-training.steps // system.evaluation.points),
        tokens=lambda steps: steps * system.tokens_per_step(),
        measured="heldout.",
        precision=training.precision,
        micro_batches=training.batch_size // (training.micro_batch_size or training.batch_size),
    )


def fit(
    system: System,
    seed: int,
    folder: Path,
    *,
    start: Path | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = 60.0,
) -> Fitted:
    """Trains a system from a seed, going on from ``folder``'s checkpoint where there is one.

    Leaves the weights in ``folder`` as safetensors.

    Args:
        system: What to train.
        seed: Initialisation, dropout, data order and corruption all follow from it.
        folder: Where checkpoint and weights are kept.
        start: Weights of a shallower run that this one is stacked from.
        on_progress: Called some 64 times or more.
        stop: Asked after every step; True writes a checkpoint and raises.
        checkpoint_seconds: Time between checkpoints.

    Raises:
        ConfigError: When the system starts from a shallower one and ``start`` is missing.
        Diverged: When the loss is no longer finite.
        Interrupted: When ``stop`` said so.
    """
    checkpoint = folder / CHECKPOINT
    recorder = Recorder(_course(system), checkpoint, on_progress, stop, checkpoint_seconds)
    module, data = system.build(seed), system.data_module(seed)
    if (shallower := system.shallower()) is not None:
        if start is None:
            raise ConfigError(["training.warm_start needs the weights of the shallower run, and none are given"])
        module.load_state_dict(stacked(load_file(start), shallower.model, system.model, module.state_dict()))
    run = trainer(recorder, folder)
    torch.manual_seed(seed)  # dropout
    run.fit(module, data, ckpt_path=checkpoint if checkpoint.exists() else None)
    if not recorder.curve["step"] or recorder.curve["step"][-1] < system.training.steps:
        run.validate(module, data, verbose=False)
    fitted = _fitted(system, recorder, recorder.elapsed(), data.baselines(system.heldout_objective.targets))
    module.to(run.strategy.root_device)  # Lightning has brought it home
    bf16 = system.training.precision == "bf16"
    fitted.layers = layer_similarity(module, data.heldout, bf16)
    if system.evaluation.pairs:
        fitted.metrics |= _on_pairs(module, data, system, bf16)
    keep_weights(module, folder)
    return fitted


def _on_pairs(module: Pretrain, data: PretrainingData, system: System, bf16: bool) -> dict[str, float]:
    """Accuracies of the one sentence head on pairs of both constructions, and the measures of words on ordered text.

    The head is asked the question it was trained on and the other one alike: label 1 is "does not follow" in both
    (Lan et al. 2020, Table 5, which does not say how it asked).
    """
    count = system.evaluation.pairs
    found = {f"heldout.{name}": value for name, value in data.pair_baselines(count).items()}
    for name, negatives in (("nsp", "random"), ("sop", "swapped")):
        examples = data.heldout_pairs(negatives, count, system.prepare_pairs())
        seen = measures(module, examples, bf16)
        if "sentence_accuracy" in seen:
            found[f"heldout.{name}_accuracy"] = seen["sentence_accuracy"]
        found |= {f"heldout.pairs_{m}": seen[m] for m in seen if name == "sop" and m != "sentence_accuracy"}
    return found


def _fitted(system: System, recorder: Recorder, seconds: float, baselines: dict[str, float]) -> Fitted:
    curve, steps = recorder.curve, system.training.steps
    metrics: dict[str, float | bool] = {n: v[-1] for n, v in curve.items() if n not in ("step", "tokens")}
    metrics |= {f"heldout.{name}": value for name, value in baselines.items()}
    kinds = [prefix(target) for target in system.heldout_objective.targets]
    metrics["heldout.plateau"] = all(
        metrics[f"heldout.{kind}loss"] > metrics[f"heldout.{kind}bigram_loss"] for kind in kinds
    )
    tokens = steps * system.tokens_per_step()
    cost = {
        "seconds": seconds,
        "tokens": float(tokens),
        "flops": steps * system.flops_per_step(),
        "tokens_per_second": tokens / seconds,
        "parameters": float(system.parameters()),
    }
    return Fitted(metrics=metrics, curve=curve, cost=cost)
