"""The cost of a generated token by the length of the text before it: with a carry of keys and values, and without.

With a carry a token is computed from its own state and what is kept of the others; without one, all of them are
computed anew. Both write the same text, greedily, in a batch; they take turns in one process, several rounds, each at
every length in turn. Reported are medians over tokens and rounds of the time of a batch of tokens, without reading the
prompt, and their ratio.

On a machine that is busy with other things, ``--clock cpu`` counts processor time instead of time, which is the same
for one thread on a quiet machine.

    python benchmarks/generation.py
    python benchmarks/generation.py --layers 12 --hidden 768 --vocab 30522 --rounds 3 --clock cpu
"""

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path

from lightning_modules.speed import environment

environment()  # before torch is imported

import numpy as np
import tokenizers
import torch

from lightning_modules.data.text.encode import Encoder
from lightning_modules.generation.generate import generate
from lightning_modules.generation.language_model import LanguageModelOf, of_training
from lightning_modules.systems import SYSTEMS

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
LENGTHS = (32, 64, 128, 256)
NEW = 9  # tokens written at each length; the first reads the prompt and is not counted


def model(arguments: argparse.Namespace, folder: Path) -> LanguageModelOf:
    """A language model with random weights, which cost what trained ones do, and words that are numbers."""
    system = SYSTEMS["bert_base"].but(
        **{
            "objectives.mlm": None, "objectives.sentence": None, "objectives.lm.direction": "left_to_right",
            "model.direction": "left_to_right", "format.kind": "full_sentences", "format.sequence_length": 512,
            "model.num_layers": arguments.layers, "model.hidden_size": arguments.hidden, "model.norm": "pre",
            "data.tokenizer.vocab_size": arguments.vocab,
        }
    )  # fmt: skip
    pieces = {piece: number for number, piece in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])}
    pieces |= {str(number): number for number in range(5, arguments.vocab)}
    path = folder / "tokenizer.json"
    path.write_text(tokenizers.Tokenizer(tokenizers.models.WordPiece(pieces, unk_token="[UNK]")).to_str())
    return of_training(system.build(0), system, Encoder(path, "wordpiece"))


def seconds(lm: LanguageModelOf, prompts: list[list[int]], cached: bool, clock) -> tuple[list[float], list[list[int]]]:
    """The time of each token after the first, and the text."""
    at: list[float] = []
    written = generate(lm, prompts, new_tokens=NEW, cached=cached, on_progress=lambda *_: at.append(clock()))
    return [b - a for a, b in itertools.pairwise(at)], [text.ids for text in written]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"layers": 4, "hidden": 256, "batch": 8, "vocab": 8192, "rounds": 7}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    noise = np.random.default_rng(0)
    ways = {"with a carry": True, "without": False}
    measured: dict[tuple[str, int], list[float]] = {(way, length): [] for way in ways for length in LENGTHS}
    with tempfile.TemporaryDirectory() as folder:
        lm = model(arguments, Path(folder))
        for turn in range(arguments.rounds + 1):
            for length in LENGTHS:
                begin = length - NEW // 2
                rows = noise.integers(5, arguments.vocab, (arguments.batch, begin - 1)).tolist()
                texts = []
                for way, cached in ways.items():
                    taken, text = seconds(lm, [[*lm.start, *row] for row in rows], cached, CLOCKS[arguments.clock])
                    measured[way, length] += taken if turn else []  # the first round warms up
                    texts.append(text)
                assert texts[0] == texts[1], "a carry changed the text"
    median = {key: statistics.median(taken) for key, taken in measured.items()}
    print("| tokens before | with a carry, ms | without, ms | ratio |\n| ---: | ---: | ---: | ---: |")
    for length in LENGTHS:
        one, other = (median[way, length] for way in ways)
        print(f"| {length} | {1e3 * one:.2f} | {1e3 * other:.1f} | {other / one:.1f} |")
    for way in ways:
        growth = median[way, LENGTHS[-1]] / median[way, LENGTHS[0]]
        print(f"{way}: {growth:.2f} times as long after {LENGTHS[-1]} tokens as after {LENGTHS[0]}")


if __name__ == "__main__":
    main()
