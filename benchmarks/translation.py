"""Speed of the Transformer that translates: a training step against Hugging Face's Trainer, decoding, and padding.

A step is of two layers a side, 128 wide, with 4,096 pieces, as the grids have at `laptop`: ours through `System` and
Lightning's Trainer, theirs through `MarianMTModel`, `Trainer` and `DataCollatorForSeq2Seq`, which pads to the longest
pair of a batch. Both read Multi30k from English to German in fp32, with the same dropout and smoothed labels. A step of
ours has 2,048 positions that are no padding, and one of theirs 58 pairs, which have as many on average. So times are
divided by the positions of a step that are no padding. There are two more sides, which sort pairs by length: ours by
`training.bucket_steps`, theirs by the Trainer's own grouping by the length of the source. Sides are processes that take
turns (see `pretrain_vs_transformers`). Reported are medians over steps, the ratio to theirs, and its range over turns.

Decoding translates 32 sources of 20 pieces to 40 pieces, with keys and values of what was written and without. Both
write the same text and take turns; reported are medians over rounds. Padding is the share of the positions of a step,
of both sides, over the steps of an epoch.

On a machine that is busy with other things, ``--clock cpu`` counts processor time instead of time.

    python benchmarks/translation.py
    python benchmarks/translation.py --clock cpu --turns 4 --steps 5
"""

import argparse
import itertools
import os
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pretrain_vs_transformers as steps  # of this folder

SIDES = ("ours", "ours-sorted", "theirs", "theirs-sorted")
PAIRS = 58  # of a step of theirs: 2,048 positions, 35 of a pair
SIZES = {"num_layers": 2, "hidden_size": 128, "num_heads": 4, "ffn_size": 512}
VOCABULARY, LENGTH = 4096, 64
ROUNDS = 5


def system(arguments: argparse.Namespace, is_sorted: bool):
    from lightning_modules.systems import SYSTEMS

    return SYSTEMS["transformer_base"].but(
        **{f"model.{name}": value for name, value in SIZES.items()},
        **{
            "data.tokenizer.kind": "byte_bpe", "data.tokenizer.vocab_size": VOCABULARY,
            "format.sequence_length": LENGTH, "training.batch_size": 16, "training.clip_norm": 1.0,
            "training.averaged_checkpoints": 1,
            "training.bucket_steps": 100 if is_sorted else 1,
            "training.steps": arguments.warm_up + arguments.steps * arguments.turns,
        },
    )  # fmt: skip


def ours(arguments: argparse.Namespace, turns: steps.Turns) -> None:
    import pytorch_lightning as pl

    class Clock(pl.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, number) -> None:
            turns.mark(int(batch.inputs.real.sum() + batch.source.real.sum()))

    value = system(arguments, arguments.side.endswith("sorted"))
    trainer = pl.Trainer(
        max_steps=value.training.steps, accelerator="cpu", devices=1, callbacks=[Clock()], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, limit_val_batches=0,
    )  # fmt: skip
    trainer.fit(value.build(0), value.data_module(0))


def theirs(arguments: argparse.Namespace, turns: steps.Turns) -> None:
    import torch
    from transformers import MarianConfig, MarianMTModel, Trainer, TrainerCallback, TrainingArguments

    value = system(arguments, False)
    sequences, vocabulary = value.data_module(0).sequences, value.data_module(0).sequences.store.vocabulary
    rows = [
        {"input_ids": [*sequences.store.ids[a:b].tolist(), vocabulary.sep],
         "labels": [*sequences.store.ids[b:c].tolist(), vocabulary.sep]}
        for a, b, c in sequences.bounds
    ]  # fmt: skip
    real = [0]

    def padded(lists: list[list[int]], by: int) -> torch.Tensor:
        longest = max(map(len, lists))
        return torch.tensor([[*one, *[by] * (longest - len(one))] for one in lists])

    def collated(batch: list[dict]) -> dict:  # what DataCollatorForSeq2Seq does, without a tokenizer
        source, labels = (padded([row[side] for row in batch], -1) for side in ("input_ids", "labels"))
        real[0] = int((source >= 0).sum() + (labels >= 0).sum()) + len(batch)  # the first piece of a decoder as well
        first = torch.full((len(batch), 1), vocabulary.cls)
        return {
            "input_ids": source.clamp(min=0), "attention_mask": (source >= 0).long(),
            "decoder_input_ids": torch.cat([first, labels[:, :-1].clamp(min=0)], 1),
            "labels": labels.masked_fill(labels < 0, -100),
        }  # fmt: skip

    class Clock(TrainerCallback):
        def on_step_end(self, *_: object, **__: object) -> None:
            turns.mark(real[0])

    shape = {
        f"{side}_{name}": SIZES[ours]
        for side in ("encoder", "decoder")
        for name, ours in (("layers", "num_layers"), ("attention_heads", "num_heads"), ("ffn_dim", "ffn_size"))
    }
    config = MarianConfig(
        vocab_size=VOCABULARY, d_model=SIZES["hidden_size"], max_position_embeddings=LENGTH, dropout=0.1,
        activation_function="relu", scale_embedding=True, pad_token_id=vocabulary.pad, eos_token_id=vocabulary.sep,
        decoder_start_token_id=vocabulary.cls, **shape,
    )  # fmt: skip
    settings = TrainingArguments(
        output_dir=str(arguments.folder), max_steps=value.training.steps, per_device_train_batch_size=PAIRS,
        label_smoothing_factor=0.1, use_cpu=True, report_to=[], save_strategy="no", logging_strategy="no",
        disable_tqdm=True, remove_unused_columns=False,
        train_sampling_strategy="group_by_length" if arguments.side.endswith("sorted") else "random",
    )  # fmt: skip
    Trainer(
        MarianMTModel(config), settings, train_dataset=rows, data_collator=collated, callbacks=[Clock()]
    ).train()  # fmt: skip


class Side(steps.Side):
    """One of `SIDES`."""

    program = __file__


def training(arguments: argparse.Namespace) -> None:
    sides = [Side(name, arguments) for name in SIDES]
    for side in sides:
        side.report()
    told: dict[str, list[list[float]]] = {name: [] for name in SIDES}
    for _ in range(arguments.turns):
        for side in sides:
            told[side.name].append(side.turn()["seconds"])
    for side in sides:
        side.end()
    median = {name: statistics.median(itertools.chain(*turns)) for name, turns in told.items()}
    print("| step of | µs a position | ratio to the Trainer's | range over turns |\n| :-- | --: | --: | --: |")
    for name, turns in told.items():
        of = "theirs" + name.removeprefix("ours").removeprefix("theirs")
        each = [statistics.median(b) / statistics.median(a) for a, b in zip(turns, told[of], strict=True)]
        ratio = median[of] / median[name]
        print(f"| {name} | {1e6 * median[name]:.1f} | {ratio:.2f} | {min(each):.2f} to {max(each):.2f} |")


def padding(arguments: argparse.Namespace) -> None:
    print("\n| steps sorted together | padding |\n| --: | --: |")
    for together in (1, 100):
        value = system(arguments, False).but(**{"training.bucket_steps": together, "training.steps": 500})
        real = shown = 0
        for example in value.data_module(0).train_dataloader():
            for tokens in (example.inputs, example.source):
                real, shown = real + int(tokens.real.sum()), shown + tokens.real.numel()
        print(f"| {together} | {1 - real / shown:.1%} |")


def decoding(arguments: argparse.Namespace) -> None:
    import torch

    from lightning_modules.data.store import open_store
    from lightning_modules.generation.translate import Beam, Translator

    torch.set_num_threads(1)
    value, clock = system(arguments, False), steps.CLOCKS[arguments.clock]
    module = value.build(0).eval()
    vocabulary = open_store(value.data, "heldout").vocabulary
    with torch.no_grad():
        module.backbone.table[vocabulary.sep] *= -3  # so that no translation ends before it must
    translator = Translator.of(module, value, vocabulary)
    sources = torch.randint(vocabulary.size // 8, vocabulary.size, (32, 20)).tolist()
    ways = (True, False)
    print("\n| beam | with a carry, s | without, s | ratio | pieces |\n| --: | --: | --: | --: | --: |")
    for width in (1, 4):
        taken: dict[bool, list[float]] = {way: [] for way in ways}
        for _ in range(ROUNDS):
            texts = []
            for cached in ways:
                before = clock()
                texts.append(
                    replace(translator, cached=cached).translate(sources, Beam(width, length_penalty=3.0, further=20))
                )
                taken[cached].append(clock() - before)
            assert [one.ids for one in texts[0]] == [one.ids for one in texts[1]], "a carry changed the text"
        with_carry, without = (statistics.median(taken[way]) for way in ways)
        pieces = statistics.mean(len(one.ids) + 1 for one in texts[0])
        print(f"| {width} | {with_carry:.2f} | {without:.2f} | {without / with_carry:.1f} | {pieces:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in {"turns": 6, "steps": 10}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--warm-up", type=int, default=10, help="steps of the first turn, which is not counted")
    parser.add_argument("--clock", choices=steps.CLOCKS, default="wall")
    parser.add_argument("--folder", type=Path)
    for name in ("side", "device", "began"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.device, arguments.began = "cpu", float(arguments.began or 0)
    if arguments.side:
        from lightning_modules.speed import settle

        settle(1)
        own = ours if arguments.side.startswith("ours") else theirs
        return own(arguments, steps.Turns(arguments))
    data = system(arguments, False).data_module(0)
    data.prepare_data()
    data.setup("fit")
    with tempfile.TemporaryDirectory() as folder:
        arguments.folder = Path(folder)
        training(arguments)
    padding(arguments)
    decoding(arguments)
    return None


if __name__ == "__main__":
    from lightning_modules.speed import environment

    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    environment()
    sys.exit(main())
