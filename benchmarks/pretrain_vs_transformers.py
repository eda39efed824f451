"""Step time of pretraining: this project against Hugging Face's Trainer, interleaved in one run.

Same text, tokenizer, sizes, batch, precision, dropouts, masking rate and thread count; each side as its own
users would run it: ours through `System` and Lightning's Trainer, theirs through `BertForMaskedLM`, `Trainer`
and `DataCollatorForLanguageModeling`. A third side, our module in a bare loop, shows what Lightning costs.
With ``--compiled`` there are two more, ours and theirs with compiled layers or models. GPT-2, Transformer-XL and XLNet
have our sides alone, as all have where transformers or accelerate is missing. The rows go from the size of the laptop
runs to BERT-base with a small batch; on a GPU the batches are large.

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
    python benchmarks/pretrain_vs_transformers.py --device cuda --warm-up 60 --compiled --every --output times.json

`benchmarks/gpu.py` measures the rows of a GPU in a fixed time, and a grid of small runs. The time of batches alone::

    python benchmarks/pretrain_vs_transformers.py --loading
"""

import argparse
import importlib.util
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
from typing import ClassVar

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
SIDES = ("ours", "theirs", "loop")
COMPILED = ("ours-compiled", "theirs-compiled")
SIZES = ("layers", "hidden", "vocab", "length", "batch")
OTHERS = {  # system -> what of it changes here
    "gpt2": {"data.tokenizer.kind": "wordpiece", "data.tokenizer.lowercase": True},
    "transformer_xl_base": {},
    "xlnet_base": {"format.kind": "full_sentences", "format.break_mode": "none", "data.tokenizer.kind": "wordpiece"},
}
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
# The same with --every, on each device; the sizes are those of the systems but for a small batch on a CPU.
LONG = {"layers": 12, "hidden": 768, "vocab": 30522, "length": 512}
EVERY = {
    "L2-H128": ({"layers": 2, "hidden": 128, "vocab": 4096, "length": 64, "batch": 256},),
    "L12-H768-512": (LONG,),
    "gpt2": (LONG | {"system": "gpt2", "vocab": 16384},),
    "transformer_xl_base": (
        {"system": "transformer_xl_base", "layers": 16, "hidden": 410, "vocab": 16384, "length": 150},
    ),
    "xlnet_base": (LONG | {"system": "xlnet_base", "vocab": 16384},),
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
    from lightning_modules.systems import SYSTEMS

    common = {
        "model.num_layers": arguments.layers, "model.hidden_size": arguments.hidden,
        "model.attention_dropout": arguments.attention_dropout, "data.corpora": ["wikipedia-mini"],
        "data.tokenizer.vocab_size": arguments.vocab, "format.sequence_length": arguments.length,
        "training.batch_size": arguments.batch,
        "training.clip_norm": 1.0, "training.steps": arguments.warm_up + arguments.steps * arguments.turns,
    }  # fmt: skip
    if arguments.system:
        return SYSTEMS[arguments.system].but(**common, **OTHERS[arguments.system])
    own = {"model.segment_types": 2, "model.norm_eps": 1e-12, "format.break_mode": "none"}
    return SYSTEMS["roberta_base"].but(**common, **own, **{"objectives.mlm.masking.count": "bernoulli"})


class Turns:
    """The clock of a side: after each turn it reports the seconds of the turn's steps and waits to be called.

    On a GPU all steps of a turn have its mean. The first turn warms up.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.steps, self.left, self.clock = arguments.steps, arguments.warm_up, CLOCKS[arguments.clock]
        self.is_ahead, self.began = arguments.device == "cuda", arguments.began
        self.seconds, self.before = [], self.clock()

    def mark(self, size: int = 1) -> None:
        """A step has ended; its seconds are divided by its size."""
        self.left -= 1
        if self.is_ahead and self.left and not self.began:
            return
        told = {}
        if self.is_ahead:
            import torch

            torch.cuda.synchronize()
            told["bytes"] = torch.cuda.max_memory_allocated()
        if self.began:
            self.first, self.began = time.time() - self.began, 0.0
        self.seconds.append((self.clock() - self.before) / size)
        if not self.left:
            seconds = [sum(self.seconds) / self.steps] if self.is_ahead else self.seconds
            print(REPORT + json.dumps({"seconds": seconds, "first": self.first, **told}), flush=True)
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
    module, data = value.build(0), value.data_module(0)
    data.workers = arguments.workers
    if arguments.side.endswith("compiled"):
        from lightning_modules.training.execution import compiled

        compiled(module)
    trainer.fit(module, data)


def loop(arguments: argparse.Namespace, turns: Turns) -> None:
    import torch
    from pytorch_lightning.utilities import move_data_to_device

    from lightning_modules.training.module import step_loss

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
            encoded = module.state.encode(module.backbone, example)
            loss = step_loss(module.objectives.loss(module.heads, encoded, example), {})
        optimizer.zero_grad()
        loss.backward()
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
        disable_tqdm=True, torch_compile=arguments.side.endswith("compiled"),
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


class Ended(SystemExit):
    """The process of a side ended early."""


class Side:
    """A side at work in a process of its own.

    Attributes:
        active: All that have not ended.
        program: What its process executes.
    """

    active: ClassVar[list["Side"]] = []
    program: ClassVar[str] = __file__

    def __init__(self, name: str, arguments: argparse.Namespace) -> None:
        chosen = {key: value for key, value in vars(arguments).items() if value is not None and value is not False}
        chosen |= {"began": time.time()}
        given = [f"--{key.replace('_', '-')}={value}" for key, value in chosen.items() if value is not True]
        self.name, self.errors = name, arguments.folder / f"{name}.txt"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, self.program, f"--side={name}", *given],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        self.active.append(self)

    def report(self):
        """What it says next.

        Raises:
            Ended: With the end of what it wrote, if it has ended.
        """
        for line in self.process.stdout:
            if line.startswith(REPORT):
                return json.loads(line.removeprefix(REPORT))
        raise Ended(f"{self.name} ended early:\n{self.errors.read_text()[-3000:]}")

    def turn(self) -> dict:
        """The seconds of its next steps, those to its first, and its peak memory."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.report()

    def end(self) -> None:
        """Ends the process, which is waiting."""
        self.active.remove(self)
        self.process.kill()
        self.process.communicate()


def row(arguments: argparse.Namespace, most: float, together: bool = False) -> tuple[str, dict]:
    """Measures one row of the table; returns it, and as data.

    Args:
        arguments: Sizes, turns, and which sides there are.
        most: FLOP per second of this machine's matrix product.
        together: Whether all sides start at once, which is sooner and makes first steps slower. Then gradients are not
            compared.
    """
    names = [*SIDES, *(COMPILED if arguments.compiled else ())]
    difference = None
    if arguments.system or not all(map(importlib.util.find_spec, ("transformers", "accelerate"))):
        names = [name for name in names if not name.startswith("theirs")]
    elif not together:
        check = Side("parity", arguments)
        difference = check.report()
        check.end()
    sides = []
    for name in random.sample(names, len(names)):  # one after the other, so that no start disturbs a first turn
        sides.append(Side(name, arguments))
        if not together:
            sides[-1].report()
    for side in sides if together else ():
        side.report()
    told: dict[str, list[dict]] = {name: [] for name in names}
    for _ in range(arguments.turns):
        for side in sides:
            told[side.name].append(side.turn())
    for side in sides:
        side.end()
    times = {name: [turn["seconds"] for turn in turns] for name, turns in told.items()}
    medians = {name: statistics.median(itertools.chain(*turns)) for name, turns in times.items()}
    other = times.get("theirs", times["loop"])
    ratios = [statistics.median(b) / statistics.median(a) for a, b in zip(times["ours"], other, strict=True)]
    sizes = {name: getattr(arguments, name) for name in ("system", *SIZES, "attention_dropout", "device")}
    flops = system(arguments).flops_per_step()
    data = {
        **sizes,
        "ms": {name: round(seconds * 1e3, 3) for name, seconds in medians.items()},
        "over_loop": round(medians["ours"] / medians["loop"], 3),
        "trainer_over_ours": round(medians["theirs"] / medians["ours"], 3) if "theirs" in medians else None,
        "share_of_peak": {name: round(flops / seconds / most, 4) for name, seconds in medians.items()},
        "peak_bytes": {name: turns[-1].get("bytes") for name, turns in told.items()},
        "first_step_seconds": {name: round(turns[-1]["first"], 1) for name, turns in told.items()},
        "turns": times,
    }
    theirs = (
        f"{medians['theirs'] * 1e3:.0f} | {medians['theirs'] / medians['ours']:.2f}" if "theirs" in medians else "- | -"
    )
    text = (
        f"| {arguments.layers}, {arguments.hidden} | {arguments.batch} x {arguments.length} "
        f"| {arguments.vocab:,} | {arguments.attention_dropout:g} | {medians['ours'] * 1e3:.0f} "
        f"| {theirs} "
        f"| {min(ratios):.2f} to {max(ratios):.2f} | {arguments.turns * arguments.steps} "
        f"| {medians['ours'] / medians['loop']:.2f} | {'-' if difference is None else format(difference, '.0e')} |"
    )
    return text, data


def loading(arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Prints how long a training waits for a batch while a device works 5 ms on each, by who prepares it.

    Returns:
        The same in ms: who prepares it -> the first wait, and the median of the others.
    """
    from lightning_modules.data.order.batches import Prefetch

    data = system(arguments).data_module(0)
    data.setup("fit")
    found = {}
    print("| batches are made | first, ms | wait, ms |\n| :-- | --: | --: |")
    for name, workers, prefetch in (
        ("in place", 0, Prefetch()),
        ("ahead, by a thread", 0, Prefetch(ahead=2)),
        *((f"by {count} processes", count, Prefetch()) for count in (1, 2, 4)),
    ):
        data.workers, data.prefetch = workers, prefetch
        examples, waits = iter(data.train_dataloader()), []
        for _ in range(arguments.turns * arguments.steps):
            before = time.perf_counter()
            next(examples)
            waits.append(time.perf_counter() - before)
            time.sleep(0.005)
        found[name] = {"first": waits[0] * 1e3, "wait": statistics.median(waits[1:]) * 1e3}
        print(f"| {name} | {found[name]['first']:.2f} | {found[name]['wait']:.2f} |", flush=True)
    return found


def work(arguments: argparse.Namespace) -> None:
    """What a side's process does."""
    import torch

    if arguments.side == "theirs":
        torch.set_num_threads(arguments.threads)
    else:
        from lightning_modules.speed import settle

        settle(arguments.threads)
    kinds: dict[str, Callable] = {"ours": ours, "theirs": theirs, "loop": loop, "parity": parity}
    kinds[arguments.side.removesuffix("-compiled")](arguments, Turns(arguments))


def peak(device: str, threads: int) -> float:
    """FLOP per second of a product of two large matrices, bf16 on a GPU and fp32 on a CPU, the median of five."""
    import torch

    torch.set_num_threads(threads)
    size, times = (8192, 10) if device == "cuda" else (1024, 1)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    a = torch.randn(size, size, device=device, dtype=torch.bfloat16 if device == "cuda" else torch.float32)
    seconds = []
    for _ in range(6):
        wait()
        before = time.perf_counter()
        for _ in range(times):
            a @ a
        wait()
        seconds.append(time.perf_counter() - before)
    return times * 2 * size**3 / statistics.median(seconds[1:])


def machine(device: str, most: float) -> dict:
    """The device, the FLOP per second of its matrix product, and the versions."""
    import platform

    import torch

    versions = {"python": platform.python_version(), "torch": torch.__version__}
    name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
    return {"device": name, "peak_tflops": most / 1e12, **versions}


def parser() -> argparse.ArgumentParser:
    """The options of this program, and of its sides."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in {"turns": 6, "steps": 5, "threads": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--warm-up", type=int, help="steps of the first turn, which is not counted; as many by default")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--output", type=Path, help="a JSON file of all times")
    parser.add_argument("--prepare", action="store_true", help="make the texts alone, for a machine without network")
    parser.add_argument("--model", choices=[*MODELS, *EVERY], help="one model instead of all")
    parser.add_argument("--every", action="store_true", help="also the rows of EVERY")
    parser.add_argument("--compiled", action="store_true", help="also sides with compiled layers or models")
    parser.add_argument("--loading", action="store_true", help="the time that batches take, instead of steps")
    parser.add_argument("--workers", type=int, default=0, help="processes that prepare batches of ours")
    for name in SIZES:
        parser.add_argument(f"--{name}", type=int, help="in place of that of the model's rows")
    parser.add_argument("--attention-dropout", type=float, help="one rate instead of 0.1 and 0")
    parser.add_argument("--folder", type=Path, default=Path(".cache/benchmark"))
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--system", choices=OTHERS, help=argparse.SUPPRESS)
    parser.add_argument("--began", type=float, default=0.0, help=argparse.SUPPRESS)
    return parser


def main() -> None:
    arguments = parser().parse_args()
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
    on_cuda = arguments.device == "cuda"
    models = (ON_CUDA if on_cuda else MODELS) | (EVERY if arguments.every or arguments.model in EVERY else {})
    most = 0.0
    for model in [arguments.model] if arguments.model else models:
        for sizes, rate in itertools.product(models[model], rates):
            usual = {"batch": 64 if on_cuda else 2}  # of rows that name none
            chosen = argparse.Namespace(**vars(arguments) | usual | sizes | given | {"attention_dropout": rate})
            data = system(chosen).data_module(0)
            data.prepare_data()
            data.setup("fit")
            if arguments.prepare:
                continue
            if arguments.loading:
                loading(chosen)
                continue
            most = most or peak(arguments.device, arguments.threads)
            text, found = row(chosen, most)
            print(text, flush=True)
            rows.append(found)
            if arguments.output:  # after each row, since the time may end
                about = machine(arguments.device, most)
                arguments.output.write_text(json.dumps({"machine": about, "rows": rows}, indent=1))
    return None


if __name__ == "__main__":
    from lightning_modules.speed import environment

    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    environment()
    main()
