"""Step time of masked-LM pretraining: this project against Hugging Face's Trainer, interleaved in one run.

Same text, tokenizer, sizes, batch, precision, dropouts, masking rate and thread count; each side as its own
users would run it: ours through `System` and Lightning's Trainer, theirs through `BertForMaskedLM`, `Trainer`
and `DataCollatorForLanguageModeling`. A third side, our module in a bare loop, shows what Lightning costs.
The rows go from the size of the laptop runs to BERT-base with a small batch; on a GPU the batches are large.

For each row of the table, the sides are processes that take turns of some steps each, one working while the
others wait, so that all of them see the same machine. Reported are medians over all steps but those of the
first turn, the ratio of the medians, and the range over turns of the ratio of a turn's medians. The last column
is the parity of the two models: dropout off, fp32, the same weights and batch; the largest difference between
two gradients of a parameter, each as a share of that gradient's largest entry.

On a machine that is busy with other things, ``--clock cpu`` counts processor time instead of time, which is the
same for one thread on a quiet machine. With ``--device cuda`` a turn is timed as a whole, since a GPU works ahead of
the program, and the bare loop has its batches on the device.

    python benchmarks/pretrain_vs_transformers.py --turns 6 --steps 5
    python benchmarks/pretrain_vs_transformers.py --model L2-H128 --clock cpu
    python benchmarks/pretrain_vs_transformers.py --device cuda --warm-up 60 --steps 20 --output times.json
"""

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
SIDES = ("ours", "theirs", "loop")
SIZES = ("layers", "hidden", "vocab", "length", "batch")
REPORT = "times "  # starts the lines that are for the parent
MODELS = {  # model -> sizes of its rows
    "L2-H128": ({"layers": 2, "hidden": 128, "vocab": 4096, "length": 64, "batch": 32},),
    "L4-H256": (
        {"layers": 4, "hidden": 256, "vocab": 8192, "length": 128, "batch": 32},
        {"layers": 4, "hidden": 256, "vocab": 30522, "length": 128, "batch": 32},
    ),
    "L12-H768": ({"layers": 12, "hidden": 768, "vocab": 30522, "length": 128, "batch": 8},),
}
ON_CUDA = {  # the same on a GPU
    "L4-H256": ({"layers": 4, "hidden": 256, "vocab": 16384, "length": 128, "batch": 256},),
    "L12-H768": ({"layers": 12, "hidden": 768, "vocab": 30522, "length": 128, "batch": 256},),
}
HEADER = (
    "| layers, width | batch | vocabulary | attention dropout | this project, ms | `Trainer`, ms | ratio "
    "| range over turns | steps timed | over a bare loop | gradient difference |\n|" + " ---: |" * 11
)

RENAMED = {  # in the names of parameters
    "backbone.embeddings.word.": "bert.embeddings.word_embeddings.",
    "backbone.embeddings.position.": "bert.embeddings.position_embeddings.",
    "backbone.embeddings.tables.segment.": "bert.embeddings.token_type_embeddings.",
    "backbone.embeddings.norm.": "bert.embeddings.LayerNorm.",
    "backbone.blocks.": "bert.encoder.layer.",
    "attention.function.qkv.": "attention.self.qkv.",
    "attention.function.output.": "attention.output.dense.",
    "attention.norm.": "attention.output.LayerNorm.",
    "ffn.function.expand.": "intermediate.dense.",
    "ffn.function.contract.": "output.dense.",
    "ffn.norm.": "output.LayerNorm.",
    "heads.mlm.vocabulary.bias": "cls.predictions.bias",
    "heads.mlm.vocabulary.dense.": "cls.predictions.transform.dense.",
    "heads.mlm.vocabulary.norm.": "cls.predictions.transform.LayerNorm.",
}


def system(arguments: argparse.Namespace):
    from lightning_modules.systems import ROBERTA_BASE

    return ROBERTA_BASE.but(
        **{
            "model.num_layers": arguments.layers, "model.hidden_size": arguments.hidden, "model.segment_types": 2,
            "model.norm_eps": 1e-12, "model.attention_dropout": arguments.attention_dropout,
            "data.corpora": ["wikipedia-mini"], "data.tokenizer.vocab_size": arguments.vocab,
            "format.sequence_length": arguments.length, "format.break_mode": "none",
            "objectives.mlm.masking.count": "bernoulli", "training.batch_size": arguments.batch,
            "training.clip_norm": 1.0, "training.steps": arguments.warm_up + arguments.steps * arguments.turns,
        }
    )  # fmt: skip


class Turns:
    """The clock of a side: after each turn it reports the seconds of the turn's steps and waits to be called.

    On a GPU all steps of a turn have its mean. The first turn warms up.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.steps, self.left, self.clock = arguments.steps, arguments.warm_up, CLOCKS[arguments.clock]
        self.is_ahead = arguments.device == "cuda"
        self.seconds, self.before = [], self.clock()

    def mark(self) -> None:
        """A step has ended."""
        self.left -= 1
        if self.is_ahead and self.left:
            return
        if self.is_ahead:
            import torch

            torch.cuda.synchronize()
        self.seconds.append(self.clock() - self.before)
        if not self.left:
            print(REPORT + json.dumps([self.seconds[0] / self.steps] if self.is_ahead else self.seconds), flush=True)
            sys.stdin.readline()
            self.seconds, self.left = [], self.steps
        self.before = self.clock()


def ours(arguments: argparse.Namespace, turns: Turns) -> None:
    import pytorch_lightning as pl

    class Clock(pl.Callback):
        def on_train_batch_end(self, *_: object) -> None:
            turns.mark()

    value = system(arguments)
    trainer = pl.Trainer(
        max_steps=value.training.steps, precision="bf16-mixed", accelerator=arguments.device, devices=1,
        callbacks=[Clock()], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, limit_val_batches=0,
    )  # fmt: skip
    trainer.fit(value.build(0), value.data_module(0))


def loop(arguments: argparse.Namespace, turns: Turns) -> None:
    import torch
    from pytorch_lightning.utilities import move_data_to_device

    value = system(arguments)
    module = value.build(0).train().to(arguments.device)
    chosen = module.configure_optimizers()
    optimizer, rate = chosen["optimizer"], chosen["lr_scheduler"]["scheduler"]
    examples: Iterable = value.data_module(0).train_dataloader()
    if arguments.device == "cuda":
        few = [move_data_to_device(example, "cuda") for example in itertools.islice(examples, 4)]
        examples = itertools.islice(itertools.cycle(few), value.training.steps)
    for example in examples:
        with torch.autocast(arguments.device, torch.bfloat16):
            total, count, _ = module.objectives.loss(module.heads, module.backbone(example), example)["mlm"]
        optimizer.zero_grad()
        (total / count).backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), value.training.clip_norm)
        optimizer.step()
        rate.step()
        turns.mark()


def bert(arguments: argparse.Namespace, dropout: float, attention_dropout: float):
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=arguments.vocab, hidden_size=arguments.hidden, num_hidden_layers=arguments.layers,
        num_attention_heads=max(1, arguments.hidden // 64), intermediate_size=4 * arguments.hidden,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=attention_dropout,
    )  # fmt: skip
    return BertForMaskedLM(config)


def theirs(arguments: argparse.Namespace, turns: Turns) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import (
        DataCollatorForLanguageModeling,
        PreTrainedTokenizerFast,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    from lightning_modules.data import open_store

    class Clock(TrainerCallback):
        def on_step_end(self, *_: object, **__: object) -> None:
            turns.mark()

    value = system(arguments)
    sequences = value.format.arrange(open_store(value.data, "train"))
    rows = [{"input_ids": row} for row in sequences.batch(range(len(sequences))).ids.tolist()]
    pieces = {piece: number for number, piece in enumerate(sequences.store.vocabulary.pieces)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(pieces, unk_token="[UNK]")),
        pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
    )  # fmt: skip
    settings = TrainingArguments(
        output_dir=str(arguments.folder), max_steps=value.training.steps, bf16=True,
        use_cpu=arguments.device == "cpu", dataloader_num_workers=8 if arguments.device == "cuda" else 0,
        per_device_train_batch_size=arguments.batch, report_to=[], save_strategy="no", logging_strategy="no",
        disable_tqdm=True,
    )  # fmt: skip
    Trainer(
        bert(arguments, value.model.dropout, arguments.attention_dropout), settings, train_dataset=rows,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15), callbacks=[Clock()],
    ).train()  # fmt: skip


def same_parameters(module) -> Iterator[tuple[object, list[str]]]:
    """Each parameter of ours with the names of theirs; queries, keys and values are one projection here."""
    for name, parameter in module.named_parameters():
        for part, other in RENAMED.items():
            name = name.replace(part, other)
        parts = ("query", "key", "value") if "qkv" in name else ("",)
        yield parameter, [name.replace("qkv", part) for part in parts]


def parity(arguments: argparse.Namespace, turns: Turns) -> None:
    """Reports the largest relative difference of a gradient between the two models."""
    import torch

    value = system(arguments)
    module, model = value.build(0).eval(), bert(arguments, 0.0, 0.0)
    example = next(iter(value.data_module(0).train_dataloader()))
    target = example.targets["mlm"]
    labels = torch.full_like(example.inputs.ids, -100)
    labels.view(-1)[target.where] = target.ids
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for own, names in same_parameters(module):
            own.copy_(torch.cat([parameters[name] for name in names]))
    model(input_ids=example.inputs.ids, attention_mask=example.inputs.real.long(), labels=labels).loss.backward()
    total, count, _ = module.objectives.loss(module.heads, module.backbone(example), example)["mlm"]
    (total / count).backward()
    differences = []
    for own, names in same_parameters(module):
        wanted = torch.cat([parameters[name].grad for name in names])
        differences.append(float((own.grad - wanted).abs().max() / wanted.abs().max()))
    print(REPORT + json.dumps(max(differences)), flush=True)


class Side:
    """A side at work in a process of its own."""

    def __init__(self, name: str, arguments: argparse.Namespace) -> None:
        chosen = {key: value for key, value in vars(arguments).items() if value not in (None, False)}
        given = [f"--{key.replace('_', '-')}={value}" for key, value in chosen.items()]
        self.name, self.errors = name, arguments.folder / f"{name}.txt"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, __file__, f"--side={name}", *given],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip

    def report(self):
        """What it says next."""
        for line in self.process.stdout:
            if line.startswith(REPORT):
                return json.loads(line.removeprefix(REPORT))
        sys.exit(f"{self.name} ended early:\n{self.errors.read_text()[-3000:]}")

    def turn(self) -> list[float]:
        """The seconds of its next steps."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.report()

    def end(self) -> None:
        """Ends the process, which is waiting."""
        self.process.kill()
        self.process.communicate()


def row(arguments: argparse.Namespace) -> tuple[str, dict]:
    """Measures one row of the table; returns it, and as data."""
    check = Side("parity", arguments)
    difference = check.report()
    check.end()
    sides = []
    for name in random.sample(SIDES, len(SIDES)):  # one after the other, so that no start disturbs a first turn
        sides.append(Side(name, arguments))
        sides[-1].report()
    times: dict[str, list[list[float]]] = {name: [] for name in SIDES}
    for _ in range(arguments.turns):
        for side in sides:
            times[side.name].append(side.turn())
    for side in sides:
        side.end()
    medians = {name: statistics.median(itertools.chain(*turns)) for name, turns in times.items()}
    ratios = [statistics.median(b) / statistics.median(a) for a, b in zip(times["ours"], times["theirs"], strict=True)]
    sizes = {name: getattr(arguments, name) for name in (*SIZES, "attention_dropout", "device")}
    data = {**sizes, "ms": {name: round(seconds * 1e3, 3) for name, seconds in medians.items()}, "turns": times}
    text = (
        f"| {arguments.layers}, {arguments.hidden} | {arguments.batch} x {arguments.length} "
        f"| {arguments.vocab:,} | {arguments.attention_dropout:g} | {medians['ours'] * 1e3:.0f} "
        f"| {medians['theirs'] * 1e3:.0f} | {medians['theirs'] / medians['ours']:.2f} "
        f"| {min(ratios):.2f} to {max(ratios):.2f} | {arguments.turns * arguments.steps} "
        f"| {medians['ours'] / medians['loop']:.2f} | {difference:.0e} |"
    )
    return text, data


def work(arguments: argparse.Namespace) -> None:
    """What a side's process does."""
    import torch

    if arguments.side == "theirs":
        torch.set_num_threads(arguments.threads)
    else:
        from lightning_modules.speed import settle

        settle(arguments.threads)
    kinds: dict[str, Callable] = {"ours": ours, "theirs": theirs, "loop": loop, "parity": parity}
    kinds[arguments.side](arguments, Turns(arguments))


def peak() -> float:
    """FLOP per second of a product of two large bf16 matrices on the GPU, the median of five."""
    import torch

    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    seconds = []
    for _ in range(6):
        torch.cuda.synchronize()
        before = time.perf_counter()
        for _ in range(10):
            a @ a
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - before)
    return 10 * 2 * 8192**3 / statistics.median(seconds[1:])


def machine(device: str) -> dict:
    """The device and the versions."""
    import platform

    import torch

    versions = {"python": platform.python_version(), "torch": torch.__version__}
    if device == "cpu":
        return {"device": platform.processor() or platform.machine(), **versions}
    return {"device": torch.cuda.get_device_name(), "peak_tflops": peak() / 1e12, **versions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in {"turns": 6, "steps": 5, "threads": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--warm-up", type=int, help="steps of the first turn, which is not counted; as many by default")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--output", type=Path, help="a JSON file of all times")
    parser.add_argument("--prepare", action="store_true", help="make the texts alone, for a machine without network")
    parser.add_argument("--model", choices=MODELS, help="one model instead of all")
    for name in SIZES:
        parser.add_argument(f"--{name}", type=int, help="in place of that of the model's rows")
    parser.add_argument("--attention-dropout", type=float, help="one rate instead of 0.1 and 0")
    parser.add_argument("--folder", type=Path, default=Path(".cache/benchmark"))
    parser.add_argument("--side", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.warm_up = arguments.warm_up or arguments.steps
    if arguments.side:
        return work(arguments)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if not arguments.prepare:
        where = "on a GPU" if arguments.device == "cuda" else f"{arguments.threads} thread(s), {arguments.clock} time"
        print(f"bf16, hidden dropout 0.1, {where}\n\n{HEADER}", flush=True)
    rows: list[dict] = []
    given = {name: value for name in SIZES if (value := getattr(arguments, name)) is not None}
    rates = [0.1, 0.0] if arguments.attention_dropout is None else [arguments.attention_dropout]
    models = ON_CUDA if arguments.device == "cuda" else MODELS
    for model in [arguments.model] if arguments.model else models:
        for sizes, rate in itertools.product(models[model], rates):
            chosen = argparse.Namespace(**vars(arguments) | sizes | given | {"attention_dropout": rate})
            data = system(chosen).data_module(0)
            data.prepare_data()
            data.setup("fit")
            if arguments.prepare:
                continue
            text, found = row(chosen)
            print(text, flush=True)
            rows.append(found)
            if arguments.output:  # after each row, since a lease may end
                arguments.output.write_text(json.dumps({"machine": machine(arguments.device), "rows": rows}, indent=1))
    return None


if __name__ == "__main__":
    from lightning_modules.speed import environment

    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    environment()
    main()
