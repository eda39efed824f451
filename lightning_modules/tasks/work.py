"""The expected work of a fine-tuning, estimated from pinned counts, so that planning opens no data."""

import math

from lightning_modules.system import System
from lightning_modules.tasks import unlabelled
from lightning_modules.tasks.pins import expected
from lightning_modules.tasks.settings import FineTuning
from lightning_modules.tasks.table import task_named
from lightning_modules.tasks.validation import size

_PIECES = 1.6  # per word; 1.5 to 1.8 with a vocabulary of 4,096


def expected_work(system: System, name: str, settings: FineTuning) -> tuple[int, int, float]:
    """Optimiser steps, approximate positions and FLOPs.

    Steps are exact if an item is an example; with ``validation_share`` also only if as many examples are left to train
    on as are not scored. Of texts without labels there may be fewer, since those of the dev set are left out. A removal
    of heads has none; its positions are those that importances are computed from. A quantisation has neither.
    """
    train, shape = expected(name)["train"], task_named(name).shape
    left = train.examples - size(train.examples, settings.validation_share or 0.0)
    share = min(left, settings.train_examples or left) / train.examples
    items = shape.items(round(share * train.examples), round(share * train.words * _PIECES), settings)
    length = round(min(settings.max_length, share * _PIECES * train.words / (items * shape.rows) + 3))
    further, words = unlabelled.available(name, settings)
    if further:
        length = round((items * length + further * min(settings.max_length, _PIECES * words + 3)) / (items + further))
        items += further
    each_epoch = math.ceil(items / settings.batch_size)
    steps = settings.steps or settings.epochs * each_epoch
    passes = steps / each_epoch
    if not settings.trains:
        steps, passes = 0, 0
    if settings.quantization is None and settings.removal is not None:
        passes = settings.removal.passes(settings.cut(system).model.total_heads)
    presented = passes * items * shape.rows_of(settings)
    flops = presented * (settings.flops_per_sequence(system, length, passes) + settings.teacher_flops(system, length))
    return steps, round(presented * length), flops
