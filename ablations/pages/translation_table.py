"""Translations on a page: BLEU by length, differences that a paired bootstrap gives, and a few of them to read."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ablations.core.formatting import Entry, Sheet, difference_text, fixed, mean_text
from ablations.core.statistics import LEVEL, Interval, mean_interval
from ablations.measurements.measurements import Measurements
from ablations.measurements.selection import baseline_of, side_of
from ablations.schema.cell import Cell
from ablations.schema.metrics import TRANSLATORS
from lightning_modules.measures import bleu
from lightning_modules.tasks.scores.kept import unpack

TITLE, SHOWN_TITLE = "Translations", "Five translations"
_BLEU = "heldout.bleu"
_FIELDS = 10  # of the counts of a sentence


def scores(measured: Measurements) -> tuple[Sheet, Sheet, dict[str, Any]] | None:
    """BLEU of each cell by the length of the sources, and minus that of the baseline; None without translations.

    The interval of a difference is of a paired bootstrap over sentences (Koehn 2004), with the seeds as they are.
    """
    measured = measured.in_order()
    cells = [cell for cell in measured.cells if measured.of(cell, _BLEU)]
    if not cells:
        return None
    columns = ("", *(f"_{part}" for part in bleu.BY_LENGTH))
    values = [[mean_interval([*measured.values(cell, _BLEU + end).values()]) for end in columns] for cell in cells]
    minus = [_minus_baseline(measured, cell) for cell in cells]
    rows: list[list[Entry]] = [
        [cell.label, len(measured.of(cell, _BLEU)), *map(mean_text, own), "" if one is None else difference_text(one)]
        for cell, own, one in zip(cells, values, minus, strict=True)
    ]
    methods = {name: text for name, text in TRANSLATORS.items() if name != "best_simple"}
    for name, text in methods.items():
        found = [value for cell in cells for value in measured.values(cell, f"{_BLEU}_{name}").values()]
        rows.append([text, "", fixed(found[0], 1) if found else "", *[""] * (len(bleu.BY_LENGTH) + 1)])
    reading = Sheet(
        ["translations by", "runs", "BLEU", *(f"{part} sources" for part in bleu.BY_LENGTH), "minus the baseline"],
        rows,
        notes=[
            "BLEU is of detokenised text with its case. Sources are divided into thirds by their words.",
            f"The last column is of the same seeds. Its {100 * LEVEL:g} % interval is that of a paired bootstrap over "
            "sentences, and holds for these runs. Verdicts have the noise of other seeds as well.",
        ],
        brief=["BLEU", "minus the baseline"],
    )
    ends = ("", " low", " high")
    everything = Sheet(
        ["cell", "runs", *(f"{_BLEU}{column}{end}" for column in (*columns, " minus baseline") for end in ends)],
        [
            [
                cell.label,
                len(measured.of(cell, _BLEU)),
                *(end for one in (*own, other) for end in (one.ends if one else (None,) * 3)),
            ]
            for cell, own, other in zip(cells, values, minus, strict=True)
        ],
    )
    trace = [{"cell": cell.label, "runs": [row.run for row in measured.of(cell, _BLEU).values()]} for cell in cells]
    return reading, everything, {"translations": trace}


def shown(measured: Measurements) -> tuple[Sheet, Sheet, dict[str, Any]] | None:
    """Sources that a fixed rule chose, their references, and the translations by the sides of the first claim.

    They are from the first seed that both sides have; None where there is no such run.
    """
    chosen = [
        cell
        for claim in measured.grid.claims[:1]
        for side in claim.asked
        for cell in side_of(measured.grid, measured.cells, side)
        if measured.of(cell, _BLEU)
    ]
    seeds = [set(measured.of(cell, _BLEU)) for cell in chosen]
    common = sorted(set.intersection(*seeds)) if seeds else []
    if not common:
        return None
    runs = {cell.label: measured.of(cell, _BLEU)[common[0]].run for cell in chosen}
    kept = {label: _kept(measured, run)["shown"] for label, run in runs.items() if _kept(measured, run)}
    if not kept:
        return None
    first = next(iter(kept.values()))
    rows: list[list[Entry]] = []
    for number, one in enumerate(first):
        rows += [["source", one["source"]], ["reference", one["reference"]]]
        rows += [[label, translations[number]["translation"]] for label, translations in kept.items()]
    sheet = Sheet(
        ["", "text"],
        rows,
        left=2,
        notes=[f"Of seed {common[0]}. The sources lie evenly in the held-out text, whatever is made of them."],
    )
    return sheet, sheet, {"shown": [{"cell": label, "runs": [run]} for label, run in runs.items() if label in kept]}


def _minus_baseline(measured: Measurements, cell: Cell) -> Interval | None:
    """BLEU of a cell minus that of the baseline, means over their common seeds; None where a file is missing."""
    baseline = baseline_of(measured.grid, measured.cells, cell)
    if baseline is None or baseline is cell:
        return None
    own, other = ({seed: row.run for seed, row in measured.of(one, _BLEU).items()} for one in (cell, baseline))
    seeds = sorted(set(own) & set(other))
    counts = [[_counts(measured, runs[seed]) for seed in seeds] for runs in (own, other)]
    ours, theirs = ([one for one in side if one is not None] for side in counts)
    if not seeds or len(ours) < len(seeds) or len(theirs) < len(seeds):
        return None
    references = [one[:, 1].tolist() for one in (*ours, *theirs)]
    if any(one != references[0] for one in references):
        return None
    first, second = np.stack(ours), np.stack(theirs)
    low, high = np.quantile(bleu.paired_bootstrap(first, second), [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    mean = float((bleu.bleu(first.sum(1)) - bleu.bleu(second.sum(1))).mean())
    return Interval(mean, low, high, len(seeds))


def _kept(measured: Measurements, run: str) -> Mapping[str, Any]:
    """What a run keeps of its translations; empty where its file is missing."""
    return (measured.sums(run) or {}).get("translations", {})


def _counts(measured: Measurements, run: str) -> np.ndarray | None:
    packed = _kept(measured, run).get("counts", {}).get("bleu")
    return None if packed is None else unpack(packed).astype(float).reshape(_FIELDS, -1).T
