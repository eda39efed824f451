"""Step time of masked-LM pretraining: this project against Hugging Face's Trainer, side by side in one run.

Same text, tokenizer, sizes, batch, precision, dropouts, masking rate and thread count; each side as its own
users would run it (ours through `System` and Lightning, theirs through `BertForMaskedLM`, `Trainer` and
`DataCollatorForLanguageModeling`). The sides alternate, each round in a fresh process; medians over all steps
but the first few of each round.

    python benchmarks/pretrain_vs_transformers.py --rounds 5 --threads 1
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

SKIPPED = 4  # steps at the start of a round that warm caches up


def system(arguments: argparse.Namespace):
    from lightning_modules.systems import ROBERTA_BASE

    return ROBERTA_BASE.but(
        **{
            "model.num_layers": arguments.layers, "model.hidden_size": arguments.hidden, "model.segment_types": 2,
            "model.attention_dropout": arguments.attention_dropout,
            "data.corpora": ["wikipedia-mini"], "data.tokenizer.kind": "wordpiece", "data.tokenizer.lowercase": True,
            "data.tokenizer.vocab_size": arguments.vocab, "format.sequence_length": arguments.length,
            "format.break_mode": "none", "training.batch_size": arguments.batch, "training.clip_norm": 1.0,
            "training.steps": arguments.steps + SKIPPED, "objectives.mlm.masking.count": "bernoulli",
        }
    )  # fmt: skip


def ours(arguments: argparse.Namespace) -> list[float]:
    from lightning_modules.speed import environment, settle

    environment()
    import pytorch_lightning as pl

    settle(arguments.threads)

    class Clock(pl.Callback):
        def __init__(self) -> None:
            self.marks: list[float] = []

        def on_train_batch_end(self, *_: object) -> None:
            self.marks.append(time.perf_counter())

    clock, value = Clock(), system(arguments)
    trainer = pl.Trainer(
        max_steps=value.training.steps, precision="bf16-mixed", accelerator="cpu", callbacks=[clock], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, limit_val_batches=0,
    )  # fmt: skip
    trainer.fit(value.build(0), value.data_module(0))
    return clock.marks


def theirs(arguments: argparse.Namespace) -> list[float]:
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import (
        BertConfig,
        BertForMaskedLM,
        DataCollatorForLanguageModeling,
        PreTrainedTokenizerFast,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    from lightning_modules.data import open_store

    torch.set_num_threads(arguments.threads)
    value = system(arguments)
    sequences = value.format.arrange(open_store(value.data, "train"))
    pieces = {piece: number for number, piece in enumerate(sequences.store.vocabulary.pieces)}
    rows = [{"input_ids": row} for row in sequences.batch(range(len(sequences))).ids.tolist()]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(pieces, unk_token="[UNK]")),
        pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]",
    )  # fmt: skip

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.marks: list[float] = []

        def on_step_end(self, *_: object, **__: object) -> None:
            self.marks.append(time.perf_counter())

    clock = Clock()
    config = BertConfig(
        vocab_size=arguments.vocab, hidden_size=arguments.hidden, num_hidden_layers=arguments.layers,
        num_attention_heads=max(1, arguments.hidden // 64), intermediate_size=4 * arguments.hidden,
        max_position_embeddings=512, attention_probs_dropout_prob=arguments.attention_dropout,
    )  # fmt: skip
    settings = TrainingArguments(
        output_dir=str(arguments.folder), max_steps=arguments.steps + SKIPPED, bf16=True, use_cpu=True,
        per_device_train_batch_size=arguments.batch, report_to=[], save_strategy="no", logging_strategy="no",
        disable_tqdm=True,
    )  # fmt: skip
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    Trainer(BertForMaskedLM(config), settings, data_collator=collator, train_dataset=rows, callbacks=[clock]).train()
    return clock.marks


def seconds(marks: list[float]) -> list[float]:
    return [after - before for before, after in zip(marks[SKIPPED - 1 :], marks[SKIPPED:], strict=False)]


def child(side: str, arguments: argparse.Namespace) -> list[float]:
    """One round of one side in a fresh process."""
    command = [sys.executable, __file__, "--side", side, *sys.argv[1:]]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(f"the round of {side} failed:\n{ended.stderr[-3000:]}")
    return json.loads(ended.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in {
        "rounds": 5, "steps": 12, "threads": 1, "layers": 4, "hidden": 256, "batch": 32, "length": 128, "vocab": 8192
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--attention-dropout", type=float, default=0.1)
    parser.add_argument("--folder", type=Path, default=Path(".cache/benchmark"))
    parser.add_argument("--side", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        print(json.dumps(seconds({"ours": ours, "theirs": theirs}[arguments.side](arguments))))
        return
    system(arguments).data_module(0).prepare_data()
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    ratios = []
    for number in range(arguments.rounds):
        round_times = {side: child(side, arguments) for side in times}
        for side, found in round_times.items():
            times[side] += found
        ratios.append(statistics.median(round_times["theirs"]) / statistics.median(round_times["ours"]))
        print(f"round {number + 1}: {ratios[-1]:.2f}x", flush=True)
    tokens = arguments.batch * arguments.length
    title = f"L{arguments.layers} H{arguments.hidden} S{arguments.length} B{arguments.batch} V{arguments.vocab}"
    print(f"\n{title}, bf16, dropout 0.1, in attention {arguments.attention_dropout}, {arguments.threads} thread(s)\n")
    print("| side | median ms a step | tokens/s |\n| --- | ---: | ---: |")
    for side, found in times.items():
        median = statistics.median(found)
        print(f"| {side} | {median * 1e3:.0f} | {tokens / median:,.0f} |")
    ratio = statistics.median(times["theirs"]) / statistics.median(times["ours"])
    print(f"\nratio of medians {ratio:.2f}x; of single rounds {min(ratios):.2f}x to {max(ratios):.2f}x")


if __name__ == "__main__":
    main()
