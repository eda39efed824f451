"""The time of a layer over the length of a row, next to the operations of Vaswani et al. (2017), Table 1.

Four layers of the same width read one row: self-attention, attention to the r nearest positions, an LSTM and a
convolution of k positions. The table counts operations without the projections of attention, which are four products of
n d^2; they are measured here, and counted. Reported are medians over rounds, in which the layers take turns at each
length, and by which power of the length the time grows over its last doubling. Sequential operations are those of the
formula. The longest path is found too: the layers after which the first position depends on the last one. It is longer
than the formula where half of r, or of k, lies on the other side.

A second table says where the published systems of this project lie: their positions n, their width d, and the share of
n^2 d in the operations of a layer with its feed-forward part of 4 d. A third table has the words of a held-out sentence
of each corpus, which half and 95 % of them have at most, and that share in a layer that reads the median sentence.
Corpora that are not at hand are named and left out. A side of a pair is a sentence, and so is a verse.

Attention is the faster of the two wherever a row is shorter than a state is wide, by count. On a machine that is busy
with other things, ``--clock cpu`` counts processor time instead of time.

    python benchmarks/complexity.py
    python benchmarks/complexity.py --width 512 --picture complexity.svg --clock cpu
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from lightning_modules.speed import environment, settle

environment()  # before torch is imported

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightning_modules.config import ConfigError
from lightning_modules.data.corpora.registry import CORPORA, corpus
from lightning_modules.model.attention import MultiHeadAttention
from lightning_modules.systems import SYSTEMS

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
HEADS, NEAR, KERNEL = 4, 16, 3  # heads of attention; r; k
PARALLEL = ("multi30k:en-de", "bible:en-es", "bible:en-de", "tatoeba:en-es")
WIDTHS = (128, 512, 768)  # of `laptop`, of the Transformer's base model, of BERT-base
REACHED = 48  # positions of the row whose longest path is looked for

# layer -> operations, sequential operations, longest path of the paper
FORMULAS: dict[str, tuple[Callable[[int, int], int], str, str]] = {
    "self-attention": (lambda n, d: n * n * d + 4 * n * d * d, "1", "1"),
    "restricted": (lambda n, d: NEAR * n * d + 4 * n * d * d, "1", "n / r"),
    "recurrent": (lambda n, d: 8 * n * d * d, "n", "n"),  # four gates, each of two products
    "convolution": (lambda n, d: KERNEL * n * d * d, "1", "n / k"),
}


class Restricted(MultiHeadAttention):
    """Attention of each position to about r nearest ones, half of them on either side, and itself."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.queries_keys_values(x)
        side, n = NEAR // 2, x.shape[1]
        near_k, near_v = (F.pad(part, (0, 0, side, side)).unfold(2, 2 * side + 1, 1) for part in (k, v))
        place = torch.arange(n)[:, None] + torch.arange(-side, side + 1)
        outside = (place < 0) | (place >= n)
        scores = torch.einsum("bhtc,bhtcr->bhtr", q * q.shape[3] ** -0.5, near_k).masked_fill(outside, -math.inf)
        mixed = torch.einsum("bhtr,bhtcr->bhtc", scores.softmax(-1), near_v)
        return self.output(mixed.transpose(1, 2).flatten(2))


class Convolution(nn.Conv1d):
    """A convolution over the positions of rows."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class Recurrent(nn.LSTM):
    """An LSTM that gives its outputs alone."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[0]


def layers(d: int) -> dict[str, nn.Module]:
    """The four layers, in the order of `FORMULAS`."""
    made = (
        MultiHeadAttention(d, HEADS, 0.0),
        Restricted(d, HEADS, 0.0),
        Recurrent(d, d, batch_first=True),
        Convolution(d, d, KERNEL, padding=KERNEL // 2),
    )
    return dict(zip(FORMULAS, made, strict=True))


@torch.no_grad()
def times(d: int, rounds: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    """Layer -> median seconds at each of `LENGTHS`."""
    made, taken = layers(d), {(name, n): [] for name in FORMULAS for n in LENGTHS}
    for turn in range(rounds + 1):
        for n in LENGTHS:
            x = torch.randn(1, n, d)
            often = max(1, 512 // n)
            for name, layer in made.items():
                before = clock()
                for _ in range(often):
                    layer(x)
                taken[name, n] += [(clock() - before) / often] if turn else []  # the first round warms up
    return {name: [statistics.median(taken[name, n]) for n in LENGTHS] for name in FORMULAS}


def path(name: str) -> int:
    """The steps after which the first of `REACHED` positions depends on the last one: layers, or those of an LSTM.

    An LSTM needs one layer, in which the first position of the reversed row has come through all others.
    """
    torch.manual_seed(0)
    if name == "recurrent":
        return REACHED
    x = torch.randn(1, REACHED, 16, requires_grad=True)
    state, layer = x, layers(16)[name]
    for count in range(1, REACHED + 1):
        state = layer(state)
        (gradient,) = torch.autograd.grad(state[0, 0].sum(), x, retain_graph=True)
        if bool(gradient[0, -1].any()):
            return count
    raise AssertionError(f"{name} does not reach the end of a row")


def squared_share(n: int, d: int) -> float:
    """The share of n^2 d in the operations of a layer of a Transformer: products of states, and twelve of n d^2."""
    return 2 * n * n * d / (2 * n * n * d + 12 * n * d * d)


def lengths(name: str) -> tuple[int, int]:
    """The words of a held-out sentence of a corpus, which half and 95 % of the sentences have at most.

    Raises:
        ConfigError: Where its files are not at hand.
    """
    words = sorted(len(sentence.split()) for document in corpus(name).documents("heldout") for sentence in document)
    return words[len(words) // 2], words[int(0.95 * len(words))]


def picture(found: dict[str, list[float]], d: int, file: Path) -> None:
    """Draws the times over the lengths, both on logarithmic axes, with a line where a row is as long as d."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for (name, seconds), mark in zip(found.items(), "osD^", strict=True):
        axes.loglog(LENGTHS, [1e3 * one for one in seconds], marker=mark, label=name)
    axes.axvline(d, color="grey", linestyle=":", label=f"n = d = {d}")
    axes.set(xlabel="positions n of a row", ylabel="time of a layer (ms)")
    axes.legend()
    figure.savefig(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=128, help="d of every layer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--picture", type=Path, help="an SVG of the times")
    arguments = parser.parse_args()
    settle(1)
    d, found = arguments.width, times(arguments.width, arguments.rounds, CLOCKS[arguments.clock])
    print(f"ms of a layer of d = {d}, r = {NEAR}, k = {KERNEL}\n")
    print("| n | " + " | ".join(FORMULAS) + " |\n|" + " ---: |" * (1 + len(FORMULAS)))
    for place, n in enumerate(LENGTHS):
        print(f"| {n} | " + " | ".join(f"{1e3 * found[name][place]:.2f}" for name in FORMULAS) + " |")
    print(
        "\n| layer | power of n, measured | counted | sequential operations | longest path | found for "
        f"n = {REACHED} |\n| :-- | ---: | ---: | ---: | ---: | ---: |"
    )
    for name, (operations, sequential, longest) in FORMULAS.items():
        measured = math.log2(found[name][-1] / found[name][-2])
        counted = math.log2(operations(LENGTHS[-1], d) / operations(LENGTHS[-2], d))
        print(f"| {name} | {measured:.2f} | {counted:.2f} | {sequential} | {longest} | {path(name)} |")
    print("\n| system | n | d | share of n^2 d |\n| :-- | ---: | ---: | ---: |")
    for name, system in SYSTEMS.items():
        n, width = system.format.sequence_length, system.model.get("hidden_size")
        print(f"| {name} | {n} | {width} | {squared_share(n, width):.1%} |")
    print(
        "\n| corpus | n of half | n of 95 % | "
        + " | ".join(f"share, d = {width}" for width in WIDTHS)
        + " |\n| :-- |" + " ---: |" * (2 + len(WIDTHS))
    )  # fmt: skip
    for name in [*CORPORA, *PARALLEL]:
        try:
            half, most = lengths(name)
        except ConfigError:
            print(f"| {name}, not at hand |" + " |" * (2 + len(WIDTHS)))
            continue
        shares = " | ".join(f"{squared_share(half, width):.1%}" for width in WIDTHS)
        print(f"| {name} | {half} | {most} | {shares} |")
    if arguments.picture:
        picture(found, d, arguments.picture)


if __name__ == "__main__":
    main()
