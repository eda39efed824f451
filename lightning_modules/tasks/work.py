"""What a fine-tuning will take, estimated from pinned counts: planning opens no data."""

from ..system import System
from .pins import expected
from .settings import FineTuning

_PIECES = 1.6  # a word: 1.5 to 1.8 with a vocabulary of 4,096


def expected_work(system: System, name: str, settings: FineTuning) -> tuple[int, int, float]:
    """Optimiser steps (exactly), and about how many positions and FLOPs a fine-tuning takes.

    Args:
        system: What was pretrained.
        name: The task.
        settings: How it is fine-tuned.
    """
    train = expected(name)["train"]
    steps = settings.epochs * -(-train.examples // settings.batch_size)
    length = round(min(settings.max_length, _PIECES * train.words / train.examples + 3))
    presented = settings.epochs * train.examples
    return steps, presented * length, 3.0 * presented * system.model.flops_per_sequence(length)
