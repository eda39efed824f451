"""A training step in bf16 against one in fp32, for two and for four layers of 128: their ratio on this machine.

The sides take turns. Reported are medians of processor time, and the ratio with its middle half. What
`speed.precision` decides by one product is printed below.

    python benchmarks/precision.py
"""

import time
from collections.abc import Callable

from lightning_modules import speed

speed.environment()  # before torch is imported

import numpy as np
import torch

from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS
from lightning_modules.training.module import step_loss
from lightning_modules.training.optimizers import clip

LAYERS, TURNS = (2, 4), 14
SHAPE = {
    "model.hidden_size": 128, "model.num_heads": 4, "format.sequence_length": 64, "training.batch_size": 32,
    "data.tokenizer.vocab_size": 4096,
}  # fmt: skip


def stepping(system: System, precision: str) -> Callable[[int], float]:
    """A training whose steps are timed: forward pass, loss, backward pass, clipping and optimiser."""
    module, batches = system.build(0).train(), system.data_module(0).train_dataloader()
    optimizer = module.configure_optimizers()["optimizer"]

    def step(number: int) -> float:
        (example,) = batches.step(number)
        before = time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            encoded = module.state.encode(module.backbone, example)
            loss = step_loss(module.objectives.loss(module.heads, encoded, example), {})
        optimizer.zero_grad()
        loss.backward()
        clip(module, system.training.clip_norm)
        optimizer.step()
        return time.process_time() - before

    return step


def main() -> None:
    torch.set_num_threads(1)
    print("| layers | fp32, ms | bf16, ms | ratio | middle half |\n| --: | --: | --: | --: | --: |")
    for layers in LAYERS:
        system = SYSTEMS["roberta_base"].but(**SHAPE, **{"model.num_layers": layers})
        sides = [stepping(system, precision) for precision in ("fp32", "bf16")]
        seconds = np.array([[side(turn) for side in sides] for turn in range(TURNS)])[2:]  # the first two warm up
        (full, half), ratios = 1e3 * np.median(seconds, axis=0), seconds[:, 0] / seconds[:, 1]
        low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
        print(f"| {layers} | {full:.0f} | {half:.0f} | {middle:.2f} | {low:.2f} to {high:.2f} |")
    print(f"\n`speed.precision` says {speed.precision()}.")


if __name__ == "__main__":
    main()
