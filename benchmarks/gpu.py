"""What a GPU does, measured in a fixed time into one file: its core in 90 seconds, all of it in four minutes.

The core is a step of the two models of `pretrain_vs_transformers.ON_CUDA`, by this project, by Hugging Face's Trainer
and in a bare loop, as shares of the device's own matrix product; and the time to the first step of a process. All of it
has 24 small runs from the command to its end: their time, what the processors worked, and how much of the time the
device was at work. It has compiled sides, the first step of a process that finds compiled code in the cache, the other
rows of `pretrain_vs_transformers`, and the time of batches alone.

Parts come in the order of their weight. What is not finished in the time is named in the file as left out. Without
``--device cuda`` all shapes are small, to try the program.

    python benchmarks/gpu.py core --output times.json
    python benchmarks/gpu.py full --output times.json
    python benchmarks/gpu.py full --device cpu --output times.json
    python benchmarks/gpu.py full --prepare
"""

import argparse
import contextlib
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pretrain_vs_transformers as steps  # of this folder

SECONDS = {"core": 90.0, "full": 240.0}
ROWS = tuple(steps.ON_CUDA)
OTHERS = ("L12-H768-512", "gpt2", "transformer_xl_base", "xlnet_base", "L2-H128")  # of the full measurement
SMALL = {"layers": 1, "hidden": 64, "vocab": 512, "length": 32, "batch": 4}
DIVISIBLE = {"hidden": 120}  # by the heads of published systems
TURNS = {"cuda": {"turns": 2, "steps": 20, "warm_up": 60}, "cpu": {"turns": 1, "steps": 2, "warm_up": 2}}
GRID = {  # device -> settings of the 24 runs
    "cuda": {"layers": 4, "hidden": 256, "vocab": 16384, "length": 128, "batch": 256, "steps": 300},
    "cpu": SMALL | {"steps": 4},
}
RATES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4)  # of masking: with four seeds they are 24 runs
SEEDS = 4
_SUBREAPER = 36  # linux/prctl.h: processes whose parent has ended become children of this one
_GRID = """\
question: How long do 24 small runs take?
base: roberta_base
set:
  data.corpora: [wikipedia-mini]
  data.tokenizer.vocab_size: {vocab}
  model.num_layers: {layers}
  model.hidden_size: {hidden}
  model.max_positions: {length}
  model.num_heads: {heads}
  format.sequence_length: {length}
  training.batch_size: {batch}
  training.steps: {steps}
  training.precision: bf16
  evaluation.sequences: 256
  evaluation.points: 1
  evaluation.probes: []
axes:
  objectives.mlm.masking.rate: {rates}
baseline: {{objectives.mlm.masking.rate: 0.15}}
seeds: {seeds}
scales:
  smoke: {{description: as it is measured}}
metrics:
  - {{name: heldout.loss, better: lower, label: "held-out loss (nats)"}}
"""


def row(model: str, device: str, compiled: bool = False) -> argparse.Namespace:
    """The arguments of a row of `pretrain_vs_transformers`."""
    arguments = steps.parser().parse_args(["--device", device])
    sizes = {"batch": 64} | (steps.ON_CUDA | steps.EVERY)[model][0]
    if device == "cpu":
        sizes |= SMALL | (DIVISIBLE if "system" in sizes else {})
    changed = sizes | TURNS[device] | {"attention_dropout": 0.1, "compiled": compiled}
    return argparse.Namespace(**vars(arguments) | changed)


def grid_file(folder: Path, device: str) -> Path:
    """The grid of 24 runs."""
    file, sizes = folder / "small_runs.yaml", GRID[device]
    rates, heads = list(RATES), max(1, sizes["hidden"] // 64)
    file.write_text(_GRID.format(**sizes, heads=heads, rates=rates, seeds=SEEDS))
    return file


@contextlib.contextmanager
def watched(seconds: list[dict]) -> Iterator[None]:
    """Notes what the device does, five times a second: the share of the time it works, and bytes in use.

    Nothing is noted where nvidia-smi is missing.
    """
    command = ["nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits", "-lms", "200"]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        yield
        return

    def read() -> None:
        for line in process.stdout or ():
            with contextlib.suppress(ValueError):
                work, used = map(float, line.split(","))
                seconds.append({"work": work / 100, "bytes": used * 2**20})

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        process.kill()
        reader.join()
        process.wait()


def processor_seconds() -> float:
    """What all ended processes that this one began have worked, also those whose parents have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def grid(device: str, left: float) -> dict:
    """Measures 24 runs from the command to its end.

    Args:
        device: The device.
        left: Seconds that they may take.

    Raises:
        TimeoutExpired: When they take longer.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SUBREAPER, 1)
    seen: list[dict] = []
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        words = [sys.executable, "-m", "ablations", "run", str(grid_file(Path(folder), device)), "--scale", "smoke"]
        before, began = processor_seconds(), time.perf_counter()
        with watched(seen):
            done = subprocess.run(
                [*words, "--no-notebook", "--results-dir", str(results)],
                capture_output=True, text=True, timeout=left, check=False,
            )  # fmt: skip
        wall = time.perf_counter() - began
        time.sleep(1)  # the server of the workers ends after the command
        worked = processor_seconds() - before
        if done.returncode:
            raise steps.Ended(f"the grid ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
        records = [json.loads(path.read_text()) for path in results.glob("records/*/*.json")]
    costs = [record["cost"] for record in records if "cost" in record]
    trained = [number for number, one in enumerate(seen) if one["work"] > 0]
    busy = seen[trained[0] : trained[-1] + 1] if trained else []
    return {
        **GRID[device],
        "runs": len(costs),
        "wall_seconds": round(wall, 1),
        "processor_seconds": round(worked, 1),
        "seconds_in_runs": round(sum(cost["seconds"] for cost in costs), 1),
        "tokens_per_second": round(sum(cost["tokens"] for cost in costs) / wall),
        "utilisation": round(statistics.mean(one["work"] for one in seen), 3) if seen else None,
        "utilisation_from_first_to_last": round(statistics.mean(one["work"] for one in busy), 3) if busy else None,
        "peak_bytes": max((one["bytes"] for one in seen), default=None),
    }


def starts(device: str, compiled: bool) -> dict:
    """Seconds from the start of a process to the end of its first step; compiled code is in the cache by then."""
    arguments = row("L4-H256", device)
    arguments.warm_up = 2
    side = steps.Side("ours-compiled" if compiled else "ours", arguments)
    return {"first_step_seconds": round(side.report()["first"], 1)}


def prepare(full: bool, device: str) -> None:
    """Makes all texts."""
    for name in (*ROWS, *(OTHERS if full else ())):
        data = steps.system(row(name, device)).data_module(0)
        data.prepare_data()
        data.setup("fit")
    if not full:
        return
    with tempfile.TemporaryDirectory() as folder:
        grid = str(grid_file(Path(folder), device))
        words = [sys.executable, "-m", "ablations", "run", grid, "--scale", "smoke", "--prepare"]
        subprocess.run([*words, "--results-dir", f"{folder}/results"], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measure", choices=SECONDS)
    parser.add_argument("--device", choices=TURNS, default="cuda")
    parser.add_argument("--seconds", type=float, help="in all, instead of 90 and 240")
    parser.add_argument("--output", type=Path, default=Path("times.json"), help="the file of all that was measured")
    parser.add_argument("--prepare", action="store_true", help="make the texts alone, for a machine without network")
    arguments = parser.parse_args()
    full, device = arguments.measure == "full", arguments.device
    until = time.monotonic() + (arguments.seconds or SECONDS[arguments.measure])
    folder = row("L4-H256", device).folder
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.prepare:
        prepare(full, device)
        return
    most = steps.peak(device, 1)
    found = {"machine": steps.machine(device, most), "measure": arguments.measure, "left_out": []}
    print(steps.HEADER)

    def measured(model: str, compiled: bool = False) -> dict:
        text, data = steps.row(row(model, device, compiled), most, together=True)
        print(text, flush=True)
        return data

    parts: dict[str, Callable[[], dict]] = {name: partial(measured, name) for name in ROWS}
    parts["starts"] = lambda: starts(device, compiled=False)
    if full:
        first, *further = ROWS
        parts["grid of 24 runs"] = lambda: grid(device, until - time.monotonic())
        parts[f"{first}, compiled"] = partial(measured, first, compiled=True)
        parts["starts, compiled"] = lambda: starts(device, compiled=True)
        parts |= {name: partial(measured, name) for name in OTHERS}
        parts["loading"] = lambda: steps.loading(row(first, device))
        parts |= {f"{name}, compiled": partial(measured, name, compiled=True) for name in further}
    for name, part in parts.items():
        began, left = time.monotonic(), until - time.monotonic()
        end = threading.Timer(left, lambda: [side.process.kill() for side in steps.Side.active])
        end.start()
        try:
            if left <= 0:
                raise TimeoutError
            found[name] = part() | {"seconds": round(time.monotonic() - began, 1)}
        except (TimeoutError, subprocess.TimeoutExpired, steps.Ended) as error:
            is_late = time.monotonic() >= until
            found["left_out"].append({"part": name, "reason": "no time" if is_late else str(error)[-500:]})
        finally:
            end.cancel()
            for side in list(steps.Side.active):
                side.end()
        arguments.output.write_text(json.dumps(found, indent=1))  # after each part, since the time may end
    for left_out in found["left_out"]:
        print(f"left out: {left_out['part']} ({left_out['reason']})")


if __name__ == "__main__":
    from lightning_modules.speed import environment

    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    environment()
    main()
