"""What a word costs in the training of ELMo: by characters or by pieces, clipped or not, on one thread of the CPU.

Two stacks of two projected layers read the same rows. Three systems take turns in one process: words by their
characters, which predict words; the same layers over a table of pieces, which predict pieces; and these without
clipping, which keep the kernel of ``torch.nn.LSTM``. All have the same sampled softmax. A row has fewer words than
pieces, so that times are per word.

Reported are medians of processor time over turns, and of their ratios with the middle half of them. Making a batch
counts, since characters are made with it. Weights are random: they cost what trained ones do.

    python benchmarks/elmo.py
    python benchmarks/elmo.py --cells 1024 --hidden 128 --turns 10
"""

import argparse
import time
from collections.abc import Callable

from lightning_modules.speed import environment

environment()  # before torch is imported

import numpy as np
import torch
from memory_and_streams import stepping  # of this folder

from lightning_modules.speed import denormals_as_zero
from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS


def systems(arguments: argparse.Namespace) -> dict[str, System]:
    """The three systems, of one shape and on one text."""
    elmo = SYSTEMS["elmo"].but(
        **{
            "model.hidden_size": arguments.hidden, "model.embedding_size": arguments.hidden,
            "model.cell_size": arguments.cells, "model.characters.filters": arguments.filters,
            "model.characters.highways": 1, "model.dropout": 0.0, "model.embedding_dropout": 0.0,
            "objectives.lm.negatives": 1024, "data.corpora": ["wikipedia-mini"],
            "data.tokenizer": {"kind": "wordpiece", "vocab_size": arguments.vocab, "lowercase": False},
            "format.break_mode": "none", "format.sequence_length": arguments.length, "optimizer.algorithm": "adamw",
            "training.batch_size": arguments.batch,
        }
    )  # fmt: skip
    pieces = elmo.but(**{"model.characters": None, "objectives.lm.units": "pieces"})
    plain = pieces.but(**{"model.cell_clip": 0.0, "model.projection_clip": 0.0})
    return {"words by characters": elmo, "pieces": pieces, "pieces, without clipping": plain}


def timed(system: System) -> Callable[[int], float]:
    """Steps of a training with the time in which their batch is made."""
    step, batches = stepping(system), system.data_module(0).train_dataloader()
    batches.step(0)  # what a vocabulary needs once

    def both(number: int) -> float:
        before = time.process_time()
        batches.step(number)
        return time.process_time() - before + step(number)

    return both


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"hidden": 64, "cells": 256, "length": 128, "batch": 32, "vocab": 4096, "turns": 20}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--filters", type=int, nargs="+", default=[8, 8, 8, 16, 32, 64, 128])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    every = systems(arguments)
    batches = every["words by characters"].data_module(0).train_dataloader()
    words = [int((batches.step(turn)[0].inputs.characters.words >= 0).sum()) for turn in range(arguments.turns + 2)]
    steps = [timed(system) for system in every.values()]
    with denormals_as_zero():
        seconds = np.array([[step(turn) for step in steps] for turn in range(arguments.turns + 2)])
    micro = 1e6 * (seconds / np.array(words)[:, None])[2:]  # the first two warm up
    print("| a word of | microseconds | over pieces | middle half |\n| :-- | --: | --: | --: |")
    for name, own in zip(every, micro.T, strict=True):
        low, ratio, high = np.quantile(own / micro[:, 1], (0.25, 0.5, 0.75))
        print(f"| {name} | {np.median(own):.0f} | {ratio:.2f} | {low:.2f} to {high:.2f} |")


if __name__ == "__main__":
    main()
