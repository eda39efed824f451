"""The answer of a page in numbers: what its claims came to, where the main metric lies, what that holds for."""

from collections.abc import Sequence

from ablations.claims import judging
from ablations.claims.floors import listed
from ablations.claims.outcomes import AGAINST, AS_CLAIMED
from ablations.claims.verdict import Verdict
from ablations.core.formatting import (
    capital,
    cell_text,
    markdown_text,
    mean_text,
    path_text,
    quantity,
    span_text,
    value_text,
)
from ablations.core.statistics import Interval, mean_interval
from ablations.measurements.measurements import Measurements
from ablations.measurements.references import BEST, BIGRAM, references, strongest
from ablations.measurements.selection import baseline_of
from ablations.measurements.summaries import planned_metrics
from ablations.schema.cell import Cell
from ablations.schema.grid import Metric
from lightning_modules import checkpoints
from lightning_modules.system import System

Means = Sequence[tuple[Cell, Interval]]

_NEARLY = 0.99  # of all tokens: less padding is not named
_MOST_MEANS = 8  # cells whose means are given, of more the best and the worst


def lead(measured: Measurements, told: Sequence[str], said: str) -> str:
    """The answer as a line of Markdown: in words, else the headline, else the means; empty without any of them.

    Args:
        told: The answer in words (see `conclusion`).
        said: The headline.
    """
    found = [*told] or ([f"{markdown_text(said)}."] if said else means(measured)[:1])
    return f"**Answer:** {' '.join(found)}" if found else ""


def means(measured: Measurements) -> list[str]:
    """The means of each metric of the figure next to the strongest simple method, a line of Markdown each."""
    return [line for metric in _shown(measured) for line in _comparison(measured, metric)]


def tally(verdicts: Sequence[Verdict]) -> str:
    """How the claims ended, and how many of the decided ones were stated after the runs, as a sentence."""
    if not verdicts:
        return "No claims are tested here."
    if not any(verdict.is_measured for verdict in verdicts):
        return f"{capital(_claims(len(verdicts)))}, none of them measured."
    decided = [verdict for verdict in verdicts if verdict.outcome in (AS_CLAIMED, AGAINST)]
    late = sum(verdict.claim.post_hoc for verdict in decided)
    were = "was" if late == 1 else "were"
    after = f" {late} of the {len(decided)} decided {were} stated after the runs." if late else ""
    return f"Of {_claims(len(verdicts))}, {judging.tally(verdicts)}.{after}"


def holds(measured: Measurements) -> str:
    """What the answer holds for, as a sentence of Markdown: sizes, tokens and text; empty without a finished run."""
    cells = [cell for cell in measured.cells if measured.finished(cell)]
    if not cells:
        return ""
    runs = span_text([len(measured.finished(cell)) for cell in cells], str)
    each = f"with {runs} run{'s' * (runs != '1')} per cell."
    released = dict.fromkeys(_released(cell) for cell in cells if cell.system.checkpoint)
    systems = [cell.system for cell in cells if not cell.system.checkpoint]
    if not systems:
        return f"**Holds for** {' and '.join(released)}, {each}"
    layers = span_text([system.model.num_layers for system in systems], str)
    width = span_text([system.model.hidden_size for system in systems], str)
    sizes = span_text([system.parameters() for system in systems], quantity)
    tokens = span_text([system.tokens() for system in systems], quantity)
    text = _text(systems)
    length = span_text([system.format.sequence_length for system in systems], str)
    continued = [system.trunks for system in systems if system.trunks]
    before = _text([trunk for trunks in continued for trunk in trunks])
    other = f" of {markdown_text(before)}" * (before != text)
    read = [sum(trunk.tokens() for trunk in trunks) for trunks in continued]
    after = f" after a trunk of {span_text(read, quantity)}{other}," if continued else ""
    return (
        f"**Holds for** {layers} layer{'s' * (layers != '1')} of {width} ({sizes} parameters), {tokens} tokens"
        f"{_real(measured, cells)}{after} of {markdown_text(text)} in sequences of {length} ({_pieces(systems)}), "
        f"{''.join(f'and for {one}, ' for one in released)}{each}"
    )


def _released(cell: Cell) -> str:
    system = cell.system
    row = checkpoints.released(system.checkpoint)
    # without heads, which it may have come without
    known = sum(count for part, count in system.parameters_by_part().items() if not part.endswith(" head"))
    size = f"{system.model.num_layers} layers of {system.model.hidden_size}, {quantity(known)} parameters"
    seen = ", ".join(task for task in cell.tuned if task in row.tasks_seen)
    told = size, row.trained_on, seen and f"among them texts like those of {seen}"
    return markdown_text(f"{row.title} ({', '.join(filter(None, told))})")


def _real(measured: Measurements, cells: Sequence[Cell]) -> str:
    """How many of the tokens are no padding, in brackets; empty where nearly all are."""
    costs = [record.cost for cell in cells for record in measured.finished(cell).values()]
    known = [(cost["real_tokens"], cost["tokens"]) for cost in costs if "real_tokens" in cost and "tokens" in cost]
    if all(real > _NEARLY * tokens for real, tokens in known):
        return ""
    return f" ({span_text([real for real, _ in known], quantity)} without padding)"


def _text(systems: Sequence[System]) -> str:
    corpora = (corpus for system in systems for corpus in system.data.corpora)
    return " and ".join(dict.fromkeys("made text" if corpus.startswith("made:") else corpus for corpus in corpora))


def _pieces(systems: Sequence[System]) -> str:
    """How many pieces the text is made of, and how many of them masked models do not see."""
    pieces = span_text([system.data.tokenizer.vocab_size for system in systems], "{:,}".format)
    rates = [100 * system.objectives.mlm.masking.rate for system in systems if system.objectives.mlm]
    hidden = f", {span_text(rates, '{:g}'.format)} % hidden" if rates else ""
    return f"vocabulary of {pieces}{hidden}"


def _shown(measured: Measurements) -> list[Metric]:
    """The metrics of the figure, in its order; of a grid without one, the first."""
    planned = {metric.name: metric for metric in planned_metrics(measured.grid, measured.cells)}
    drawn = measured.grid.figure.metrics if measured.grid.figure else ()
    return [planned[name] for name in drawn if name in planned] or list(planned.values())[:1]


def _claims(count: int) -> str:
    return f"{count} claim{'s' * (count > 1)}"


def _comparison(measured: Measurements, metric: Metric) -> list[str]:
    """The means along the axis of the figure, or of many cells the best and the worst; and what simple methods reach.

    A cell with one seed has no interval, and is not reported.
    """
    intervals = [(cell, mean_interval(list(measured.values(cell, metric.name).values()))) for cell in measured.cells]
    means = [(cell, interval) for cell, interval in intervals if interval.half is not None]
    if len(means) < 2:
        return []
    ordered = sorted(means, key=lambda pair: pair[1].mean or 0.0, reverse=metric.better == "higher")
    told = _along(measured, means) if (short := len(means) <= _MOST_MEANS) else _ends(measured, ordered)
    heading = f"{capital(markdown_text(metric.label or metric.name))}, {metric.better} is better"
    heading += f", by {markdown_text(path_text(x))}" if short and "." in (x := _axis(measured)) else ""
    beaten = _to_beat(measured, metric, [cell for cell, _ in ordered])
    return [
        " ".join(
            [f"{heading}: {'; '.join([*told, *beaten])}.", *_floor(measured, metric, means), *_bar(measured, metric)]
        )
    ]


def _along(measured: Measurements, means: Means) -> list[str]:
    """The means of each line of the figure: ``own: 4.31 ± 0.02 (1), 4.21 ± 0.06 (2)``."""
    x = _axis(measured)
    if all(isinstance(cell.values.get(x), int | float) for cell, _ in means):
        means = sorted(means, key=lambda pair: pair[0].values[x])  # the baseline is the first of the cells
    lines: dict[str, list[str]] = {}
    for cell, interval in means:
        name = cell_text({path: value for path, value in cell.values.items() if path != x} if x else {})
        here = cell_text(cell.values) if x not in cell.values else _value(x, cell.values[x])
        lines.setdefault(name * (len(cell.values) > 1), []).append(f"{mean_text(interval)} ({markdown_text(here)})")
    return [", ".join(row) if not name else f"{markdown_text(name)}: {', '.join(row)}" for name, row in lines.items()]


def _axis(measured: Measurements) -> str:
    return measured.grid.figure.x if measured.grid.figure else ""


def _value(path: str, value: object) -> str:
    return value_text(path, value) if "." in path else str(value)


def _ends(measured: Measurements, ordered: Means) -> list[str]:
    """The best and the worst cell by their means, and the baseline of the best."""
    best, worst = ordered[0], ordered[-1]
    baseline = baseline_of(measured.grid, measured.cells, best[0])
    shown = [f"best {_mean(*best, baseline)}"]
    shown += [f"baseline {_mean(*pair)}" for pair in ordered[1:-1] if pair[0] is baseline]
    return [*shown, f"worst {_mean(*worst, baseline)}"]


def _mean(cell: Cell, interval: Interval, baseline: Cell | None = None) -> str:
    names = [markdown_text(cell_text(cell.values)), "the baseline" * (cell is baseline)]
    return f"{mean_text(interval)} ({', '.join(filter(None, names))})"


def _to_beat(measured: Measurements, metric: Metric, cells: Sequence[Cell]) -> list[str]:
    """The strongest simple method on the text of each cell, of the best cell first; the table has all of them."""
    best = [found for cell in cells if (found := strongest(measured, metric, cell))]
    if not best:
        return []
    scores = sorted({f"{score:.3f}" for score, _ in best})
    if len(scores) > 1:
        return [f"the best simple method has {scores[0]} to {scores[-1]}, on the text of each"]
    method = best[0][1]
    named = f" ({markdown_text(method)})" * (method != BEST)
    return [f"the best simple method has {scores[0]}{named}"]


def _bar(measured: Measurements, metric: Metric) -> list[str]:
    """Which simple method verdicts compare a loss with, where a better one is known, and how many runs pass that."""
    found = [(cell, bar) for cell in measured.cells if (bar := measured.bars(cell).get(metric.name))]
    levels = {(bar.floor, round(bar.scores[bar.floor], 3)) for _, bar in found}
    if len(levels) != 1 or all(min(bar.scores.values()) >= bar.scores[bar.floor] for _, bar in found):
        return []
    ((floor, level),) = levels
    runs = [(value, min(bar.scores.values())) for cell, bar in found
            for value in measured.values(cell, metric.name).values()]  # fmt: skip
    passed = sum(value < best for value, best in runs)
    return [
        f"The bar of the verdicts is {level:.3f} ({markdown_text(floor)}), the least that a model of context has to "
        f"pass. {passed} of {len(runs)} runs are better than the best simple method."
    ]


def _floor(measured: Measurements, metric: Metric, means: Means) -> list[str]:
    """Said of a metric of held-out text alone: models of pairs need not predict running text."""
    cells = [cell for cell, _ in means]
    if BIGRAM not in references(metric.name) or any(
        measured.floors(cell) < len(measured.finished(cell)) for cell in cells
    ):
        return []
    kept = dict.fromkeys(bar.floor for cell in cells if (bar := measured.bars(cell).get(metric.name)))
    return [f"No run is better than {listed(kept or ['bigram baseline'])}."]
