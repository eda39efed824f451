"""The noise of runs of like size, of whatever grid: what a grid without finished runs may expect of its own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ablations.core.estimates import residual
from ablations.core.moderation import moderated
from ablations.schema.kinds import KINDS
from ablations.schema.record import Record
from ablations.schema.run import Run
from lightning_modules.config import canonical

LIKE = 2.0  # runs of like size differ by at most this factor in FLOPs
_FEWEST = 3.0  # degrees of freedom

Samples = Mapping[str, Mapping[str, float]]  # cell -> block -> value


@dataclass(frozen=True)
class Noise:
    """The spread of a metric over runs.

    Attributes:
        sd: The standard deviation of a run of its cell; in blocks, of a run within its block.
        cells: The number of cells that show it.
    """

    sd: float
    cells: int


def noise(records: Iterable[Record], metric: str, run: Run, *, within: bool) -> Noise | None:
    """The spread of a metric over finished runs of the same kind and text, and of like size, apart from their seeds.

    Cells whose runs spread differently count alike: their common variance is that of moderation. Within blocks it is
    that of the residuals of cells and blocks.

    Args:
        records: Of any grids.
        run: A run that is planned. If it is a pretraining, only those that continue trunks count, or those that do not.
        within: Whether the noise within blocks is requested: within trunks, models that are read, or, of fine-tunings,
            seeds.

    Returns:
        None where the runs are too few to show it.
    """
    samples: dict[str, dict[str, float]] = {}
    for record in records:
        if record.outcome == "done" and metric in record.metrics and _is_like(record, run):
            parents = record.config.get("parents") or []
            cell = canonical({key: value for key, value in record.config.items() if key not in ("seed", "parents")})
            block = parents[0] if parents and run.kind != "finetune" else record.config.get("seed")
            samples.setdefault(cell, {})[str(block)] = float(record.metrics[metric])
    return _in_blocks(samples) if within else _in_cells(samples)


def _is_like(record: Record, run: Run) -> bool:
    """Whether a record is of the same kind of run, on the same text, and took about as many FLOPs."""
    flops, took = KINDS[run.kind].work(run)[2], record.cost.get("flops", 0.0)
    text = record.config.get("system", {}).get("data", {}).get("corpora")
    is_continued = run.kind != "pretrain" or bool(record.config.get("parents")) == bool(run.parents)
    is_of_text = list(text or ()) == list(run.system.data.corpora)
    return record.kind == run.kind and flops / LIKE <= took <= flops * LIKE and is_of_text and is_continued


def _in_cells(samples: Samples) -> Noise | None:
    known = {cell: list(values.values()) for cell, values in samples.items() if len(values) > 1}
    group = moderated(known)
    return Noise(group.common**0.5, len(known)) if group.common and group.df >= _FEWEST else None


def _in_blocks(samples: Samples) -> Noise | None:
    """The residual variance of cells that have the same blocks."""
    tables: dict[frozenset[str], list[list[float]]] = {}
    for values in samples.values():
        tables.setdefault(frozenset(values), []).append([values[block] for block in sorted(values)])
    found = [(variance, len(rows)) for rows in tables.values() if len(rows) > 1 and (variance := residual(rows))]
    df = sum(variance.df for variance, _ in found)
    pooled = sum(variance.value * variance.df for variance, _ in found) / max(df, 1.0)
    return Noise(pooled**0.5, sum(cells for _, cells in found)) if df >= _FEWEST else None
