"""``ablations pack``: a grid for a machine without corpora and network, or the results that come home from there."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablations.commands.terminal import (
    As,
    Axis,
    Filter,
    Format,
    Results,
    Seeds,
    Set,
    Slice,
    aside,
    bytes_of,
    echo,
    listing,
    overridden,
    reporting_errors,
    tell,
    values,
)

if TYPE_CHECKING:
    from ablations.core.store import Records
    from ablations.planning.plan import Plan
    from ablations.running.packing import Packed


def command(
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write: a tar archive in xz.")],
    grid: Annotated[str | None, typer.Argument(help="A grid's name or the path of a YAML file.")] = None,
    scale: Annotated[str | None, typer.Option("--scale", "-s", help="The size of the grid's runs.")] = None,
    results: Annotated[
        bool,
        typer.Option(
            "--results",
            help="Pack records, kept weights and checkpoints, to take home. With a grid, also keep the weights of its "
            "trunks and of runs with training.kept_as bf16.",
        ),
    ] = False,
    wheels: Annotated[Path | None, typer.Option(help="A folder with wheels that the other machine lacks.")] = None,
    split: Annotated[str | None, typer.Option(help="Write parts no larger than this, such as 15MB.")] = None,
    seeds: Seeds = None,
    filter: Filter = None,
    axis: Axis = None,
    set: Set = None,
    slice: Slice = None,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Packs all that a machine without corpora and network needs for a grid, and writes unpack.py next to it.

    These are the prepared files of the cache, the source tree at its commit, what the results have of these runs, and
    their unfinished checkpoints. There, `python unpack.py FILE --into DIR` needs no package. Back from there,
    `pack --results` packs what was made, and `unpack` here takes it in.
    """
    from ablations.core.packs import archive
    from ablations.core.store import Records
    from lightning_modules.config import ConfigError, Problem

    with reporting_errors():
        most = bytes_of(split, "--split")
        if (grid is None) != (scale is None) or (grid is None and not results):
            raise ConfigError([Problem("pack", "name a grid and its --scale. --results alone needs neither.")])
        if results and wheels:
            raise ConfigError([Problem("--wheels", "goes with a grid that is to be run, not with --results")])
        archive.check_free(output)  # what follows may take minutes
        records, plan = Records(results_dir), None
        with aside(form):
            if grid is not None and scale is not None:
                from ablations.study import Study

                study = Study(grid, scale, **overridden(axis, set, filter), seeds=seeds, results_dir=results_dir)
                records = study.records
                plan = study.resolve().sliced(values(slice, "--slice"))
            if plan is None or results:
                packed = _home(records, plan)
            else:
                several = (
                    ("--axis", axis),
                    ("--set", set),
                    ("--filter", filter),
                    ("--slice", slice),
                    ("--seeds", [str(seeds)] if seeds else None),
                )
                words = [word for option, given in several for one in given or () for word in (option, one)]
                packed = _away(plan, records, [str(grid), "--scale", plan.scale, *words], wheels)
            rows = archive.table(packed.files)
            sizes = [{"MB": f"{row.size / 1e6:.2f}", "MB packed, about": f"{row.packed / 1e6:.2f}"} for row in rows]
            pairs = zip(rows, sizes, strict=True)
            listing([{"part": row.part, "files": row.files, **size} for row, size in pairs], Format.table, "part")
        made = archive.write(output, packed.told, packed.files, most)
        written = {str(path): path.stat().st_size for path in made}
        people = [f"wrote {path}: {size / 1e6:.2f} MB" for path, size in written.items()]
        people += [f"wrote {output.with_name(archive.SCRIPT)}"]
        people += [f"there: python {archive.SCRIPT} {output.name} --into DIR"] if not results else []
        people += [f"at home: ablations unpack {output.name}"] if results else []
        tell({"files": list(written), "bytes": written, "parts": [vars(row) for row in rows]}, form, "files", *people)


def _away(plan: "Plan", records: "Records", words: list[str], wheels: Path | None) -> "Packed":
    from ablations.running import packing
    from ablations.running.prepare import prepared

    return packing.of_grid(plan, records, lambda: prepared(plan, records), words, wheels)


def _home(records: "Records", plan: "Plan | None") -> "Packed":
    from ablations.inspection.trained import keep
    from ablations.running import packing

    asked = {run.id for run in (*plan.trunks, *(r for r in plan.runs if _is_kept(r)))} if plan else ()
    for record in filter(None, map(records.get, sorted(asked))):
        if record.outcome == "done" and records.weights(record.id):
            echo(f"kept {keep(record, records, False).relative_to(records.folder.parent)}")
    return packing.of_results(records)


def _is_kept(run: Any) -> bool:
    return run.kind == "pretrain" and run.system.training.kept_as == "bf16"
