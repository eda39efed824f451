"""One measurement from start to finish: a pretrained language model is evaluated on a task, without training."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_modules.data import Data
from lightning_modules.data.store import tokenizer_file
from lightning_modules.data.text.encode import Encoder
from lightning_modules.generation.scoring import LanguageModelOf, check_predicts_next, of_training
from lightning_modules.system import System
from lightning_modules.tasks.scores.kept import pack
from lightning_modules.training.callbacks import Fitted, Interrupted, Progress
from lightning_modules.training.weights import load_into
from lightning_modules.zero_shot.settings import Measurement
from lightning_modules.zero_shot.table import zero_shot_named
from lightning_modules.zero_shot.task import Asking, Found, flops

WEIGHT, DOCUMENT = "weight", "document"  # keys of a record's examples next to its metrics
_MOST_WHOLE = (1 << 16) - 1  # the largest number that is packed


def opened(system: System, weights: Path | None) -> LanguageModelOf:
    """The language model of a finished pretraining, on the GPU if there is one; without weights an untrained one.

    Raises:
        ConfigError: For a model that predicts no next token; for weights that are damaged or of another model.
    """
    check_predicts_next(system, system.name or "the model")
    module = system.build(0)
    if weights is not None:
        load_into(module, weights)
    encoder = Encoder(tokenizer_file(system.data), system.data.tokenizer.kind)
    return of_training(module.to("cuda" if torch.cuda.is_available() else "cpu"), system, encoder)


def measured(
    system: System,
    task: str,
    settings: Measurement,
    weights: Path,
    *,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
) -> Fitted:
    """Evaluates the model of a finished pretraining. It is short enough to begin again after an interruption.

    Args:
        on_progress: Called as the model reads.
        stop: Called before every batch; True raises `Interrupted`.

    Returns:
        Metrics, scores by example, and the cost: forward passes as they were made, padding included.

    Raises:
        ConfigError: When data are missing, or the model predicts no next token.
        Interrupted: When ``stop`` returns True.
    """
    model = opened(system, weights)
    asked_of = zero_shot_named(task)
    expected, memory = max(1, asked_of.work(system, settings)[0]), asked_of.memory(system, settings)
    read = Reading(model, expected, on_progress, stop)
    found = asked(model, task, settings, system.data, system)
    seconds = read.seconds
    cost = {
        "seconds": seconds,
        "tokens": float(read.tokens),
        "flops": sum(n * flops(system, length, memory * goes_on) for (length, goes_on), n in read.rows.items()),
        "tokens_per_second": read.tokens / seconds,
        "parameters": float(system.parameters()),
    }
    metrics = {f"{task}.{name}": value for name, value in found.metrics.items()}
    return Fitted(metrics=metrics, examples=kept(found, task), cost=cost)


def prepare(system: System, task: str, settings: Measurement) -> None:
    """Makes all that `measured` reads from the cache, by asking an untrained model.

    Raises:
        ConfigError: When data are missing, or the model predicts no next token.
    """
    asked(opened(system, None), task, settings, system.data, system)


def asked(
    model: LanguageModelOf, task: str, settings: Measurement, data: Data | None, system: System | None = None
) -> Found:
    """The answers of a language model, wherever it comes from.

    Args:
        data: The text that it learned from, if known.
        system: The run that it is of, if it is of one.
    """
    return zero_shot_named(task).ask(Asking(model, settings, data, system))


class Reading:
    """Counts the rows that a model reads, by their length and whether they go on from others, and stops it.

    Args:
        expected: The positions that it is expected to read.
        stop: Called before each batch; True raises `Interrupted`.
    """

    def __init__(
        self, model: LanguageModelOf, expected: int, on_progress: Callable[[Progress], None], stop: Callable[[], bool]
    ) -> None:
        self.rows: Counter[tuple[int, bool]] = Counter()
        self._expected, self._on_progress, self._stop = expected, on_progress, stop
        self._started = time.monotonic()
        model.backbone.register_forward_pre_hook(self._see)

    @property
    def tokens(self) -> int:
        """Positions read so far, padding included."""
        return sum(length * rows for (length, _), rows in self.rows.items())

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._started

    def _see(self, module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        if self._stop():
            raise Interrupted
        rows, length = inputs[0].inputs.ids.shape
        self.rows[length, len(inputs) > 1] += rows
        step = min(self.tokens, self._expected)
        self._on_progress(Progress(step, self._expected, None, self.tokens / max(self.seconds, 1e-9)))


def kept(found: Found, task: str) -> dict[str, str]:
    """What a record keeps of each example, packed: scores by metric, and how often each counts, and its document."""
    packed = {
        f"{task}.{name}": pack(values if values.dtype == bool else values.astype(np.float16))
        for name, values in found.scores.items()
    }
    if found.weights is not None:
        scale = min(1.0, _MOST_WHOLE / found.weights.max())
        packed[WEIGHT] = pack(np.round(found.weights * scale).astype(np.int64))
    if found.documents is not None:
        _, number = np.unique(found.documents, return_inverse=True)
        packed[DOCUMENT] = pack(number)
    return packed
