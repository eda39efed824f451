"""The tables of a grid, from records: Markdown, CSV, LaTeX, and a sidecar with the run ids behind every number.

The Markdown and LaTeX tables are for reading: means with intervals, differences to the baseline, unfinished runs, and
the published values in columns of their own. The CSV holds every number in a column of its own. Published and measured
values are different metrics of different models; they are never subtracted.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from ablations.claims import basis, margins
from ablations.claims.floors import listed
from ablations.claims.verdict import Verdict
from ablations.claims.verdict_text import amount, direction_text, families_text, size_text
from ablations.core import store
from ablations.core.disk.bars import Bar
from ablations.core.formatting import (
    Entry,
    Sheet,
    cell_text,
    comma_separated,
    difference_text,
    duration,
    latex,
    markdown,
    mean_text,
    path_text,
    quantity,
    range_text,
    split_unit,
    value_texts,
)
from ablations.core.statistics import LEVEL, mean_interval
from ablations.literature.published_values import Published, chosen, joined
from ablations.measurements.curves import crossing, curve
from ablations.measurements.measurements import SILENT, Measurements
from ablations.measurements.references import counts_all_tokens, heldout_metric, reference, references
from ablations.measurements.selection import as_printed, baseline_of, paths_of
from ablations.measurements.summaries import COSTS, Summary, numbers, planned_metrics, removed_parameters, summarise
from ablations.measurements.variances import about
from ablations.pages import search_report
from ablations.schema.cell import Cell
from ablations.schema.grid import Grid, Metric
from ablations.schema.metrics import HELDOUT
from ablations.schema.record import Record

NOTHING = "–"  # in a table to read, where there is no number and no run would give one
_PERCENT = f"{100 * LEVEL:g} %"
Sheets = tuple[Sheet, Sheet, dict[str, Any]]  # the table to read, the table of every number, the runs behind them
Notation = Literal["md", "csv", "tex"]
_RENDERERS: dict[Notation, Callable[[Sheet], str]] = {"md": markdown, "csv": comma_separated, "tex": latex}
_FILES: tuple[Notation, ...] = ("md", "csv")  # LaTeX is printed where it is wanted, by `ablations show`
_ADDED = tuple(  # by names that the table of verdicts has already
    name for name in basis.COLUMNS if name not in ("level", "looks", "error over runs", "error over examples")
)
_FORMER = ("tex",)  # endings that earlier versions wrote: such a file would stay at old numbers


def published_values(grid: Grid, cells: Sequence[Cell]) -> list[dict[str, Published]]:
    """The published values of each cell: ``{metric: row}``, in the order that ``grid.published`` names.

    Tables that match no axis are shown whole on the page (`literature.published_tables`), and belong to no cell.
    """
    by_cell: list[dict[str, Published]] = [{} for _ in cells]
    for source in filter(lambda source: source.match, grid.published):
        rows = chosen(source)
        metrics = source.metrics or list(dict.fromkeys(row.metric for row in rows))
        for row, cell in zip(by_cell, cells, strict=True):
            values = joined(rows, source.match, as_printed(cell))
            row |= {metric: values[metric] for metric in metrics if metric in values and metric not in row}
    return by_cell


def results(measured: Measurements) -> Sheets:
    """The results of a grid: the table to read, the table of every number, and the run ids behind them."""
    measured = measured.in_order()
    summaries, published = summarise(measured), published_values(measured.grid, measured.cells)
    metrics = planned_metrics(measured.grid, measured.cells)
    return (
        _reading(measured, metrics, summaries, published),
        _numbers(metrics, summaries, published, search_report.numbers(measured)),
        {"cells": [_trace(*item) for item in zip(summaries, published, strict=True)]},
    )


def _reading(
    measured: Measurements,
    metrics: Sequence[Metric],
    summaries: Sequence[Summary],
    published: Sequence[dict[str, Published]],
) -> Sheet:
    grid, cells = measured.grid, measured.cells
    paths, printed = paths_of(item.cell for item in summaries), _printed(published)
    headings = [*(path_text(path) for path in paths), "runs"]
    columns: list[list[Entry]] = [[f"{item.finished} of {item.planned}" for item in summaries]]
    searched = search_report.columns(measured)
    headings += searched
    columns += searched.values()
    compared = _compared(metrics, summaries)
    for metric in metrics:
        values = [item.metrics[metric.name] for item in summaries]
        headings.append(metric.label or metric.name)
        columns.append([
            mean_text(value.interval) or _absent(measured, item, metric.name)
            for value, item in zip(values, summaries, strict=True)
        ])  # fmt: skip
        if metric is compared:
            headings.append("minus baseline")
            columns.append([
                difference_text(value.difference) if value.difference
                else "baseline" if baseline_of(grid, cells, item.cell) is item.cell else NOTHING
                for value, item in zip(values, summaries, strict=True)
            ])  # fmt: skip
    if _asks_of_text(grid, cells) and any(item.plateau for item in summaries):
        headings.append("on the plateau")
        columns.append([f"{item.plateau} of {item.finished}" for item in summaries])
    if _has_floors(measured, summaries):
        headings.append("at the floor")
        columns.append([f"{item.floor} of {item.finished}" for item in summaries])
    if any(item.unfinished for item in summaries):
        headings.append("not done")
        columns.append([", ".join(item.unfinished) or "none" for item in summaries])
    for cost in ("parameters", "tokens"):
        headings.append(cost)
        columns.append([quantity(item.costs.get(cost)) or NOTHING for item in summaries])
    headings += [f"published: {_metric(published, metric)}" for metric in printed]
    for metric in printed:
        columns.append([row[metric].value if metric in row else NOTHING for row in published])
    rows = [
        [*value_texts(item.cell.values, paths), *row]
        for item, row in zip(summaries, zip(*columns, strict=True), strict=True)
    ]
    rows += _reference_rows(measured, metrics, headings)
    text = "Parameters: those of the pretrained model without what fine-tunings remove, which are zeros or gone."
    notes = [
        *_notes(grid, metrics, summaries, published),
        *_on_floors(measured, summaries),
        *_on_all_tokens(measured, metrics),
        *([text] if any(map(removed_parameters, cells)) else []),
        *_on_absent(rows),
    ]
    brief = ["runs", *((compared and [compared.label or compared.name, "minus baseline"]) or [])]
    brief += ["at the floor", "on the plateau", *(f"published: {_metric(published, metric)}" for metric in printed[:1])]
    brief += [metric.label or metric.name for metric in metrics]
    return Sheet(headings, rows, left=max(1, len(paths)), notes=notes, brief=brief)


def _absent(measured: Measurements, item: Summary, metric: str) -> str:
    if measured.silent(item.cell, metric):
        return SILENT
    task = metric.partition(".")[0]
    of_task = [text for text in item.unfinished if f" on {task}" in text]
    lost = of_task or [text for text in item.unfinished if " on " not in text]
    return lost[0].partition(" (")[0] if lost else NOTHING


def _on_absent(rows: Sequence[Sequence[Entry]]) -> list[str]:
    shown, notes = {str(entry) for row in rows for entry in row}, list[str]()
    if SILENT in shown:
        notes.append(
            "All outputs equal: every fine-tuning of the cell gives every example the same answer, so it has no score. "
            "More epochs (finetuning.epochs), a higher rate (finetuning.optimizer.peak_lr) or more examples may help. "
            "The rows below the cells say what a constant answer reaches."
        )
    if NOTHING in shown:
        notes.append(f"{NOTHING}: does not apply to this row, or nobody has measured it.")
    return notes


def _asks_of_text(grid: Grid, cells: Sequence[Cell]) -> bool:
    """Whether the plateau of running text matters to a grid: by its losses, or as what its tasks begin with."""
    return bool(heldout_metric(grid)) or any(cell.tasks for cell in cells)


def _compared(metrics: Sequence[Metric], summaries: Sequence[Summary]) -> Metric | None:
    """The first metric on which a cell and its baseline were both measured."""
    return next((m for m in metrics if any(item.metrics[m.name].compared for item in summaries)), None)


def _reference_rows(measured: Measurements, metrics: Sequence[Metric], headings: Sequence[str]) -> list[list[Entry]]:
    """The rows below the cells: the scores of simple methods, one row each; a range where cells have other text."""
    places: dict[str, dict[int, str]] = {}
    for metric in metrics:
        scores = {method: reference(measured, measured.cells, name) for method, name in references(metric.name).items()}
        bars = [bar for cell in measured.cells if (bar := measured.bars(cell).get(metric.name))]
        for method in dict.fromkeys(method for bar in bars for method in (bar.floor, *bar.scores)):
            known = [bar.scores[method] for bar in bars if method in bar.scores]
            scores[method] = (min(known), max(known))
        for method, score in scores.items():
            if score is not None:
                shown = " to ".join(dict.fromkeys(f"{value:.3f}" for value in score))
                places.setdefault(method, {})[headings.index(metric.label or metric.name)] = shown
    return [
        [method, *(scores.get(column, NOTHING) for column in range(1, len(headings)))]
        for method, scores in places.items()
    ]


def _has_floors(measured: Measurements, summaries: Sequence[Summary]) -> bool:
    """Whether some run is at a floor that is kept with the records, and that matters."""
    is_any = any(item.floor and measured.bars(item.cell) for item in summaries)
    return is_any and _asks_of_text(measured.grid, measured.cells)


def _on_floors(measured: Measurements, summaries: Sequence[Summary]) -> list[str]:
    """What the column of floors means, and what counting reaches with other amounts of text."""
    found = {bar.name: (bar, cell) for cell in measured.cells for bar in measured.bars(cell).values()}
    levels, notes = dict.fromkeys(bar.floor for bar, _ in found.values()), list[str]()
    if _has_floors(measured, summaries):
        notes.append(f"At the floor: finished runs whose predictions are no better than {listed(levels)}.")
    for bar, cell in found.values():
        if len(bar.by_tokens) > 1:
            reached = ", ".join(f"{nats:.3f} ({tokens / 1e6:.1f} M)" for tokens, nats in _ascending(bar.by_tokens))
            where = f" in {bar.metric}, {cell_text(cell.values)}" if len(found) > 1 else ""
            equal = _of_equal_text(measured, bar)
            notes.append(f"{bar.floor[:1].upper()}{bar.floor[1:]}{where}, by pieces counted: {reached}.{equal}")
    return notes


def _of_equal_text(measured: Measurements, bar: Bar) -> str:
    """How many runs are better than counts of as many tokens as they have read themselves, trunks included.

    Empty without runs, and where as many were not counted.
    """
    cells = [cell for cell in measured.cells if bar.name in {kept.name for kept in measured.bars(cell).values()}]
    runs = {record.id: (record, cell) for cell in cells for record in measured.finished(cell).values()}
    found = []
    for record, cell in runs.values():
        own = record.cost.get("real_tokens", record.cost.get("tokens", 0.0))
        read = own + sum(trunk.tokens() for trunk in cell.system.trunks)
        if (level := bar.after(read)) is None or bar.metric not in record.metrics:
            return ""
        found.append((read, level, record.metrics[bar.metric] < level))
    if not found:
        return ""
    ends = [(quantity(tokens), f"{level:.3f}") for tokens, level, _ in (min(found), max(found))]
    read, level = (" to ".join(dict.fromkeys(texts)) for texts in zip(*ends, strict=True))
    better = sum(item[2] for item in found)
    are = "is" if better == 1 else "are"
    return f" With the tokens that a run here has read ({read}): {level}. {better} of {len(found)} runs {are} better."


def _ascending(by_tokens: Mapping[str, float]) -> list[tuple[int, float]]:
    return sorted((int(tokens), nats) for tokens, nats in by_tokens.items())


def _on_all_tokens(measured: Measurements, metrics: Sequence[Metric]) -> list[str]:
    """What is said of simple methods that are scored on more tokens than models, as in older records."""
    found = {
        cell_text(cell.values): None
        for metric in metrics
        for cell in measured.cells
        if counts_all_tokens(measured, cell, metric.name)
    }
    text = "Simple methods are scored on the first token of each text too, which these models do not predict"
    return [f"{text}: {'; '.join(found)}."] if found else []


def _printed(published: Sequence[dict[str, Published]]) -> list[str]:
    return list(dict.fromkeys(metric for row in published for metric in row))


def _metric(published: Sequence[dict[str, Published]], metric: str) -> str:
    row = next(row[metric] for row in published if metric in row)
    return " ".join(filter(None, (metric, row.split, f"({row.unit})" if row.unit else "")))


def _notes(
    grid: Grid, metrics: Sequence[Metric], summaries: Sequence[Summary], published: Sequence[dict[str, Published]]
) -> list[str]:
    notes = [f"Mean ± half-width of the {_PERCENT} t interval over seeds. Only finished runs count."]
    cells = [item.cell for item in summaries]
    baseline = next((cell for cell in cells if baseline_of(grid, cells, cell) is cell), None)
    if baseline and (main := _compared(metrics, summaries)):
        named = cell_text({path: baseline.values[path] for path in grid.baseline})
        notes.append(
            f"Minus baseline: {split_unit(main.label or main.name)[0]} of the row minus that of the baseline "
            f"({named}) with its {_PERCENT} interval over runs. It is not adjusted for the number of comparisons, and "
            f"lacks the noise of examples. A {main.better} value is better. {about(grid, cells)}"
        )
    notes += search_report.notes(grid, cells)
    notes += _left_out(summaries)
    if _asks_of_text(grid, cells) and any(item.plateau for item in summaries):
        notes.append("On the plateau: finished runs whose predictions are no better than the bigram baseline.")
    if len({device for item in summaries for device in item.devices}) > 1:
        notes.append("The runs come from several device classes. Means may mix them. Differences never do.")
    sources = dict.fromkeys(f"{one.paper}, {one.table} ({one.source})" for row in published for one in row.values())
    if sources:
        notes.append(
            f"Published: {'; '.join(sources)}. The paper's models and metrics are not ours: compare down the columns, "
            "never across."
        )
    return notes


def _left_out(summaries: Sequence[Summary]) -> list[str]:
    """What differences leave out: each reason once, with its rows."""
    rows: dict[str, list[str]] = {}
    for item in summaries:
        reasons = [note for value in item.metrics.values() if value.compared for note in value.compared.notes]
        for note in dict.fromkeys(reasons):
            rows.setdefault(note, []).append(cell_text(item.cell.values))
    return [f"Differences: {note} ({'; '.join(cells)})." for note, cells in rows.items()]


def _numbers(
    metrics: Sequence[Metric],
    summaries: Sequence[Summary],
    published: Sequence[dict[str, Published]],
    searched: Mapping[str, Sequence[Entry]],
) -> Sheet:
    paths, printed = paths_of(item.cell for item in summaries), _printed(published)
    headings = ["cell", *paths, "planned", "done", "unfinished", "plateau", "floor"]
    rows: list[list[Entry]] = []
    for position, (item, beside_it) in enumerate(zip(summaries, published, strict=True)):
        row = [item.cell.label, *(search_report.entry(item.cell.values.get(path)) for path in paths)]
        row += [item.planned, item.finished, "; ".join(item.unfinished), item.plateau, item.floor]
        for metric in metrics:
            row += numbers(item.metrics[metric.name]).values()
        row += [item.costs.get(cost) for cost in COSTS]
        row += [column[position] for column in searched.values()]
        rows.append([*row, *(beside_it[m].value if m in beside_it else None for m in printed)])
    for metric in metrics:
        names = numbers(summaries[0].metrics[metric.name]) if summaries else ()
        headings += [f"{metric.name} {name}" for name in names]
    return Sheet([*headings, *COSTS, *searched, *(f"published {metric}" for metric in printed)], rows)


def _trace(item: Summary, published: dict[str, Published]) -> dict[str, Any]:
    return {
        "cell": item.cell.label,
        "values": dict(item.cell.values),
        "metrics": {
            name: {"runs": measured.runs, "compared": measured.compared.runs if measured.compared else ()}
            for name, measured in item.metrics.items()
        },
        "published": {
            metric: {"value": row.value, "table": row.table, "variant": row.variant, "line": row.line}
            for metric, row in published.items()
        },
        **search_report.trace(item.cell),
    }


def claims(verdicts: Sequence[Verdict]) -> Sheets:
    """The verdicts of a grid: the table to read, the table of every number, and the run ids behind them."""
    of_curves = [str(v.aligned.kind) for v in verdicts if v.aligned]
    reading = Sheet(
        ("claim", "source", "published", "verdict", "regime", "direction", "size", "measured in", "a better than b by",
         "adjusted interval", *(of_curves and ["speed or quality"]), "look", "n", "why open", "detectable", "computing",
         "remarks"),
        [
            (v.claim.statement, v.claim.origin + (f" ({', '.join(v.marks)})" if v.marks else ""), v.published,
             v.outcome, v.regime, direction_text(v), size_text(v), f"{v.metric} ({v.unit})" if v.unit else v.metric, 
             amount(v), range_text(v.adjusted), *(of_curves and [str(v.aligned.kind) if v.aligned else ""]),
             f"{v.look} of {len(v.looks)}" if len(v.looks) > 1 and v.n else "", v.n,
             str(v.reason), "" if v.detectable is None else f"{v.detectable:.2g}", _computing(v),
             "; ".join(filter(None, (v.remarks, v.proxy))))
            for v in verdicts
        ],
        left=8,
        notes=_claim_notes(verdicts),
    )  # fmt: skip
    everything = Sheet(
        ("claim", "statement", "source", "post hoc", "continued", "a", "b", "relation", "claimed size", "margin",
         "margin from", "metric", "unit", "verdict", "regime", "direction", "size", "reason", "effect", "low", "high",
         "adjusted low", "adjusted high", "adjusted level", "look", "looks", "n", "error over runs",
         "error over examples", "p", "adjusted p", "detectable", "family", "aligned", "aligned low", "aligned high",
         "speed or quality", "published", "remarks", "proxy", "ratio", "runs",
         "flops", "seconds", "trunks", "trunk flops", "trunk seconds", *_ADDED),
        [
            (v.claim.id, v.claim.statement, v.claim.origin, v.claim.post_hoc, v.continued, v.a, v.b, v.claim.relation,
             v.claim.size, v.margin, margins.source(v.claim), v.claim.metric, v.unit, v.outcome, str(v.regime),
             str(v.direction), str(v.size), str(v.reason), v.effect, v.raw.low, v.raw.high,
             v.adjusted.low, v.adjusted.high, v.adjusted.level, v.look, " ".join(map(str, v.looks)), v.n, v.seed_error,
             v.example_error, v.p, v.adjusted_p, v.detectable, v.family, *_aligned(v), v.published, v.remarks, v.proxy,
             v.claim.ratio, v.computing.runs, v.computing.flops, v.computing.seconds, v.trunks.runs, v.trunks.flops,
             v.trunks.seconds, *map(basis.columns(v).get, _ADDED))
            for v in verdicts
        ],
    )  # fmt: skip
    trace = {"claims": [{"claim": v.claim.id, "verdict": v.outcome, "sides": v.runs} for v in verdicts]}
    return reading, everything, trace


def _aligned(verdict: Verdict) -> list[Entry]:
    """The effect at equal multiples of the crossing, the ends of its interval, and what that makes it."""
    if verdict.aligned is None:
        return [None] * 4
    found = verdict.aligned.interval
    return [*(found.ends if found else (None,) * 3), str(verdict.aligned.kind)]


def _computing(verdict: Verdict) -> str:
    """``10 runs, 35 min, 221 TFLOP``: the cost of the runs behind a verdict."""
    spent = verdict.computing
    if not spent.runs:
        return ""
    own = f"{spent.runs} run{'s' * (spent.runs > 1)}, {duration(spent.seconds)}, {quantity(spent.flops)}FLOP"
    shared = verdict.trunks
    return own + (f", after {shared.runs} trunks of {duration(shared.seconds)}" if shared.runs else "")


def _claim_notes(verdicts: Sequence[Verdict]) -> list[str]:
    if not verdicts:
        return []
    looks, sizes = verdicts[0].looks, families_text(verdicts)
    later = f" and over {len(looks)} looks, at {' and '.join(map(str, looks))} seeds" if len(looks) > 1 else ""
    notes = [
        "Direction: whether the adjusted interval excludes 0. Size: whether it lies inside the margin, beyond it or "
        f"astride. Holm's correction over {sizes} of the grid's claims{later}. "
        "A verdict that is reached at the first look is final. Positive means that a is better than b. The "
        f"{_PERCENT} interval next to the effect is not adjusted. {verdicts[0].pools} The text and the pairs that are "
        "held out, and the dev examples, are fixed: every run shares them. Detectable: the smallest true effect seen "
        "with 80 % power at that level. Published values are in the paper's own metric."
    ]
    known = [v for v in verdicts if v.example_error is not None and v.seed_error is not None]
    if known:
        parts = "; ".join(f"{v.claim.id}: {v.seed_error:.2g} and {v.example_error:.2g}" for v in known)
        notes.append(f"Standard error over runs and over held-out examples, both in the interval: {parts}.")
    if unknown := [v.claim.id for v in verdicts if v.example_error is None and v.n and not v.is_exact]:
        notes.append(f"Scores by example are not known, and their noise is not counted: {', '.join(unknown)}.")
    if any(v.continued for v in verdicts):
        notes.append(
            "Continued pretraining: all sides start from the weights of the same trunks, one a seed, and are compared "
            "within each. It is another question than pretraining from random weights."
        )
    if any(v.claim.post_hoc for v in verdicts):
        notes.append(
            "Post hoc: stated after runs of the grid had been seen. Such a claim moves no number of a planned one."
        )
    return notes


def tokens_to_reach(measured: Measurements, loss: float) -> pd.DataFrame:
    """How many training tokens each cell needs to reach a held-out loss (nats).

    Takes the first crossing of each run's curve, interpolated linearly in the logarithm of the tokens. If some run
    never reaches the loss, there is no mean, as a mean over the others would flatter the cell; ``reached`` of ``done``
    counts those that do.

    Returns:
        One row per cell: knob values, ``done``, ``reached``, and ``mean``, ``low``, ``high`` in tokens, empty unless
        every finished run reached the loss.
    """
    rows = []
    for cell in measured.cells:
        finished = measured.finished(cell)
        reached = [tokens for record in finished.values() if (tokens := _reached(record, loss)) is not None]
        interval = mean_interval(reached if len(reached) == len(finished) else [])
        counts = {"cell": cell.label, **cell.values, "done": len(finished), "reached": len(reached)}
        rows.append(counts | {"mean": interval.mean, "low": interval.low, "high": interval.high})
    return pd.DataFrame(rows)


def _reached(record: Record, loss: float) -> float | None:
    """The tokens at which a run had reached a loss; those of its first point if it had by then."""
    found = curve(record, HELDOUT[0], loss)
    at = crossing(found) if found else None
    return None if at is None else at.high if at.low is None else at.at


def rendered(sheets: Sheets, notation: Notation) -> str:
    """A table in a notation: the one to read, or as CSV that of every number."""
    reading, everything, _ = sheets
    return _RENDERERS[notation](everything if notation == "csv" else reading)


def write(folder: Path, name: str, sheets: Sheets) -> dict[str, Path]:
    """Writes ``<name>.md``, ``.csv`` and the sidecar ``<name>.json``; returns the paths by ending.

    The bytes depend only on the sheets: not on locale, time or hash seed.
    """
    texts: dict[str, str] = {end: rendered(sheets, end) for end in _FILES}
    texts["json"] = json.dumps(sheets[2], indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    paths = {end: folder / f"{name}.{end}" for end in texts}
    for end, text in texts.items():
        store.write(paths[end], text.encode())
    _unlink(folder, name, _FORMER)
    return paths


def remove(folder: Path, name: str) -> None:
    """Removes the files of a table that a page no longer has."""
    _unlink(folder, name, (*_FILES, "json", *_FORMER))


def _unlink(folder: Path, name: str, ends: Sequence[str]) -> None:
    for end in ends:
        (folder / f"{name}.{end}").unlink(missing_ok=True)
