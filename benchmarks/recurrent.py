"""What a step of an LSTM language model costs, against a bare loop over ``torch.nn.LSTM``, on one thread of the CPU.

Two layers of 256 with tied embeddings read rows that go on from step to step. The bare loop has torch's stack of
layers, its cross-entropy, its clipping and its SGD, and nothing else. Three systems are compared with it: one without
dropout, one with dropped recurrent weights, and one with all five dropouts of AWD-LSTM and its penalties on states.

All take turns in one process. Reported are medians of processor time over turns, and of their ratios with the middle
half of them. Weights are random: they cost what trained ones do.

    python benchmarks/recurrent.py
    python benchmarks/recurrent.py --hidden 128 --turns 30
"""

import argparse
import time
from collections.abc import Callable

from lightning_modules.speed import environment

environment()  # before torch is imported

import numpy as np
import torch
import torch.nn.functional as F
from memory_and_streams import stepping  # of this folder
from torch import nn

from lightning_modules.speed import denormals_as_zero
from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS

CLIP = 0.25


def systems(arguments: argparse.Namespace) -> dict[str, System]:
    """The systems, of one shape and on one text, with steps of equal length."""
    none = dict.fromkeys(("word_type", "input", "weight", "hidden", "output"), 0.0)
    plain = SYSTEMS["awd_lstm"].but(
        **{
            "model.num_layers": arguments.layers, "model.hidden_size": arguments.hidden, "model.embedding_size": None,
            "model.output_size": None, **{f"model.{name}_dropout": rate for name, rate in none.items()},
            "objectives.activations": None, "data.corpora": ["wikipedia-mini"],
            "data.tokenizer": {"kind": "wordpiece", "vocab_size": arguments.vocab},
            "format.sequence_length": arguments.length, "format.lengths": "fixed", "schedule.by_length": False,
            "training.batch_size": arguments.batch, "training.clip_norm": CLIP,
        }
    )  # fmt: skip
    rates = {"word_type": 0.1, "input": 0.4, "weight": 0.5, "hidden": 0.25, "output": 0.4}
    every = {f"model.{name}_dropout": rate for name, rate in rates.items()}
    return {
        "no dropout": plain,
        "dropped recurrent weights": plain.but(**{"model.weight_dropout": 0.5}),
        "all dropouts and penalties": plain.but(**every, **{"objectives.activations.activation": 2.0}),
    }


def bare(system: System) -> Callable[[int], float]:
    """The same training as one writes it with torch alone."""
    model, size, batches = system.model, system.data.tokenizer.vocab_size, system.data_module(0).train_dataloader()
    table, bias = nn.Embedding(size, model.hidden_size), nn.Parameter(torch.zeros(size))
    nn.init.uniform_(table.weight, -0.1, 0.1)
    layers = nn.LSTM(model.hidden_size, model.hidden_size, model.num_layers, batch_first=True)
    parameters = [*table.parameters(), *layers.parameters(), bias]
    optimizer, carry = torch.optim.SGD(parameters, lr=30.0, weight_decay=1.2e-6), None

    def step(number: int) -> float:
        nonlocal carry
        (example,) = batches.step(number)
        ids, wanted = example.inputs.ids, example.targets["next"].ids
        before = time.process_time()
        states, carry = layers(table(ids), carry)
        carry = tuple(part.detach() for part in carry)
        loss = F.cross_entropy(F.linear(states.flatten(0, 1), table.weight, bias), wanted)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        return time.process_time() - before

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"layers": 2, "hidden": 256, "length": 70, "batch": 20, "vocab": 8192, "turns": 20}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    every = systems(arguments)
    timed = [bare(every["no dropout"]), *map(stepping, every.values())]
    with denormals_as_zero():
        seconds = np.array([[each(turn) for each in timed] for turn in range(arguments.turns + 2)])[2:]  # warm
    print("| a step of | ms | bare loop, ms | ratio | middle half |\n| :-- | --: | --: | --: | --: |")
    first = 1e3 * np.median(seconds[:, 0])
    for name, own in zip(every, seconds.T[1:], strict=True):
        low, ratio, high = np.quantile(own / seconds[:, 0], (0.25, 0.5, 0.75))
        print(f"| {name} | {1e3 * np.median(own):.0f} | {first:.0f} | {ratio:.2f} | {low:.2f} to {high:.2f} |")


if __name__ == "__main__":
    main()
