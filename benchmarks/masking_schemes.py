"""The share of a training step that choosing and hiding takes, for every scheme, on one thread of the CPU.

Batches of the embedded corpus are arranged beforehand; then each scheme corrupts all of them in turn, several rounds,
and the model trains on some. Reported are processor times: medians over the batches of a corruption and of a step
(forward, backward, optimiser) of a model of four layers of 256, without the corruption.

    python benchmarks/masking_schemes.py
    python benchmarks/masking_schemes.py --layers 2 --hidden 128 --length 64 --rate 0.4
"""

import argparse
import statistics
import time
from dataclasses import replace

from lightning_modules.speed import environment

environment()  # before torch is imported

import numpy as np
import torch

from lightning_modules.batch import Example
from lightning_modules.draws import Draws
from lightning_modules.objectives import MaskedLM, Masking
from lightning_modules.objectives.choosing import Bionic, NGrams, Pieces, Spans, Tagged, WholeWords
from lightning_modules.systems import ROBERTA_BASE

SCHEMES = {
    "pieces": Pieces(), "whole words": WholeWords(), "n-grams": NGrams(), "spans": Spans(),
    "tagged": Tagged(annotator="capitalised"), "bionic": Bionic(),
}  # fmt: skip


def system(arguments: argparse.Namespace):
    return ROBERTA_BASE.but(
        **{
            "model.num_layers": arguments.layers, "model.hidden_size": arguments.hidden,
            "data.corpora": ["wikipedia-mini"], "data.tokenizer.kind": "wordpiece",
            "data.tokenizer.lowercase": True,
            "data.tokenizer.vocab_size": arguments.vocab, "format.sequence_length": arguments.length,
            "format.break_mode": "none", "training.batch_size": arguments.batch, "training.precision": "fp32",
        }
    )  # fmt: skip


def batches(value, count: int):
    """Uncorrupted batches with tags at random, two pieces in ten, and their draws; the vocabulary."""
    data = value.data_module(0)
    noise, size, made = torch.Generator().manual_seed(0), value.training.batch_size, []
    for number in range(count):
        rows = np.arange(number * size, (number + 1) * size)
        tokens = data.sequences.batch(rows % len(data.sequences))
        tags = torch.multinomial(torch.tensor([0.8, 0.1, 0.1]), tokens.ids.numel(), replacement=True, generator=noise)
        tokens = replace(tokens, marks={("capitalised", "entities"): tags.reshape(tokens.ids.shape)})
        made.append((Example.of(tokens), Draws(0, rows, rows, np.zeros_like(rows))))
    return made, data.sequences.store.vocabulary


def step_seconds(value, examples) -> float:
    module = value.build(0).train()
    optimizer = module.configure_optimizers()["optimizer"]
    seconds = []
    for example in examples:
        before = time.process_time()
        total, count, _ = module.objectives.loss(module.heads, module.backbone(example), example)["mlm"]
        optimizer.zero_grad()
        (total / count).backward()
        optimizer.step()
        seconds.append(time.process_time() - before)
    return statistics.median(seconds[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"layers": 4, "hidden": 256, "length": 128, "batch": 32, "vocab": 8192, "rounds": 8, "steps": 8}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rate", type=float, default=0.15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    value = system(arguments)
    made, vocabulary = batches(value, arguments.steps)
    objectives = {name: MaskedLM(masking=Masking(rate=arguments.rate, units=units)) for name, units in SCHEMES.items()}
    seconds: dict[str, list[float]] = {name: [] for name in SCHEMES}
    for _ in range(arguments.rounds):
        for name, objective in objectives.items():
            for example, draws in made:
                before = time.process_time()
                objective.corrupt(example, draws, vocabulary)
                seconds[name].append(time.process_time() - before)
    pieces = objectives["pieces"]
    step = step_seconds(value, [pieces.corrupt(e, d, vocabulary).read_at_targets() for e, d in made])
    print(f"a step: {1e3 * step:.0f} ms\n| scheme | ms a batch | % of a step |\n| --- | ---: | ---: |")
    for name, measured in seconds.items():
        own = statistics.median(measured)
        print(f"| {name} | {1e3 * own:.2f} | {100 * own / step:.2f} |")


if __name__ == "__main__":
    main()
