"""Time and memory of a forward pass of the models of a grid, measured on this machine.

The model is the encoder alone (embeddings and layers, no head) with random weights: neither figure depends on training.
Cells with the same encoder are measured once. Models take turns, so that all see the same conditions; we keep medians
and quartiles over turns. No verdict rests on these figures.
"""

import io
import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablations.core import provenance, store
from ablations.schema.cell import Cell
from lightning_modules import files
from lightning_modules.config import ConfigError, Problem, did_you_mean
from lightning_modules.model import Transformer

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from lightning_modules.batch import Example

BATCHES = (1, 32)
TURNS = 15
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
TURN_SECONDS = 0.1  # per model and batch; the warm-up takes twice as long
NAME = "inference"


@dataclass(frozen=True)
class Setting:
    """How to measure.

    Attributes:
        device: ``cpu`` or ``cuda``.
        threads: Threads of torch on a CPU.
        turns: Turns of each model and batch.
        seconds: The shortest length of a turn.
        clock: ``wall``; or ``cpu``: the processor time of this process, which for one thread approximates the wall
            time on an idle machine.
        batches: Sequences of a pass.
    """

    device: str = "cpu"
    threads: int = 1
    turns: int = TURNS
    seconds: float = TURN_SECONDS
    clock: str = "wall"
    batches: tuple[int, ...] = BATCHES


def chosen(device: str) -> str:
    """``cpu`` or ``cuda``: the named device; by default ``cuda`` if available.

    Raises:
        ConfigError: For another name, and for cuda where there is none.
    """
    from torch import cuda

    if device == "cuda" and not cuda.is_available():
        raise ConfigError([Problem("--device", "this machine has no CUDA device. Allowed: cpu.")])
    if device not in ("", "cpu", "cuda"):
        raise ConfigError(
            [Problem("--device", f"there is no device {device!r}.{did_you_mean(device, ('cpu', 'cuda'))}")]
        )
    return device or ("cuda" if cuda.is_available() else "cpu")


def measure(cells: Sequence[Cell], setting: Setting, say: Callable[[str], object] = lambda _: None) -> dict[str, Any]:
    """Measures models at batches of whole sequences of the pretraining's length, fp32.

    Heads that a cell removes are missing, the same number in each layer as far as it goes: which ones is no matter of
    time. Where a cell quantises its fine-tunings, the encoder's linear layers are int8, on a CPU alone.

    Returns:
        The measurement, ready for JSON: ``device``, ``threads``, ``torch``, ``length``, ``batches`` and ``cells``, a
        mapping of each cell's label to ``parameters`` of the encoder, ``flops`` of its matrix products for a sequence,
        ``file_mb`` (10^6 bytes of its weights as torch saves them), and for each batch ``ms`` (median of turns, with
        ``low`` and ``high`` quartiles, milliseconds a pass) and ``mb`` (10^6 bytes at the peak, weights included).

    Raises:
        ConfigError: For processor time with several threads or on a GPU, and for int8 on a GPU.
    """
    import torch

    if setting.clock == "cpu" and (setting.device, setting.threads) != ("cpu", 1):
        raise ConfigError([Problem("--clock", "processor time needs one thread on a CPU. Allowed here: wall.")])
    if setting.device != "cpu" and (whole := [cell.label for cell in cells if _quantized(cell)]):
        text = f"{whole[0]} multiplies in int8, which torch does on a CPU. Allowed: cpu."
        raise ConfigError([Problem("--device", text)])
    torch.set_num_threads(setting.threads)
    models = _distinct(cells)
    passes = {}
    for key, alike in models.items():
        say(f"building {alike[0].label}")
        passes |= {(key, batch): _pass(alike[0], batch, setting.device) for batch in setting.batches}
    times: dict[Any, list[float]] = {name: [] for name in passes}
    for forward in passes.values():
        _seconds(forward, 2 * setting.seconds, CLOCKS[setting.clock])
    for turn in range(setting.turns):
        say(f"turn {turn + 1} of {setting.turns}")
        for name, forward in passes.items():
            times[name].append(1e3 * _seconds(forward, setting.seconds, CLOCKS[setting.clock]))
    rows: dict[str, Any] = {}
    for key, alike in models.items():
        first = passes[key, setting.batches[0]]
        row: dict[str, Any] = {"parameters": first.parameters, "flops": _flops(alike[0]), "file_mb": first.saved / 1e6}
        for batch in setting.batches:
            forward = passes[key, batch]
            low, median, high = _quartiles(times[key, batch])
            row[str(batch)] = {"ms": median, "low": low, "high": high, "mb": forward.peak() / 1e6}
        rows |= {cell.label: row for cell in alike}
    ordered = {cell.label: rows[cell.label] for cell in cells}
    length, missing = cells[0].system.format.sequence_length, max(map(_removed, cells))
    told = {"length": length, "batches": list(setting.batches)} | ({"heads_removed": missing} if missing else {})
    return {**_machine(setting), **told, "cells": ordered}


def _distinct(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Groups cells by encoder and sequence length."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        system = cell.system
        key = [system.model.resolved().to_dict(), system.data.tokenizer.vocab_size, system.format.sequence_length]
        key += [_removed(cell), _quantized(cell)]
        groups.setdefault(json.dumps(key, sort_keys=True), []).append(cell)
    return groups


def _removed(cell: Cell) -> int:
    removals = (run.finetuning.removal for run in cell.finetunings if run.finetuning)
    return max((removal.removed(cell.system.model.total_heads) for removal in removals if removal), default=0)


def _quantized(cell: Cell) -> bool:
    """Whether its fine-tunings are scored in int8."""
    return any(run.finetuning.quantization for run in cell.finetunings if run.finetuning)


def _flops(cell: Cell) -> float:
    """FLOPs of the matrix products for a sequence, without those of removed heads; int8 products count as others."""
    model, length = cell.system.model, cell.system.format.sequence_length
    whole, removed = model.flops_per_sequence(length), _removed(cell)
    if not removed:
        return whole
    assert isinstance(model, Transformer), "no other model has heads that can be removed"
    size = model.hidden_size // model.heads
    uses = model.stacks * model.depth * model.heads / model.total_heads  # layers that have a head, which some share
    both = size + model.key_width  # of values and of keys
    return whole - removed * uses * length * (4 * model.hidden_size * both + 2 * length * both)


@dataclass(frozen=True)
class _Pass:
    """One forward pass of a model, ready to be repeated.

    Attributes:
        model: The encoder.
        example: What it reads.
        parameters: The numbers that it has learned, in whichever type they are.
    """

    model: "torch.nn.Module"
    example: "Example"
    parameters: int

    def __call__(self) -> "Tensor":
        """Runs the pass and waits for its end."""
        import torch

        with torch.inference_mode():
            last = self.model(self.example).last
            if last.is_cuda:
                torch.cuda.synchronize(last.device)
        return last

    @property
    def saved(self) -> int:
        """Bytes of its weights as torch saves them."""
        import torch

        file = io.BytesIO()
        torch.save(self.model.state_dict(), file)
        return file.tell()

    def peak(self) -> float:
        """The peak of bytes in weights and tensors of the pass, by torch's allocator."""
        import torch
        from torch.profiler import ProfilerActivity, profile

        weights = self.saved
        if next(self.model.parameters()).is_cuda:
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            self()
            return weights + torch.cuda.max_memory_allocated() - before
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            kept = self()
        allocated = highest = 0
        for event in profiled.profiler.kineto_results.events():  # pyright: ignore[reportOptionalMemberAccess]
            if event.name() == "[memory]":
                allocated += event.nbytes()  # pyright: ignore[reportAttributeAccessIssue]  # torch's types lack it
                highest = max(highest, allocated)
        del kept
        return float(weights + highest)


def _pass(cell: Cell, batch: int, device: str) -> _Pass:
    import torch

    from lightning_modules import languages
    from lightning_modules.batch import Example, Tokens
    from lightning_modules.finetuning.head_pruning import Heads
    from lightning_modules.finetuning.quantization import Quantized

    system = cell.system
    read = {"segment": system.model.segment_types > 0, "language": bool(languages.of(system.model))}
    size, shape = system.data.tokenizer.vocab_size, (batch, system.format.sequence_length)
    draws = torch.Generator().manual_seed(0)
    tokens = Tokens(
        ids=torch.randint(size, shape, generator=draws),
        special=torch.zeros(shape, dtype=torch.bool),
        real=torch.ones(shape, dtype=torch.bool),
        sample=torch.arange(batch),
        tables={name: torch.zeros(shape, dtype=torch.long) for name, is_read in read.items() if is_read},
    )
    with torch.device(device):
        model = system.model.build(size).to(device).eval()
        if count := _removed(cell):
            heads = Heads.of(model)
            in_turn = sorted((place, number) for layer in heads.left for place, number in enumerate(layer))
            heads.remove(number for _, number in in_turn[:count])
        parameters = sum(parameter.numel() for parameter in model.parameters())
        if _quantized(cell):
            model = Quantized(model)
    return _Pass(model, Example.of(tokens).to(device), parameters)


def _seconds(forward: Callable[[], object], least: float, clock: Callable[[], float]) -> float:
    """Seconds per pass: the mean over passes that together take at least ``least`` seconds."""
    began, count = clock(), 0
    while (passed := clock() - began) < least or not count:
        forward()
        count += 1
    return passed / count


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, median, high


def _machine(setting: Setting) -> dict[str, Any]:
    import torch

    name = torch.cuda.get_device_name() if setting.device == "cuda" else _processor()
    return {
        "device": name,
        "threads": setting.threads if setting.device == "cpu" else None,
        "turns": setting.turns,
        "clock": setting.clock,
        "torch": torch.__version__,
        "commit": provenance.code()["commit"],
        "measured": provenance.now(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def keep(folder: Path, measured: Mapping[str, Any]) -> Path:
    """Adds a measurement to ``inference.json``; an older one of the same device and threads is replaced."""
    store.check_inside(folder, folder.parents[1])
    path = folder / f"{NAME}.json"
    others = [
        row for row in read(folder) if (row["device"], row["threads"]) != (measured["device"], measured["threads"])
    ]
    text = json.dumps({"measurements": [*others, measured]}, indent=1, ensure_ascii=False, allow_nan=False)
    store.write(path, f"{text}\n".encode())
    return path


def read(folder: Path) -> list[dict[str, Any]]:
    """The measurements in a page's folder; none if it has no file of them.

    Raises:
        ConfigError: For a file that `keep` did not write.
    """
    path = folder / f"{NAME}.json"
    try:
        return list(json.loads(files.read(path, within=folder.parents[1]))["measurements"])
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise no_measurements(folder, error) from None


def batches(measured: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """The batches that all of some measurements have, those of the first in order."""
    each = [row.get("batches", BATCHES) for row in measured]
    return tuple(batch for batch in each[0] if all(batch in others for others in each))


def no_measurements(folder: Path, error: Exception) -> ConfigError:
    """The error for a file that holds no measurements of inference."""
    what = f"is not a file of measurements ({error}). Delete it and run `ablations benchmark inference` again."
    return ConfigError([Problem(str(folder / f"{NAME}.json"), what)])
