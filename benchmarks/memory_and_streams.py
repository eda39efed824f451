"""What a memory and a second stream cost in training, and what a memory spares in reading, on one thread of the CPU.

* A step of Transformer-XL with a memory as long as a segment against one of the plain decoder of that shape, whose
  positions are learned.
* A step of XLNet's two streams against one of masked tokens on the same backbone with one stream (Yang et al. 2019,
  Table 6, second row), as many of them.
* A step of two and of four layers of width 128 in fp32 against one in bf16, of masked tokens.
* Reading with a memory against reading anew for each token, at attention lengths from 100 to 800: their ratio, and the
  line that fits it (Dai et al. 2019, Table 9). The measurement is that of grids, `reading_speed`.

Both sides of a ratio take turns in one process. Reported are medians of processor time over turns, and of their ratios
with the middle half of them. Weights are random: they cost what trained ones do.

    python benchmarks/memory_and_streams.py
    python benchmarks/memory_and_streams.py --layers 2 --hidden 128 --length 64 --turns 30
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable

from lightning_modules.speed import environment

environment()  # before torch is imported

import numpy as np
import torch

from lightning_modules.data.store import tokenizer_file
from lightning_modules.data.text.encode import Encoder
from lightning_modules.generation.language_model import of_training
from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS
from lightning_modules.training.optim import clip
from lightning_modules.training.terms import share
from lightning_modules.zero_shot.measure import asked
from lightning_modules.zero_shot.settings import Measurement

ATTENTION = (100, 200, 300, 400, 600, 800)
LAYERS = (2, 4)  # of the models that are trained in two precisions


def systems(arguments: argparse.Namespace) -> dict[str, System]:
    """The systems on one text, the first four of one shape."""
    shape = {
        "model.num_layers": arguments.layers, "model.hidden_size": arguments.hidden,
        "model.num_heads": arguments.hidden // 64, "model.ffn_size": 4 * arguments.hidden,
        "model.dropout": 0.0, "model.embedding_dropout": 0.0, "model.attention_dropout": 0.0,
        "data.corpora": ["wikipedia-mini"], "data.tokenizer": {"kind": "wordpiece", "vocab_size": arguments.vocab},
        "format.sequence_length": arguments.length, "format.break_mode": "none",
        "training.batch_size": arguments.batch, "training.precision": "fp32",
    }  # fmt: skip
    recurrent = SYSTEMS["transformer_xl_base"].but(**shape, **{"model.memory_length": arguments.length})
    plain = {"model.memory_length": 0, "model.positions": "learned", "model.max_positions": arguments.length}
    two = SYSTEMS["xlnet_base"].but(**shape, **{"format.kind": "full_sentences"})
    one = {"objectives.plm": None, "objectives.mlm": {"masking": {"rate": 1 / 6}}, "model.query_stream": False}
    every = {"with a memory": recurrent, "plain": recurrent.but(**plain), "two streams": two, "one": two.but(**one)}
    narrow = {"model.hidden_size": 128, "model.num_heads": 2, "model.ffn_size": 512}
    for layers, precision in itertools.product(LAYERS, ("fp32", "bf16")):
        own = {**narrow, "model.num_layers": layers, "training.precision": precision}
        every[f"L{layers}-H128 in {precision}"] = every["one"].but(**own)
    return every


def stepping(system: System) -> Callable[[int], float]:
    """A training whose steps are timed: forward pass, loss, backward pass, clipping and optimiser."""
    module, batches = system.build(0).train(), system.data_module(0).train_dataloader()
    optimizer = module.configure_optimizers()["optimizer"]

    def step(number: int) -> float:
        (example,) = batches.step(number)
        before = time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=system.training.precision == "bf16"):
            encoded = module.carries.read(module.backbone, example)
            loss = share(module.objectives.loss(module.heads, encoded, example), {}, module)
        optimizer.zero_grad()
        loss.backward()
        clip(module, system.training.clip_norm)
        optimizer.step()
        return time.process_time() - before

    return step


def in_turns(one: Callable[[int], float], other: Callable[[int], float], turns: int) -> np.ndarray:
    """Seconds of the steps of both ``[turns, 2]``; the first two turns fill the memory and warm up."""
    return np.array([(one(turn), other(turn)) for turn in range(turns + 2)])[2:]


def compared(names: tuple[str, str], seconds: np.ndarray) -> str:
    """A row of the table of steps."""
    first, second = 1e3 * np.median(seconds, axis=0)
    low, ratio, high = np.quantile(seconds[:, 0] / seconds[:, 1], (0.25, 0.5, 0.75))
    return f"| {names[0]}, {names[1]} | {first:.0f} | {second:.0f} | {ratio:.2f} | {low:.2f} to {high:.2f} |"


def speed_ups(system: System, rounds: int) -> dict[int, float]:
    """Attention length -> how many times as fast a stream is read with a memory; lengths take turns."""
    encoder = Encoder(tokenizer_file(system.data), system.data.tokenizer.kind)
    model, found = of_training(system.build(0), system, encoder), {length: [] for length in ATTENTION}
    for _ in range(rounds):
        for length, each in found.items():
            answer = asked(model, "reading_speed", Measurement(memory_length=length), system.data, system)
            each.append(float(answer.metrics["speed_up"]))
    return {length: statistics.median(each) for length, each in found.items()}


def fit(points: dict[int, float]) -> str:
    """The line through the speed-ups, and how much of their variance it explains."""
    lengths, ratios = np.array(list(points)), np.array(list(points.values()))
    slope, start = np.polyfit(lengths, ratios, 1)
    left = 1 - ((ratios - start - slope * lengths) ** 2).sum() / ((ratios - ratios.mean()) ** 2).sum()
    power = np.polyfit(np.log(lengths), np.log(ratios), 1)[0]
    return f"{start:.1f} + {slope:.3f} times the length (R2 {left:.3f}); it grows with the length to the {power:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"layers": 4, "hidden": 256, "length": 128, "batch": 16, "vocab": 8192, "turns": 12, "rounds": 3}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    every = systems(arguments)
    print("| a step of | the first, ms | the second, ms | ratio | middle half |\n| :-- | --: | --: | --: | --: |")
    precisions = [(f"L{layers}-H128 in fp32", f"L{layers}-H128 in bf16") for layers in LAYERS]
    for names in (("with a memory", "plain"), ("two streams", "one"), *precisions):
        first, second = (stepping(every[name]) for name in names)
        print(compared(names, in_turns(first, second, arguments.turns)), flush=True)
    points = speed_ups(every["with a memory"], arguments.rounds)
    print("\n| attention | speed-up of reading with a memory |\n| --: | --: |")
    for length, ratio in points.items():
        print(f"| {length} | {ratio:.1f} |")
    print(f"speed-up: {fit(points)}")


if __name__ == "__main__":
    main()
