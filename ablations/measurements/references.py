"""The simple methods that a metric is compared with: their scores on the same data."""

from collections.abc import Sequence

from ablations.measurements.derived import DERIVED
from ablations.measurements.measurements import Measurements
from ablations.measurements.probe_metrics import GAIN, OF_LAYERS, OF_RETRIEVAL, probe_of
from ablations.schema.cell import Cell
from ablations.schema.grid import Grid, Metric
from ablations.schema.metrics import HELDOUT, PER_BYTE, TRANSLATED, TRANSLATORS
from lightning_modules.probing.retrieval import RETRIEVALS
from lightning_modules.probing.table import PROBES
from lightning_modules.tasks import TASKS
from lightning_modules.tasks.measured_baselines import SAME_LABELS
from lightning_modules.zero_shot.perplexity import RunningText
from lightning_modules.zero_shot.table import ZERO_SHOT

BIGRAM = "bigram baseline"
FLOOR = ".floor"  # ends the name of what counting reaches in a held-out loss, in sentences of grids
COUNTED = f"{FLOOR}.pieces"  # and of how many pieces were counted for it
BEST = "best simple method"
SAME = ", same labels"  # ends the name of a method that learned from no more labels than the models
RANDOM, WORD_COUNTS = "own random weights", "ridge regression on words"
_LAYERS = {"embeddings": "embeddings", "middle": "layer half-way up", "last": "last layer"}
_NO_MODEL = (f"bigram_{PER_BYTE}", f"length_{PER_BYTE}")
_OF_TRANSLATIONS = TRANSLATORS | {"best_simple": BEST}
PAIRS = {  # how a simple method of pairs ends its metric's name -> what it is called
    "majority": "majority class",
    "edges": "lengths and edges",
    "overlap": "TF-IDF + logistic regression, shared words",
    "boundary": "words shared across the boundary",
    "bow": "TF-IDF + logistic regression",
    "best_simple": BEST,
}


def in_plain_words(floor: str) -> str:
    """What a bar counts, for figures and titles: the name of its method (`core.disk.bars`) in everyday words."""
    return "counts of earlier words" if floor.startswith("Kneser-Ney") else "counts of neighbours"


def references(metric: str) -> dict[str, str]:
    """The simple methods for a metric: name -> the metric that holds its score."""
    kind, _, name = metric.partition(".")
    if metric in HELDOUT:
        return {BIGRAM: f"{metric.removesuffix('loss')}bigram_loss"}
    if metric.endswith(PER_BYTE) and kind not in ZERO_SHOT and not name.endswith(_NO_MODEL):
        return {BIGRAM: f"{metric.removesuffix(PER_BYTE)}bigram_{PER_BYTE}"}
    if name in ("nsp_accuracy", "sop_accuracy"):
        return {method: f"heldout.{name[:3]}_{ending}" for ending, method in PAIRS.items()}
    if metric in TRANSLATED:
        return {text: f"{metric}_{method}" for method, text in _OF_TRANSLATIONS.items()}
    if name == "sentence_accuracy":
        return {PAIRS["majority"]: "heldout.sentence_majority"}
    if name in ("nsp_auc", "sop_auc"):
        return {BEST: f"heldout.{name[:3]}_best_simple_auc"}
    if probe := probe_of(metric):
        controls = {RANDOM: "random", WORD_COUNTS: "words", PAIRS["majority"]: "majority"}
        if PROBES[probe] in RETRIEVALS:
            controls = {RANDOM: "random", **{text: ending for ending, text in OF_RETRIEVAL.items()}}
        return {} if metric.endswith(GAIN) else {text: f"probes.{probe}_{name}" for text, name in controls.items()}
    if kind in ZERO_SHOT and name != ZERO_SHOT[kind].main:
        return {}
    if kind in TASKS and name != TASKS[kind].main:
        return {}  # records keep the scores of simple methods on the main metric alone
    methods = ZERO_SHOT[kind].methods if kind in ZERO_SHOT else _of_task(kind) if kind in TASKS else {}
    return {method: f"{metric}.{name}" for name, method in methods.items()}


def compared(metric: str) -> dict[str, str]:
    """What a claim may compare a metric with in the same runs: simple methods, and other layers of the same probe."""
    probe, ending = probe_of(metric), metric.rpartition("_")[2]
    layers = [name for name in OF_LAYERS if name != ending] if ending in OF_LAYERS else []
    return references(metric) | {f"{_LAYERS[name]} of the same runs": f"probes.{probe}_{name}" for name in layers}


def _of_task(task: str) -> dict[str, str]:
    """The simple methods of a task, and those that learn from no more labels than a fine-tuning on few examples."""
    methods = TASKS[task].shape.methods
    few = {f"{name}{SAME_LABELS}": f"{text}{SAME}" for name, text in methods.items() if name != "majority"}
    return {**methods, **few}


def reference(measured: Measurements, cells: Sequence[Cell], name: str) -> tuple[float, float] | None:
    """The lowest and the highest score of a simple method over the runs of cells; None without any.

    They differ where the text of cells differs. A fine-tuning that answers every example alike has them too.
    """
    rows = [rows for cell in cells for rows in (measured.of(cell, name), measured.silent(cell, name))]
    values = [round(row.value, 6) for found in rows for row in found.values()]
    return (min(values), max(values)) if values else None


def strongest(measured: Measurements, metric: Metric, cell: Cell) -> tuple[float, str] | None:
    """The best score of a simple method on the text of a cell, and the method; of a mean over tasks, that of the best.

    Where methods learned from no more labels than the models, those with more do not count.
    """
    if metric.name in DERIVED:
        mains = [Metric(name=f"{task}.{TASKS[task].main}") for task in cell.tuned]
        best = {main.name: found[0] for main in mains if (found := strongest(measured, main, cell))}
        mean = DERIVED[metric.name].of(best, cell.tuned)
        return None if mean is None else (mean, f"{BEST} of each task")
    scores = ((reference(measured, [cell], name), method) for method, name in references(metric.name).items())
    known = [(score[0], method) for score, method in scores if score is not None]
    fair = {method.removesuffix(SAME) for _, method in known if method.endswith(SAME)}
    known = [(score, method) for score, method in known if method not in fair]
    if bar := measured.bars(cell).get(metric.name):
        known += [(score, method) for method, score in bar.scores.items()]
    if not known:
        return None
    return min(known) if metric.better == "lower" else max(known)


def counts_all_tokens(measured: Measurements, cell: Cell, metric: str) -> bool:
    """Whether the simple methods of a metric are scored on tokens that the models of a cell do not predict."""
    if cell.system.has_start or not isinstance(ZERO_SHOT.get(metric.partition(".")[0]), RunningText):
        return False
    return any(row.metric == name for name in references(metric).values() for row in measured.of(cell, name).values())


def heldout_metric(grid: Grid) -> str:
    """The first loss on held-out text among a grid's metrics, whose curve its pages show; empty if it asks for none."""
    return next((metric.name for metric in grid.metrics if metric.name in HELDOUT), "")


def reference_losses(measured: Measurements, cells: Sequence[Cell], metric: str = HELDOUT[0]) -> dict[str, float]:
    """The held-out losses of the ``bigram`` and ``unigram`` baselines on which all runs agree (one held-out text)."""
    levels = {}
    for name in ("bigram", "unigram"):
        baseline = f"{metric.removesuffix('loss')}{name}_loss"
        runs = [(measured.of(cell, baseline), seed) for cell in cells for seed in measured.of(cell, metric)]
        values = {round(rows[seed].value, 3) if seed in rows else None for rows, seed in runs}
        if len(values) == 1 and None not in values:
            levels[name] = values.pop()
    return levels
