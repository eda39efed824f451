"""The values behind the verdicts of a page, seed by seed."""

from collections.abc import Sequence
from typing import Any

from ablations.claims.contrasts import asked_cells
from ablations.claims.verdict import Verdict
from ablations.core.formatting import Sheet, cell_text, fixed, places
from ablations.measurements.measurements import Measurements
from ablations.schema.cell import Cell
from ablations.schema.metrics import EXACT


def sheets(measured: Measurements, verdicts: Sequence[Verdict]) -> tuple[Sheet, Sheet, dict[str, Any]] | None:
    """A row for each metric of a claim and cell that it compares, a column for each seed; None without values.

    The table to read has four digits, the table of every number has all.
    """
    rows = [(metric, cell, measured.of(cell, metric)) for metric, cells in _asked(measured, verdicts) for cell in cells]
    rows = [(metric, cell, found) for metric, cell, found in rows if found]
    seeds = sorted({seed for _, _, found in rows for seed in found})
    if not rows:
        return None
    labels = {metric.name: metric.label or metric.name for metric in measured.grid.metrics}
    reading = Sheet(
        ["metric", "cell", *(f"seed {seed}" for seed in seeds)],
        [
            [
                labels.get(metric, metric),
                cell_text(cell.values),
                *(fixed(found[seed].value, places(None, found[seed].value)) if seed in found else "" for seed in seeds),
            ]
            for metric, cell, found in rows
        ],
        left=2,
        notes=["Of the cells that claims compare, on their metrics. Every run is one value."],
    )
    everything = Sheet(
        ["metric", "cell", *(f"seed {seed}" for seed in seeds)],
        [[metric, cell.label, *(found[seed].value if seed in found else None for seed in seeds)]
         for metric, cell, found in rows],
    )  # fmt: skip
    trace = [
        {"metric": metric, "cell": cell.label, "runs": {str(seed): row.run for seed, row in found.items()}}
        for metric, cell, found in rows
    ]
    return reading, everything, {"values": trace}


def _asked(measured: Measurements, verdicts: Sequence[Verdict]) -> list[tuple[str, list[Cell]]]:
    """Each metric of a claim, in their order, with the cells that are compared on it, in the order of tables."""
    asked: dict[str, set[str]] = {}
    for claim in (verdict.claim for verdict in verdicts):
        if claim.metric not in EXACT:
            cells, _ = asked_cells(claim, measured.grid, measured.cells)
            asked.setdefault(claim.metric, set()).update(cell.label for cell in cells)
    return [
        (metric, [cell for cell in (*measured.in_order().cells, *measured.means) if cell.label in labels])
        for metric, labels in asked.items()
    ]
