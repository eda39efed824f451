"""What a grid's runs say, for people at a terminal: the answer, the cells, a line for each claim, the page."""

import html
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ablations.commands.terminal import Format, echo, listing, wrapped

if TYPE_CHECKING:
    from ablations.claims.verdict import Verdict
    from ablations.study import Study

_MOST = 3  # metrics of a cell
_COLOURS = {"replicates": "green", "holds": "green", "contradicts": "red", "fails": "red"}
_ESCAPE = re.compile(r"\\([\\`*<>|$~_\]()])")


def tell_results(study: "Study") -> None:
    """Prints what the page of a study says first, and where it is."""
    from ablations.pages import judged
    from ablations.pages.lead import answer, conclusion

    plan, measured = study.resolve(), study.measurements
    verdicts = judged.verdicts(study.scale, measured)
    echo(plan.grid.question, bold=True)
    counts = plan.counts
    echo(f"{plan.grid.name} at {plan.folder_name}: {counts.get('done', 0)} of {len(plan.runs)} runs")
    stated = () if plan.overrides or plan.scale not in plan.grid.scales else plan.grid.scales[plan.scale].conclusion
    said = conclusion.sentences(stated, measured, verdicts)
    if lead := answer.lead(measured, verdicts, said):
        echo()
        echo(wrapped(_plain(lead.partition("\n\n")[0])))
    listing(list(_cells(study)), Format.table, "cell")
    if verdicts:
        listing([_claim(verdict) for verdict in verdicts], Format.table, "verdict", _COLOURS)
    page = study.folder / "README.md"
    echo(f"page: {page}" if page.exists() else "no page yet")


def _plain(text: str) -> str:
    """Markdown of one line, as people read it."""
    return html.unescape(_ESCAPE.sub(r"\1", text.replace("**", "")))


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
    """A claim as a row: its verdict, the effect with the interval that decides, and why it is open."""
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
        "open because": str(verdict.reason) if verdict.reason else "",
    }
