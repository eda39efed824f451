"""Exports and fine-tunes checkpoints: the commands ``export`` and ``finetune``.

``export`` writes the weights of a training as a folder for ``transformers``; ``finetune`` fine-tunes any such folder
in this project's own loop. Its result is no record, since it belongs to no grid.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
    from lightning_modules.training.callbacks import Fitted

_START, _FITTED = "start.safetensors", "fitted.json"  # of the checkpoint, and of each fine-tuning, in the work folder


def export(
    run: Annotated[str, typer.Argument(help="The id of a finished training, or its first digits.")],
    folder: Annotated[Path, typer.Argument(help="The folder to write, empty or new.")],
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Writes the weights of a finished training as a folder that transformers loads, with the head of its task."""
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
    from lightning_modules.finetuning.run import FinetuningRun
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
    source = checkpoints.checked(run.system.checkpoint) if run.system.checkpoint else None
    start = interop.read(source) if source else interop.of_run(run.system, {})
    if run.finetuning is None:
        checkpoint = start.trained(load_weights(weights), run.system)
    else:
        made = FinetuningRun(run.system, run.task, run.finetuning, run.seed, None)
        checkpoint = interop.tuned(start, made, weights)
    interop.write(checkpoint, folder, None if source else tokenizer(run, records))
    if source:
        interop.copy_tokenizer(source, folder)
    return checkpoint.notes


def _exportable(prefix: str, records: "Records") -> "Run":
    """The finished training whose id starts with a prefix, if its weights are those of one encoder."""
    from ablations.inspection.trained import recorded
    from ablations.schema.kinds import KINDS
    from lightning_modules.config import ConfigError

    record = recorded(prefix, records)
    run = record.run()
    start = f" It started from {run.parents[0]}." if run.parents else ""
    if run.measuring is not None:
        what = f"a {KINDS[run.kind].noun} on {run.task}"
        raise ConfigError([f"run {run.id} is {what}. Only trainings can be exported.{start}"])
    if run.finetuning is not None and (what := _foreign(run.finetuning)):
        raise ConfigError([f"run {run.id} cannot be exported: {what}.{start}"])
    if record.outcome != "done":
        raise ConfigError([f"run {run.id} ended as {record.outcome} and left no weights"])
    return run


def _foreign(tuning: "FineTuning") -> str:
    """Which of a fine-tuning's weights transformers has not; empty if it has all but a head's."""
    from lightning_modules.tasks.reading.layout import LAYOUTS

    more = {"features": tuning.features, "bilstm_layers": tuning.bilstm_layers, "window": tuning.window}
    more |= {f"layout {tuning.layout}": LAYOUTS[tuning.layout].new}
    given = [name for name, value in more.items() if value]
    return f"finetuning.{given[0]} gives it weights that transformers has not" if given else ""


def finetune(
    source: Annotated[Path, typer.Option("--from", help="A checkpoint's folder: config.json, model.safetensors ...")],
    task: Annotated[str, typer.Option("--task", help="A downstream task, such as rte.")],
    seed: Annotated[int, typer.Option("--seed", help="Seed of the head, dropout and order.", min=0)] = 0,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="finetuning.KNOB=VALUE, or finetuning.protocol=bert. Repeatable.")
    ] = None,
    scale: Annotated[str, typer.Option("--scale", "-s", help="paper, or smoke: 64 examples once.")] = "paper",
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the result.")] = Path("evaluations"),
    save: Annotated[
        Path | None, typer.Option("--save", help="A folder, empty or new, for the fine-tuned model and its head.")
    ] = None,
    form: As = Format.table,
) -> None:
    """Fine-tunes a published checkpoint on a task and prints its scores with those of the baselines."""
    from lightning_modules import files

    with reporting_errors():
        request = Request(source, task, seed, _settings(task, scale, values(change, "--set")), output, save)
        with aside(form):
            path = evaluated(request, echo if form is Format.table else None)
        result = json.loads(files.read(path))
        if form is not Format.table:
            tell(result, form, "name")
        else:
            listing(_rows(result), form, "metric")
            echo(f"wrote {path}" if save is None else f"wrote {path} and {save}")


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
            predictions.
        save: Folder of the fine-tuned model; None keeps it nowhere.
    """

    source: Path
    task: str
    seed: int
    settings: "FineTuning"
    output: Path
    save: Path | None = None


def evaluated(request: Request, say: Callable[[str], object] | None = None) -> Path:
    """Fine-tunes and scores a checkpoint, and resumes an interrupted evaluation; see `evaluate`.

    The fine-tunings whose weights it reads are made first. Only an interruption leaves anything but a whole result.

    Args:
        request: The evaluation.
        say: Called with each part that the checkpoint lacks; without it, no progress is shown.

    Returns:
        The file of the result.

    Raises:
        ConfigError: If the checkpoint or the task is invalid, the settings ask for what a checkpoint does not have, or
            the training diverges.
    """
    from safetensors.torch import save

    from ablations.core import provenance
    from lightning_modules import NUMERICS, interop
    from lightning_modules.config import identity
    from lightning_modules.data.text.tokenizer import fingerprint
    from lightning_modules.files import write_atomically
    from lightning_modules.finetuning.run import PREDICTIONS, FinetuningRun
    from lightning_modules.tasks import fitting
    from lightning_modules.training.weights import WEIGHTS

    started, code = provenance.now(), {**provenance.code(), "code": provenance.fingerprint()}
    _check(request)
    checkpoint = interop.read(request.source)
    system = checkpoint.system
    encoder = interop.own_encoder(request.source, checkpoint.family.name, system.data.tokenizer.vocab_size)
    run = FinetuningRun(system, request.task, request.settings, request.seed, None, encoder)
    for member in run.lineage:
        member.settings.check_length(system.model.longest)
        fitting.check(system, member.task, member.settings)
        member.parameters_by_part()
    if say:
        for note in checkpoint.notes:
            say(f"{request.source}: {note}")
    what = {"checkpoint": interop.fingerprint(request.source), "tokenizer": fingerprint(encoder.path)}
    what |= {**_determining(run), "numerics": {room: NUMERICS[room] for room in ("data", "finetune")}}
    for member in run.lineage:
        member.prepare()
    name = f"{request.source.resolve().name}-{request.task}-{request.seed}-{identity(what)[:8]}"
    work, kept = request.output / f".{name}", request.output / name
    with _all_or_nothing(work, *filter(None, [request.save])):
        write_atomically(work / _START, lambda file: file.write(save(dict(checkpoint.weights))))
        made = _made(run, work, name, say is not None)
        own = work / _folder(run)
        if request.save is not None:
            tuned = interop.tuned(checkpoint, run, own / WEIGHTS)
            interop.write(tuned, request.save)
            interop.copy_tokenizer(request.source, request.save)
            for note in tuned.notes[len(checkpoint.notes) :]:
                if say:
                    say(f"{request.save}: {note}")
        if (own / PREDICTIONS).exists():
            kept.mkdir(exist_ok=True)
            os.replace(own / PREDICTIONS, kept / PREDICTIONS)
        origin = {**code, "device": provenance.device_class(), "started": started, "finished": provenance.now()}
        result = {"name": name, "family": checkpoint.family.name, "notes": list(checkpoint.notes), **what, **made}
        path = _written(request.output / f"{name}.json", {**result, "provenance": origin})
    shutil.rmtree(work)
    return path


def _check(request: Request) -> None:
    """Refuses what a checkpoint, which is the only pretraining here, has not, and a folder that cannot be saved to."""
    from lightning_modules.config import ConfigError, Problem
    from lightning_modules.parents import parts

    settings, save, wrong = request.settings, request.save, list[Problem]()
    described = parts(settings.taught.teacher).system if settings.taught else {}
    others = [f"distillation.teacher.{path}" for path in described]
    others += ["weight_pruning.rewind_to"] if settings.masking and settings.masking.rewind_to is not None else []
    for path in others:
        text = "asks for another pretraining, and --from gives one, as it ended. Leave it out. A teacher may have a "
        wrong.append(Problem(f"finetuning.{path}", f"{text}task, a seed, and knobs that start with 'finetuning.'."))
    if save is not None:
        if save.exists() and (not save.is_dir() or any(save.iterdir())):
            wrong.append(Problem("--save", f"{save} exists already and is not an empty folder. Choose another."))
        if request.output.resolve().is_relative_to(save.resolve()):
            wrong.append(Problem("--save", f"{save} would hold the results of --output. Choose another."))
        packed = settings.quantization and f"finetuning.quantization {settings.quantization} is no format of weights"
        if what := packed or _foreign(settings):
            wrong.append(Problem("--save", f"{what}. Leave one of the two out."))
    if wrong:
        raise ConfigError(wrong)


@contextmanager
def _all_or_nothing(*folders: Path) -> Iterator[None]:
    """Makes folders. A failure removes them, and what was made to hold them; an interruption leaves all."""
    new = [place for folder in folders for place in (folder, *folder.parents) if not place.exists()]
    try:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        yield
    except Exception:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        for place in new:
            with suppress(OSError):
                place.rmdir()
        raise


def _determining(run: "FinetuningRun") -> dict[str, Any]:
    """Everything but the checkpoint that determines the numbers, those of parents included."""
    from lightning_modules.tasks import fingerprint, unlabelled

    settings, parents = run.settings, {role: _determining(parent) for role, parent in run.parents.items() if parent}
    what = {"task": run.task, "examples": fingerprint(run.task), "seed": run.seed, "finetuning": settings.to_dict()}
    if settings.taught is not None and settings.taught.unlabelled:
        what["unlabelled"] = unlabelled.fingerprint(settings.taught.unlabelled)
    return what | ({"parents": parents} if parents else {})


def _folder(run: "FinetuningRun") -> str:
    from lightning_modules.config import identity

    return identity(_determining(run))[:8]


def _made(run: "FinetuningRun", work: Path, name: str, shown: bool) -> dict[str, Any]:
    """What a fine-tuning of the checkpoint found, after those of its parents; one that has ended is not repeated."""
    from lightning_modules.files import read, write_atomically
    from lightning_modules.training.weights import WEIGHTS

    weights, folder = dict.fromkeys(run.parents, work / _START), work / _folder(run)
    found: dict[str, Any] = {}
    for role, parent in run.parents.items():
        if parent is not None:
            found[role] = _determining(parent) | _made(parent, work, f"{name}, {role}: {parent.task}", shown)
            weights[role] = work / _folder(parent) / WEIGHTS
    if not (file := folder / _FITTED).exists():
        folder.mkdir(exist_ok=True)
        start, mask, teacher = (weights.get(role) for role in ("start", "mask", "teacher"))
        fitted = asdict(_finetuned(replace(run, weights=start, mask=mask, teacher=teacher), folder, name, shown))
        write_atomically(file, lambda opened: opened.write(json.dumps(fitted).encode()))
    return json.loads(read(file)) | ({"parents": found} if found else {})


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
    from lightning_modules.training.callbacks import Diverged, Interrupted

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
            left = (time.monotonic() - began) / max(1, progress.step) * (progress.steps - progress.step)
            display(Event("progress", name, name, 0, 1, 1, left, progress=asdict(progress)))

        yield tell
        display(Event("finished", name, name, 1, 1, outcome="done"))
