"""Exports and fine-tunes checkpoints: the commands ``export`` and ``finetune``.

``export`` writes the weights of a training as a folder for ``transformers``; ``finetune`` fine-tunes any such folder
in this project's own loop. Its result is no record, since it belongs to no grid.
"""

import json
import shutil
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablations.commands.terminal import As, Format, Results, aside, echo, known, listing, reporting_errors, tell, values

if TYPE_CHECKING:
    from ablations.core.store import Records
    from ablations.schema.run import Run
    from lightning_modules.finetuning.run import FinetuningRun
    from lightning_modules.tasks import FineTuning
    from lightning_modules.training.recorder import Fitted

_START = "start.safetensors"


def export(
    run: Annotated[str, typer.Argument(help="The id of a finished training, or its first digits.")],
    folder: Annotated[Path, typer.Argument(help="The folder to write, empty or new.")],
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Writes the weights of a finished training as a folder that transformers loads, without the head of a task."""
    with reporting_errors():
        notes = exported(run, folder, results_dir)
        people = *(f"note: {note}" for note in notes), f"wrote {folder}"
        tell({"folder": folder, "notes": notes}, form, "folder", *people)


def exported(prefix: str, folder: Path, results_dir: str | Path | None = None) -> tuple[str, ...]:
    """Exports the weights of a run; see `export`.

    Returns:
        The differences in transformers, one line each.

    Raises:
        ConfigError: If there is no such run, its weights are missing, or transformers cannot express its knobs.
    """
    from ablations.inspection.trained import tokenizer
    from lightning_modules import checkpoints, interop
    from lightning_modules.config import ConfigError
    from lightning_modules.training.weights import load_weights

    records = known(results_dir)
    run = _exportable(prefix, records)
    interop.of_run(run.system, {})  # raises for unsupported knobs before the search for weights
    weights = records.weights(run.id)
    if weights is None:
        raise ConfigError(
            [
                f"the weights of run {run.id} are neither on this machine as they were written nor kept with its "
                f"record. To train it again, run its grid with `--results-dir OTHER` and export with "
                f"`--results-dir OTHER`, or delete {records.path(run.id)} and run its grid"
            ]
        )
    checkpoint = interop.of_run(run.system, load_weights(weights))
    if not (name := run.system.checkpoint):
        interop.write(checkpoint, folder, tokenizer(run, records))
        return checkpoint.notes
    source = checkpoints.checked(name)
    released = interop.read(source)
    interop.write(replace(released, weights=checkpoint.weights), folder)
    for file in (file for file in checkpoints.TOKENIZER if (source / file).exists()):
        shutil.copy(source / file, folder / file)
    return checkpoint.notes


def _exportable(prefix: str, records: "Records") -> "Run":
    """The finished training whose id starts with a prefix, if its weights are those of one encoder."""
    from ablations.inspection.trained import recorded
    from ablations.schema.kinds import KINDS
    from lightning_modules.config import ConfigError
    from lightning_modules.tasks.reading.layout import LAYOUTS

    record = recorded(prefix, records)
    run = record.run()
    start = f" It started from {run.parents[0]}." if run.parents else ""
    if run.measuring is not None:
        what = f"a {KINDS[run.kind].noun} on {run.task}"
        raise ConfigError([f"run {run.id} is {what}. Only trainings can be exported.{start}"])
    if (tuning := run.finetuning) is not None:
        more = {"features": tuning.features, "bilstm_layers": tuning.bilstm_layers, "window": tuning.window}
        more |= {f"layout {tuning.layout}": LAYOUTS[tuning.layout].new}
        if given := [name for name, value in more.items() if value]:
            what = f"finetuning.{given[0]} gives it weights that transformers has not"
            raise ConfigError([f"run {run.id} cannot be exported: {what}.{start}"])
    if record.outcome != "done":
        raise ConfigError([f"run {run.id} ended as {record.outcome} and left no weights"])
    return run


def finetune(
    source: Annotated[Path, typer.Option("--from", help="A checkpoint's folder: config.json, model.safetensors ...")],
    task: Annotated[str, typer.Option("--task", help="A downstream task, such as rte.")],
    seed: Annotated[int, typer.Option("--seed", help="Seed of the head, dropout and order.", min=0)] = 0,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="finetuning.KNOB=VALUE, or finetuning.protocol=bert. Repeatable.")
    ] = None,
    scale: Annotated[str, typer.Option("--scale", "-s", help="paper, or smoke: 64 examples once.")] = "paper",
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the result.")] = Path("evaluations"),
    form: As = Format.table,
) -> None:
    """Fine-tunes a published checkpoint on a task and prints its scores with those of the baselines."""
    from lightning_modules import files

    with reporting_errors():
        request = Request(source, task, seed, _settings(task, scale, values(change, "--set")), output)
        with aside(form):
            path = evaluated(request, echo if form is Format.table else None)
        result = json.loads(files.read(path))
        if form is not Format.table:
            tell(result, form, "name")
        else:
            listing(_rows(result), form, "metric")
            echo(f"wrote {path}")


def _rows(result: dict[str, Any]) -> list[dict[str, str]]:
    """One row per metric, with the scores of simple methods."""
    metrics, rows = result["metrics"], []
    for name, value in metrics.items():
        if name.count(".") == 1:
            beside = {who: metrics.get(f"{name}.{who}") for who in ("majority", "tfidf")}
            shown = {who: "" if score is None else f"{score:.4f}" for who, score in beside.items()}
            rows.append({"metric": name, "value": f"{value:.4f}", **shown})
    return rows


@dataclass(frozen=True)
class Request:
    """One evaluation of a checkpoint.

    Attributes:
        source: The checkpoint's folder.
        task: The task.
        seed: Seed of the head's initialisation, dropout and order.
        settings: The settings of the fine-tuning.
        output: Folder of the result ``<checkpoint>-<task>-<seed>-<digits>.json`` and of a folder of that name for the
            files of the training.
    """

    source: Path
    task: str
    seed: int
    settings: "FineTuning"
    output: Path


def evaluated(request: Request, say: Callable[[str], object] | None = None) -> Path:
    """Fine-tunes and scores a checkpoint, and resumes an interrupted evaluation; see `evaluate`.

    Args:
        request: The evaluation.
        say: Called with each part that the checkpoint lacks; without it, no progress is shown.

    Returns:
        The file of the result.

    Raises:
        ConfigError: If the checkpoint or the task is invalid, or the training diverges.
    """
    from safetensors.torch import save

    from ablations.core import provenance
    from lightning_modules import cached, interop
    from lightning_modules.config import identity
    from lightning_modules.files import write_atomically
    from lightning_modules.finetuning.run import FinetuningRun
    from lightning_modules.tasks import fitting
    from lightning_modules.training.recorder import CHECKPOINT
    from lightning_modules.training.weights import WEIGHTS

    started, code = provenance.now(), {**provenance.code(), "code": provenance.fingerprint()}
    checkpoint = interop.read(request.source)
    system = checkpoint.system
    encoder = interop.own_encoder(request.source, checkpoint.family.name, system.data.tokenizer.vocab_size)
    request.settings.check_length(system.model.longest)
    fitting.check(system, request.task, request.settings)
    if say:
        for note in checkpoint.notes:
            say(f"{request.source}: {note}")
    what = _determining(request, encoder.path)
    name = f"{request.source.resolve().name}-{request.task}-{request.seed}-{identity(what)[:8]}"
    work = request.output / name
    work.mkdir(parents=True, exist_ok=True)
    write_atomically(work / _START, lambda file: file.write(save(dict(checkpoint.weights))))
    finetuning_run = FinetuningRun(system, request.task, request.settings, request.seed, work / _START, encoder)
    fitted = _finetuned(finetuning_run, work, name, say is not None)
    origin = {**code, "device": provenance.device_class(), "started": started}
    result = {"name": name, "family": checkpoint.family.name, "notes": list(checkpoint.notes), **what, **asdict(fitted)}
    result["provenance"] = origin | {"finished": provenance.now()}
    for left in (_START, CHECKPOINT, WEIGHTS):
        cached.remove(work / left)
    if not any(work.iterdir()):
        work.rmdir()
    return _written(request.output / f"{name}.json", result)


def _determining(request: Request, tokenizer: Path) -> dict[str, Any]:
    """Everything that determines the numbers."""
    from lightning_modules import NUMERICS
    from lightning_modules.data.text.tokenizer import fingerprint as digest
    from lightning_modules.interop import fingerprint
    from lightning_modules.tasks import fingerprint as examples

    return {
        "checkpoint": fingerprint(request.source),
        "tokenizer": digest(tokenizer),
        "task": request.task,
        "examples": examples(request.task),
        "seed": request.seed,
        "finetuning": request.settings.to_dict(),
        "numerics": {room: NUMERICS[room] for room in ("data", "finetune")},
    }


def _written(path: Path, result: dict[str, Any]) -> Path:
    from ablations.core.store import write

    write(path, (json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())
    return path


def _settings(task: str, scale: str, changes: dict[str, Any]) -> "FineTuning":
    from ablations.planning import scales
    from ablations.planning.afterwards import finetuning, idle_for
    from ablations.schema.grid import FINETUNING
    from lightning_modules.config import ConfigError, Problem
    from lightning_modules.tasks import task_named

    task_named(task)
    shortened = scales.checkpoints(scale)
    wrong = [
        Problem(path, f"only knobs that start with '{FINETUNING}' can be set")
        for path in changes
        if not path.startswith(FINETUNING)
    ]
    own = {path.removeprefix(FINETUNING): value for path, value in changes.items()}
    wrong += [Problem(FINETUNING + name, reason) for name, reason in idle_for(task, own).items()]
    if wrong:
        raise ConfigError(wrong)
    return finetuning({**shortened, **changes}, task)


def _finetuned(finetuning_run: "FinetuningRun", work: Path, name: str, shown: bool) -> "Fitted":
    """Fine-tunes with a progress bar; a signal writes a checkpoint first."""
    from ablations.running.inline import quiet
    from ablations.running.signals import ending, patient
    from lightning_modules import speed
    from lightning_modules.config import ConfigError
    from lightning_modules.finetuning.run import finetune
    from lightning_modules.training.recorder import Diverged, Interrupted

    speed.settle()
    with ending(), _bar(name, shown) as tell, patient() as interrupt, quiet():
        try:
            return finetune(finetuning_run, work, on_progress=tell, stop=interrupt.is_set)
        except Interrupted:
            interrupt.raise_again()
        except Diverged as error:
            raise ConfigError([f"{error}. A smaller finetuning.optimizer.peak_lr may help."]) from None


@contextmanager
def _bar(name: str, shown: bool) -> Any:
    """Shows progress in the display of grids, as a plan of one run."""
    from ablations.running.launch import Event
    from ablations.running.progress import Display, fitting

    began = time.monotonic()
    with fitting() if shown else Display() as display:

        def tell(progress: Any) -> None:
            left = (time.monotonic() - began) / progress.step * (progress.steps - progress.step)
            display(Event("progress", name, name, 0, 1, 1, left, progress=asdict(progress)))

        yield tell
        display(Event("finished", name, name, 1, 1, outcome="done"))
