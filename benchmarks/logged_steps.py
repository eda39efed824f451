"""The share of a training step that logging its losses and rate takes, on one thread of the CPU.

Two trainings of one model go on in turn, a piece of each at a time: one logs every 50 steps to nobody, as without a
logger; the other logs nothing. Reported is the ratio of their processor times, the median over the pieces.

    python benchmarks/logged_steps.py
    python benchmarks/logged_steps.py --layers 4 --hidden 256 --every 50
"""

import argparse
import statistics
import time

from lightning_modules.speed import environment

environment()  # before torch is imported

import pytorch_lightning as pl
import torch

from lightning_modules.systems import ROBERTA_BASE


class Clock(pl.Callback):
    """The processor time of each piece of a training."""

    def __init__(self, piece: int) -> None:
        self.piece, self.began, self.seconds = piece, 0.0, []

    def on_train_batch_end(self, trainer, module, *_) -> None:
        if trainer.global_step % self.piece == 0:
            now = time.process_time()
            self.seconds += [now - self.began] if self.began else []
            self.began = now


def pieces(arguments: argparse.Namespace, every: int) -> list[float]:
    """The processor times of the pieces of a training that logs every so many steps; 0 for never."""
    system = ROBERTA_BASE.but(
        **{
            "model.num_layers": arguments.layers, "model.hidden_size": arguments.hidden, "model.num_heads": 2,
            "data.corpora": ["wikipedia-mini"], "data.tokenizer.vocab_size": 1024, "format.sequence_length": 64,
            "training.batch_size": 16, "training.steps": arguments.steps, "training.precision": "fp32",
        }
    )  # fmt: skip
    clock = Clock(arguments.piece)
    trainer = pl.Trainer(
        max_steps=arguments.steps, log_every_n_steps=every, limit_val_batches=0, callbacks=[clock], accelerator="cpu",
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(system.build(seed=0), system.data_module(seed=0))
    return clock.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("layers", 2), ("hidden", 128), ("steps", 400), ("piece", 50), ("every", 50), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[int, list[float]] = {arguments.every: [], 0: []}
    for number in range(2 * arguments.rounds):
        every = (arguments.every, 0)[(number + number // 2) % 2]  # a b b a: neither is always the later one
        found[every] += pieces(arguments, every)
    logged, silent = (statistics.median(seconds) for seconds in found.values())
    print(f"logging every {arguments.every} steps: {logged / arguments.piece * 1e3:.3f} ms a step")
    print(f"never: {silent / arguments.piece * 1e3:.3f} ms a step; ratio {logged / silent:.4f}")


if __name__ == "__main__":
    main()
