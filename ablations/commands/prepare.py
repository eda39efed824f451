"""``ablations prepare``: all that the runs of a grid read, made ahead."""

from ablations.commands.terminal import (
    As,
    Axis,
    Filter,
    Format,
    Grid,
    Look,
    Results,
    Seeds,
    Set,
    Shown,
    Slice,
    aside,
    listing,
    overridden,
    reporting_errors,
    values,
    watching,
)


def command(
    grid: Grid,
    scale: Shown,
    seeds: Seeds = None,
    filter: Filter = None,
    axis: Axis = None,
    set: Set = None,
    slice: Slice = None,
    look: Look = None,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Makes all that the runs of a grid read, and says how large it is. Trains nothing.

    With it in the cache these runs need no corpus, no data set and no network.
    """
    from ablations.running.prepare import prepared, sizes
    from ablations.study import Study

    with reporting_errors():
        study = Study(grid, scale, **overridden(axis, set, filter), seeds=seeds, results_dir=results_dir).at_look(look)
        with watching(), aside(form):
            files = prepared(study.resolve().sliced(values(slice, "--slice")), study.records)
        rows = sizes(files)
        rows.append({"part": "all", "files": len(files), "bytes": sum(row["bytes"] for row in rows)})
        if form is Format.table:
            rows = [{**row, "bytes": f"{row['bytes'] / 1e6:,.1f} MB"} for row in rows]
        listing(rows, form, "part")
