"""What the states know: the score of each probe and its gain over the same cell's own random weights."""

from collections.abc import Sequence
from typing import Any

from ablations.core.formatting import Entry, Sheet, cell_text, fixed, path_text, span_text, value_text
from ablations.core.statistics import Interval, mean_interval
from ablations.measurements.measurements import Measurements
from ablations.measurements.probe_metrics import GAIN, MEAN_GAIN, PREFIX, controls_of
from ablations.measurements.selection import paths_of
from ablations.measurements.sides import by_pretraining
from ablations.schema.cell import Cell
from lightning_modules.probing.retrieval import RETRIEVALS
from lightning_modules.probing.table import PROBES

_ROWS = {"random": "own random weights", "words": "word counts", "majority": "majority class"}
_RETRIEVAL_ROWS = {"letters": "n-grams of letters", "length": "lengths", "best_simple": "best simple method"}


def table(measured: Measurements) -> tuple[Sheet, Sheet, dict[str, Any]] | None:
    """A row per pretraining, a column per probe: the table to read, that of all numbers, the run ids behind them.

    Returns:
        None if no finished run has probes.
    """
    measured = measured.in_order()
    probes = [name for name in PROBES if any(measured.of(cell, f"{PREFIX}{name}{GAIN}") for cell in measured.cells)]
    if not probes:
        return None
    cells = by_pretraining([cell for cell in measured.cells if measured.of(cell, MEAN_GAIN)])
    paths = paths_of(cells)
    rows: list[list[Entry]] = [
        [*_knobs(cell, paths), len(measured.of(cell, MEAN_GAIN)), *(_text(measured, cell, name) for name in probes),
         _signed(_mean(measured, cell, MEAN_GAIN))]
        for cell in cells
    ]  # fmt: skip
    for control, label in (_ROWS | (_RETRIEVAL_ROWS if any(map(_is_retrieval, probes)) else {})).items():
        scores = [_control(measured, cells, f"{PREFIX}{name}_{control}") for name in probes]
        rows.append([label, *[""] * max(1, len(paths)), *scores, ""])
    reading = Sheet(
        [*(map(path_text, paths) if paths else ["pretraining"]), "runs", *map(_title, probes), "mean gain"],
        rows,
        left=max(1, len(paths)),
        notes=_notes(probes) + _left_out(measured, cells),
        brief=["runs", "mean gain"],
    )
    trace = [
        {"cell": _name(measured, cell), "runs": [row.run for row in measured.of(cell, MEAN_GAIN).values()]}
        for cell in cells
    ]
    return reading, _numbers(measured, cells, probes), {"probes": trace}


def _name(measured: Measurements, cell: Cell) -> str:
    """The label of a cell, or of several that share a pretraining what they agree on."""
    is_whole = any(one.label == cell.label and one.values == cell.values for one in measured.cells)
    return cell.label if is_whole else cell_text(cell.values) if cell.values else "all cells"


def _knobs(cell: Cell, paths: Sequence[str]) -> list[Entry]:
    return [value_text(path, cell.values[path]) if path in cell.values else "" for path in paths] or ["all cells"]


def _mean(measured: Measurements, cell: Cell, metric: str) -> Interval:
    return mean_interval(list(measured.values(cell, metric).values()))


def _title(name: str) -> str:
    return PROBES[name].title.partition(":")[0]


def _text(measured: Measurements, cell: Cell, name: str) -> str:
    """``0.602 (+0.103 ± 0.004)``: the mean score and the mean gain."""
    score = _mean(measured, cell, f"{PREFIX}{name}").mean
    gain = _mean(measured, cell, f"{PREFIX}{name}{GAIN}")
    return "" if score is None else f"{score:.3f} ({_signed(gain)})"


def _signed(gain: Interval) -> str:
    if gain.mean is None:
        return ""
    text = fixed(gain.mean, 3, sign=True)
    return text if gain.half is None else f"{text} ± {fixed(gain.half, 3)}"


def _control(measured: Measurements, cells: Sequence[Cell], metric: str) -> str:
    """The score on which all runs agree, or the least and the greatest."""
    values = [value for cell in cells for value in measured.values(cell, metric).values()]
    return span_text(values, "{:.3f}".format) if values else ""


def _numbers(measured: Measurements, cells: Sequence[Cell], probes: Sequence[str]) -> Sheet:
    paths = paths_of(cells)
    endings = {name: ("", GAIN, *(f"_{control}" for control in controls_of(name))) for name in probes}
    metrics = [MEAN_GAIN, *(f"{PREFIX}{name}{ending}" for name in probes for ending in endings[name])]
    rows: list[list[Entry]] = []
    for cell in cells:
        intervals = [_mean(measured, cell, metric) for metric in metrics]
        numbers = [entry for found in intervals for entry in (*found.ends, found.n)]
        rows.append([_name(measured, cell), *_knobs(cell, paths), *numbers])
    headings = [f"{metric} {name}" for metric in metrics for name in ("mean", "low", "high", "n")]
    return Sheet(["cell", *(paths or ["pretraining"]), *headings], rows)


def _left_out(measured: Measurements, cells: Sequence[Cell]) -> list[str]:
    """The probes that finished runs have no score of, though their settings name them; by the cells that lack them."""
    lacking: dict[str, list[str]] = {}
    for cell in cells:
        asked = cell.system.evaluation.probes
        if names := [_title(name) for name in asked if not measured.of(cell, f"{PREFIX}{name}{GAIN}")]:
            lacking.setdefault(", ".join(names), []).append(_name(measured, cell))
    places = {names: "all cells" if len(where) == len(cells) else ", ".join(where) for names, where in lacking.items()}
    told = "; ".join(f"{names} ({where})" for names, where in places.items())
    return [f"Left out, for which the held-out text is too small: {told}."] if told else []


def _notes(probes: Sequence[str]) -> list[str]:
    retrieved = (
        "Sentence retrieval trains nothing. It compares the mean states of sentences and translations, at the layer "
        "half-way up, by the margin of their cosines. Scores are the mean over both directions. Simple "
        "methods see words, letters and lengths."
    )
    if all(map(_is_retrieval, probes)):
        return [retrieved, " ".join(PROBES[name].title for name in probes)]
    notes = [
        "A ridge regression reads the mean of the frozen states of a text. Cells have its mean score and, in brackets, "
        "the gain over the same reader on the initial weights of the same runs. The half-width is of the 95 % interval "
        "over seeds. Own random weights, word counts and majority class are scores, or a range of them. No model is "
        "fine-tuned. Accuracy, for STS-B rank correlation."
    ]
    notes += [retrieved] if any(map(_is_retrieval, probes)) else []
    return [*notes, " ".join(PROBES[name].title for name in probes)]


def _is_retrieval(name: str) -> bool:
    return PROBES[name] in RETRIEVALS
