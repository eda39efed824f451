"""The command line: reads options, calls the library, prints.

Commands import heavy packages (torch, pandas) themselves, so that ``--help`` is immediate.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablations import __version__
from ablations.commands import (
    ask,
    campaign,
    checkpoints,
    claims,
    data,
    evaluate,
    grid_files,
    inference,
    jobs,
    params,
    stores,
    tokenizer,
)
from ablations.commands.terminal import (
    USUAL,
    WRONG,
    As,
    Axis,
    Checkpointing,
    Compiling,
    Devices,
    Engine,
    EngineOption,
    Filter,
    For,
    Format,
    Grid,
    In,
    Logger,
    Look,
    Nodes,
    Notation,
    Parameter,
    Results,
    Scale,
    Seeds,
    Set,
    Sharing,
    Shown,
    Slice,
    aside,
    axes,
    complain,
    echo,
    existing,
    existing_folder,
    known,
    listed,
    listing,
    moment,
    overridden,
    plain,
    reporting_errors,
    seconds_of,
    show,
    tell,
    unescaped,
    values,
    watching,
    wrapped,
)

if TYPE_CHECKING:
    from ablations.claims.verdict import Verdict
    from ablations.study import Study


_MOST = 3  # metrics of a cell
_COLOURS = {"as claimed": "green", "against": "red"}


def tell_results(study: "Study") -> None:
    """Prints what the page of a study says first, and where it is."""
    from ablations.claims.headline import headline
    from ablations.pages import judged
    from ablations.pages.lead import answer, conclusion

    plan, measured = study.resolve(), study.measurements
    verdicts = judged.verdicts(study.scale, measured)
    echo(plan.grid.question, bold=True)
    counts = plan.counts
    echo(f"{plan.grid.name} at {plan.folder_name}: {counts.get('done', 0)} of {len(plan.runs)} runs")
    stated = () if plan.overrides or plan.scale not in plan.grid.scales else plan.grid.scales[plan.scale].conclusion
    said = conclusion.sentences(stated, measured, verdicts)
    if lead := answer.lead(measured, said, headline(measured, verdicts)):
        echo()
        echo(wrapped(unescaped(f"{lead} {answer.tally(verdicts)}".replace("**", ""))))
    listing(list(_cells(study)), Format.table, "cell")
    if verdicts:
        listing([_claim(verdict) for verdict in verdicts], Format.table, "verdict", _COLOURS)
    page = study.folder / "README.md"
    echo(f"page: {page}" if page.exists() else "no page yet")


def _cells(study: "Study") -> Iterator[dict[str, Any]]:
    """Each cell with its runs and the means of the first metrics that were measured."""
    from ablations.core.formatting import cell_text, mean_text
    from ablations.measurements.summaries import planned_metrics, summarise

    measured = study.measurements.in_order()
    found = summarise(measured)
    metrics = [
        metric
        for metric in planned_metrics(measured.grid, measured.cells)
        if any(item.metrics[metric.name].interval.mean is not None for item in found)
    ]
    for item in found:
        means = {metric.label or metric.name: mean_text(item.metrics[metric.name].interval) for metric in metrics}
        counts = {"cell": cell_text(item.cell.values), "runs": f"{item.finished} of {item.planned}"}
        yield counts | dict(list(means.items())[:_MOST])


def _claim(verdict: "Verdict") -> dict[str, str]:
    """A claim as a row: its verdict, the effect with the interval that decides, its regime or why it has none."""
    from ablations.core.formatting import fixed, places, range_text

    interval, effect, text = verdict.adjusted, verdict.effect, ""
    if effect is not None and interval.low is not None:
        text = f"{fixed(effect, places(interval.half, effect), sign=True)} {verdict.unit}".strip()
        text += f" {range_text(interval)}"
    return {
        "verdict": verdict.standing,
        "claim": verdict.claim.statement,
        "effect (+ as claimed)": text,
        "n": str(verdict.n or ""),
        "regime": str(verdict.regime or verdict.reason),
    }


app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


def _tell_version(asked: bool) -> None:
    if asked:
        echo(f"ablations {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Ablations of pretrained language models: grids, runs, records, tables, verdicts."""
    from lightning_modules.places import study

    if inside := study():
        echo(f"study {inside}", err=True)


def plan(
    grid: Grid,
    scale: Shown = USUAL,
    seeds: Seeds = None,
    filter: Filter = None,
    axis: Axis = None,
    set: Set = None,
    look: Look = None,
    devices: Devices = 1,
    num_nodes: Nodes = 1,
    strategy: Sharing = "ddp",
    activation_checkpointing: Checkpointing = False,
    duration: For = None,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Shows the cells, the runs, their cost, and the smallest effect that each claim can show. Trains nothing."""
    from ablations.commands import unchanged
    from lightning_modules.places import results

    request = {"grid": grid, "scale": scale, "seeds": seeds, "filter": filter, "look": look, "format": form.value}
    request |= {"axis": axis, "set": set, "for": duration}
    sharing = {"devices": devices, "num_nodes": num_nodes, "strategy": strategy}
    sharing |= {"activation_checkpointing": activation_checkpointing}

    def made() -> list[str]:
        from ablations.running import estimate
        from ablations.study import Study  # torch and pandas, which a plan that is kept does without

        study = Study(grid, scale, **overridden(axis, set, filter), seeds=seeds, results_dir=results_dir).at_look(look)
        planned = study.plan(**sharing)
        if form is Format.table:
            named = f"Grid {grid} at scale {scale}:"
            within = [] if duration is None else [estimate.within(study.resolve(), seconds_of(duration))]
            return [named, *map(str, (study.about(brief=True), planned, *within, study.power()))]
        return [listed(planned.data.to_dict("records"), form, "cell")]

    with reporting_errors():
        with watching():
            pieces = unchanged.said("plan", request | sharing, results(results_dir), made)
        show(*pieces) if form is Format.table else echo(pieces[0])


_TRY_AGAIN = 75  # EX_TEMPFAIL of sysexits.h


def run(
    grid: Grid,
    scale: Scale,
    executor: Engine = "local",
    executor_option: EngineOption = None,
    seeds: Seeds = None,
    filter: Filter = None,
    axis: Axis = None,
    set: Set = None,
    slice: Slice = None,
    look: Look = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", help="The most runs at once on this machine.", min=1)
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be trained and its cost. Train nothing.")
    ] = False,
    prepare_only: Annotated[
        bool, typer.Option("--prepare", help="Make what the runs read, in the cache. Train nothing.")
    ] = False,
    parameter: Parameter = None,
    notebook: Annotated[str | None, typer.Option(help="A notebook to use instead of the grid's own.")] = None,
    no_notebook: Annotated[bool, typer.Option("--no-notebook", help="Train and publish without Jupyter.")] = False,
    retries: Annotated[int, typer.Option(help="How often to retry a failed run.", min=0)] = 1,
    devices: Devices = 1,
    num_nodes: Nodes = 1,
    strategy: Sharing = "ddp",
    activation_checkpointing: Checkpointing = False,
    compile_layers: Compiling = False,
    duration: For = None,
    logger: Logger = "",
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Trains missing runs, publishes tables and figures, and executes the grid's notebook.

    Exits with 0 only if every run of the plan is done. Runs of a search may have diverged. With --for, it exits with 75
    if runs are left for want of time alone. The same command continues them, and the notebook waits for the last. With
    --slice it is not executed. With what --prepare makes, the same command needs no text, no data set and no network.
    """
    from ablations.core import notebooks
    from ablations.planning import grids
    from ablations.running.execute import chosen
    from ablations.study import Study
    from lightning_modules.config import ConfigError, Problem
    from lightning_modules.training.execution import Execution, check_logger

    with reporting_errors():
        if logger:
            check_logger(logger)
        until, part = moment(duration), values(slice, "--slice")
        filters, parameters = values(filter, "--filter"), _not_given(values(parameter, "--parameter"))
        options = values(executor_option, "--executor-option")
        if jobs is not None and executor not in ("local", "inline"):
            raise ConfigError([Problem("--jobs", f"limits the runs of this machine, and {executor} has others")])
        if executor == "inline" and jobs not in (None, 1):
            raise ConfigError([Problem("--jobs", f"inline makes one run at a time, not {jobs}: leave it out, or 1")])
        if jobs is not None and executor == "local":
            options["slots"] = jobs
        asked = {**options, "kind": executor} if options else executor
        chosen(asked)
        changed = {"axes": axes(axis) or None, "set": values(set, "--set") or None}
        common = {"scale": scale, "seeds": seeds, "filters": filters or None, "executor": asked}
        common |= {"results_dir": results_dir}
        usual = notebooks.ANY_GRID if any(changed.values()) else None  # the grid's own need not know the parameters
        source = None if no_notebook else notebooks.find(grid, notebook or usual)
        if source is not None:
            parameters = notebooks.checked(source, grid, common | changed | parameters, grids.read(grid).axes)
        elif parameters:
            raise typer.BadParameter("-p sets parameters of a notebook. Drop -p or --no-notebook.")
        overridden: dict[str, Any] = changed | {"seeds": seeds, "filters": filters}
        if source is not None:
            overridden |= {"axes": notebooks.axes(source, parameters), "set": parameters.get("set")}
        study = Study(grid, scale, **overridden, results_dir=results_dir).at_look(look)
        if prepare_only and not dry_run:
            from ablations.running.prepare import prepared, sizes

            with watching(), aside(form):
                rows = sizes(prepared(study.resolve().sliced(part), study.records))
            if form is Format.table:
                rows = [{**row, "bytes": f"{row['bytes'] / 1e6:,.1f} MB"} for row in rows]
            listing(rows, form, "part")
            return
        with aside(form):
            is_new = not any(part.folder.is_dir() for part in study.records.parts)
            echo(f"results: {study.folder}" + " (a new results folder: nothing is finished in it)" * is_new)
            execution = Execution(devices, num_nodes, strategy, activation_checkpointing, compile_layers)
            _tell_cost(study.resolve().sliced(part), study.records, asked, execution)
            if dry_run:
                return
            sharing: dict[str, Any] = {"devices": devices, "num_nodes": num_nodes, "strategy": strategy}
            sharing |= {"activation_checkpointing": activation_checkpointing, "compile_layers": compile_layers}
            sharing |= {"until": until, "logger": logger}
            if logger:
                from lightning_modules import places

                echo(f"curves: {places.cache() / 'curves'}")
            summary = study.run(asked, retries, slice=part, **sharing)
            if summary.left:
                echo(summary)
            try:
                if source is not None and not summary.left and not part:
                    from ablations.pages import heading

                    finished, _ = heading.counts(study.resolve(), study.measurements)
                    notebooks.execute(source, parameters, study.folder / "notebook.ipynb", finished)
            finally:
                study.publish()
        _report(study, summary, form)
        is_late = summary.left and not summary.failures and not summary.problems
        if is_late:
            raise typer.Exit(_TRY_AGAIN)
        if not study.resolve().sliced(part).is_finished:
            raise typer.Exit(1)


def _not_given(parameters: dict[str, Any]) -> dict[str, Any]:
    from lightning_modules.config import ConfigError, Problem

    if twice := [Problem("-p", f"{name} is given by {_GIVEN[name]}") for name in parameters if name in _GIVEN]:
        raise ConfigError(twice)
    return parameters


def _tell_cost(planned: Any, records: Any, executor: Any, execution: Any) -> None:
    from ablations.running import estimate
    from ablations.running.execute import check_trunks, suited

    engine = suited(executor, planned, execution)
    check_trunks(planned, records)
    echo(estimate.cost(planned, engine.at_once()))
    for line in estimate.notes(planned, records):
        echo(line)


_GIVEN = {  # parameters of notebooks that the command states itself, for the training too
    "grid": "the argument",
    "scale": "--scale",
    "seeds": "--seeds",
    "filters": "--filter",
    "executor": "--executor",
    "results_dir": "--results-dir",
}


def _report(study: Any, summary: Any, form: Format) -> None:
    if form in (Format.csv, Format.markdown):
        listing(_numbers(study)["table"], form, "cell")
    elif form is not Format.table:
        tell({**_numbers(study), "page": study.folder}, form, "page")
    else:
        tell_results(study)
    for trouble in (*summary.failures, *summary.problems):
        echo(trouble, err=True, fg="red")
    for note in summary.notes:
        echo(note, err=True)


def tables(
    grid: Annotated[str | None, typer.Argument(help="Rebuild the pages of this grid alone. Default: all.")] = None,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Rebuilds every table, figure and page from the records. Trains nothing and reads no corpus.

    The dev examples of a task are read where it got a metric after its runs.
    """
    from ablations.commands import unchanged

    def made() -> list[str]:
        from ablations.pages.publishing import republish  # torch, pandas and matplotlib

        return list(map(str, republish(folder, grid)))

    with reporting_errors():
        folder = existing_folder(results_dir)
        folders = unchanged.said("tables", {"grid": grid}, folder, made)
        tell({"pages": folders}, form, "pages", *folders)


def verify(results_dir: Results = None, form: As = Format.table) -> None:
    """Checks every file of a store. Lists what is damaged or of another version.

    These are the records with their held-out losses by sequence, the lists of packages, the bars, the kept weights, and
    the tables of published configurations. A record is sound if its losses are too.
    """
    from ablations.pages import parameters_page

    with reporting_errors():
        records = existing(results_dir)
        damages, total = [*records.verify(), *parameters_page.damages(records.folder)], len(records.files())
        of_records = [damage for damage in damages if PurePath(damage.path).match("records/*/*")]
        sound = total - len({PurePath(damage.path).stem for damage in of_records})
        for damage in damages if form is Format.table else ():
            echo(damage, err=True, fg="red")
        found = {"records": total, "sound": sound, "damaged": [asdict(damage) for damage in damages]}
        found["paths"] = [damage.path for damage in damages]
        tell(found, form, "paths", f"{sound} of {total} records are sound")
        if damages:
            raise typer.Exit(1)


def show_record(
    what: Annotated[str, typer.Argument(help="A run id, its first digits, or a grid.")],
    cell: Annotated[str | None, typer.Argument(help="A cell of the grid: its configuration is shown.")] = None,
    scale: Shown = USUAL,
    results_dir: Results = None,
    form: In = Notation.table,
) -> None:
    """Shows the record of a run, or the current tables and verdicts of a grid.

    In Markdown and LaTeX these are all tables of the grid's page. As CSV it is every number of every run, one per row.
    docs/records.md has the columns.
    """
    from ablations.inspection.trained import recorded
    from ablations.planning import grids
    from ablations.study import Study
    from lightning_modules.config import ConfigError, did_you_mean

    with reporting_errors():
        if cell is None:  # which may have no record yet
            known(results_dir)
        if what in grids.available() or Path(what).suffix in (".yaml", ".yml"):
            study = Study(what, scale, results_dir=results_dir)
            if cell is not None:
                listing(_configured(study, cell), plain(form, "a configuration"), "knob")
            elif form is Notation.table:
                tell_results(study)
            elif form is Notation.json or form is Notation.names:
                tell(_numbers(study), Format(form.value), "cells")
            else:
                echo(study.written(form.name), nl=False)
        elif not re.fullmatch("[0-9a-f]*", what):
            hint = did_you_mean(what, grids.available())
            raise ConfigError([f"'{what}' is neither a grid nor the first digits of a run.{hint}"])
        else:
            record = recorded(what, known(results_dir)).to_dict()
            tell(record, plain(form, "a record"), "id", json.dumps(record, indent=1, ensure_ascii=False))


def _configured(study: Any, label: str) -> list[dict[str, Any]]:
    from lightning_modules.config import flat
    from lightning_modules.problems import entry_of

    cells = {cell.label: cell for cell in study.resolve().cells}
    system = entry_of(cells, label, "cell", "cell").system
    return [{"knob": path, "value": value} for path, value in flat(system.resolved()).items()]


def _numbers(study: Any) -> dict[str, Any]:
    parts = {"plan": study.plan(), "table": study.table(), "claims": study.claims()}
    rows = {name: shown.data.to_dict("records") for name, shown in parts.items()}
    return {**rows, "cells": [row["cell"] for row in rows["plan"]]}


def logs(
    run: Annotated[str, typer.Argument(help="A run id, or its first digits.")],
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Prints the log of a run's attempts on this machine, or the end of a very long one."""
    from lightning_modules.config import ConfigError
    from lightning_modules.files import LARGEST, open_plain

    with reporting_errors():
        folders = [folder for part in known(results_dir).parts for folder in part.work_folders()]
        matches = [path for path in folders if path.name.startswith(run) and (path / "log.txt").exists()]
        if len(matches) != 1:
            names = ", ".join(path.name for path in folders[:20]) or "none"
            raise ConfigError([f"{len(matches)} runs with a log match '{run}'. Runs on this machine: {names}"])
        with open_plain(matches[0] / "log.txt") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LARGEST))
            text = file.read(LARGEST).decode(errors="replace")
        tell({"run": matches[0].name, "log": text}, form, "run", text.removesuffix("\n"))


def systems(form: As = Format.table) -> None:
    """Lists the published systems with their sizes."""
    from lightning_modules.systems import SYSTEMS

    rows = [
        {"system": name, "parameters with heads": f"{system.parameters() / 1e6:.1f} M", "paper": system.paper}
        for name, system in SYSTEMS.items()
    ]
    listing(rows, form, "system")


def _system(name: str) -> Any:
    from lightning_modules.problems import entry_of
    from lightning_modules.systems import SYSTEMS

    return entry_of(SYSTEMS, name, "system", "system")


def diff_systems(a: str, b: str, form: As = Format.table) -> None:
    """Shows the knobs in which two systems differ."""
    from lightning_modules.config import diff

    with reporting_errors():
        changes = diff(_system(a), _system(b))
        rows = [{"knob": path, a: old, b: new} for path, (old, new) in changes.items() if path not in ("name", "paper")]
        listing(rows, form, "knob")
        if not rows and form is Format.table:
            echo(f"{a} and {b} do not differ")


def init(
    folder: Annotated[Path, typer.Argument(help="The folder to make. One that is there keeps its files.")],
    form: As = Format.table,
) -> None:
    """Makes a study of your own: a folder with grids, data, a notebook and results, anywhere outside the package."""
    from ablations.core import notebooks
    from lightning_modules.places import STUDY

    with reporting_errors():
        for part in ("grids", "data", "notebooks", "results"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        written = {
            STUDY: '# Modules of this folder with tasks of their own readers:\n# plugins = ["my_tasks"]\n',
            ".gitignore": ".cache/\nresults/.locks/\nresults/unpublished/\n",
            "notebooks/grid.ipynb": (notebooks.folder() / "grid.ipynb").read_text(encoding="utf-8"),
        }
        for name, text in written.items():
            if not (folder / name).exists():
                (folder / name).write_text(text, encoding="utf-8")
        following = f"next:  cd {folder} && ablations new depth --axis model.num_layers=1,2"
        tell({"study": str(folder.resolve())}, form, "study", f"made the study {folder.resolve()}", following)


def new(
    name: str,
    axis: Annotated[list[str], typer.Option("--axis", help="PATH=V1,V2,...: a knob and its values. Repeatable.")],
    base: Annotated[str, typer.Option(help="The system to start from.")] = "mask15_large",
    question: Annotated[str | None, typer.Option(help="The question of the grid.")] = None,
    knobs: Annotated[list[str] | None, typer.Option("--set", help="PATH=V: a knob of every cell. Repeatable.")] = None,
    claims: Annotated[bool, typer.Option("--claims", help="Claim that the last value of each axis helps.")] = False,
    form: As = Format.table,
) -> None:
    """Writes and checks a new grid, ready to run at every scale."""
    from ablations.planning import new_grid

    with reporting_errors():
        path = new_grid.write(name, axis, _system(base), question, values(knobs, "--set"), claims=claims)
        people = f"wrote {path}", f"next:  ablations plan {name} --scale smoke"
        tell({"grid": name, "file": path}, form, "grid", *people)


# Panel -> name, function and example of each command.
PANELS: dict[str, list[tuple[str, Callable[..., None], str]]] = {
    "Make": [
        ("list", grid_files.list_grids, "list"),
        ("plan", plan, "plan masking_ratio --scale laptop"),
        ("run", run, "run masking_ratio --scale smoke --set model.num_layers=1"),
        ("init", init, "init my_study"),
        ("new", new, "new depth --axis model.num_layers=1,2,4"),
        ("check", grid_files.check, "check masking_ratio"),
        ("knobs", params.knobs, "knobs alibi"),
        ("status", jobs.status, "status masking_ratio"),
        ("stop", jobs.stop, "stop masking_ratio"),
    ],
    "Look": [
        ("show", show_record, "show masking_ratio --scale laptop"),
        ("claims", claims.claims, "claims --paper albert"),
        ("compare", grid_files.compare, "compare model_depth --equal flops"),
        ("tables", tables, "tables masking_ratio"),
        ("figures", grid_files.figures, "figures masking_ratio --format png --for slide"),
        ("published", claims.published, "published albert.t4"),
        ("params", params.command, "params roberta_base"),
        ("systems", systems, "systems"),
        ("diff", diff_systems, "diff roberta_base mask15_large"),
        ("logs", logs, "logs b16e"),
    ],
    "Ask a model": [
        ("ask", ask.command, 'ask b16e "She opened the [MASK] and went out."'),
        ("evaluate", evaluate.command, "evaluate RUN --task lambada"),
        ("finetune", checkpoints.finetune, "finetune --from FOLDER --task rte"),
        ("export", checkpoints.export, "export RUN FOLDER"),
    ],
    "Share": [("sync", stores.sync, "sync /mnt/cluster/results"), ("keep", stores.keep, "keep RUN")],
    "Maintain": [("verify", verify, "verify"), ("clean", stores.clean, "clean")],
}
_GROUPS = {"campaign": ("Make", campaign.app), "data": ("Data", data.app), "tokenizer": ("Data", tokenizer.app)}
_GROUPS |= {"benchmark": ("Maintain", inference.app)}

for _panel, _commands in PANELS.items():
    for _name, _command, _example in _commands:
        app.command(_name, rich_help_panel=_panel, epilog=f"Example: ablations {_example}")(_command)
for _name in ask.RENAMED:
    app.command(_name, hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})(
        ask.renamed
    )
for _name, (_panel, _group) in _GROUPS.items():
    app.add_typer(_group, name=_name, rich_help_panel=_panel)


def main() -> None:
    """The entry point of the ``ablations`` command."""
    try:
        app()
    except Exception as error:
        from lightning_modules.config import ConfigError  # not imported for `--help`

        if not isinstance(error, ConfigError):
            raise
        complain(error.problems)  # of an import: a module of tasks is broken
        sys.exit(WRONG)
