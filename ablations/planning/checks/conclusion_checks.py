"""Checks of the sentences of a grid's answers: what they name exists, and the verdicts are ones it can have."""

from ablations.claims.outcomes import AGAINST, AS_CLAIMED, CONTRADICTS, FAILS, HOLDS, NOT_RESOLVED, REPLICATES, outcome
from ablations.core.metrics import HELDOUT
from ablations.core.strict_yaml import Document, Path_
from ablations.measurements.measurements import STREAM
from ablations.measurements.references import FLOOR, references
from ablations.planning.cells import label, layout
from ablations.schema.claim import Claim
from ablations.schema.grid import Grid
from ablations.schema.scale import PLACE, Conclusion, parted
from lightning_modules.config import did_you_mean


def check(grid: Grid, document: Document) -> None:
    """Adds the problems with claims and cells that conclusions name; of a grid that has no others."""
    if document.problems:
        return
    names = [metric.name for metric in grid.metrics]
    metrics = [*names, *(simple for name in names for simple in references(name).values())]
    metrics += [f"{name}{FLOOR}" for name in names if name in (*HELDOUT, f"{STREAM}.loss")]
    for scale, own in grid.scales.items():
        claims = {claim.id: claim for claim in grid.claims if not own.claims or claim.id in own.claims}
        cells = [label(row) for row in layout(grid, scale).kept] if own.conclusion else []
        for n, one in enumerate(own.conclusion):
            where: Path_ = ("scales", scale, "conclusion", n)
            for name, word in one.given.items():
                if name not in claims:
                    document.slip((*where, "given", name), "is not a claim of this grid at this scale.", list(claims))
                elif problem := _never(claims[name], word):
                    document.complain((*where, "given", name), problem)
            _check_places(one, where, metrics, cells, document)


def _never(claim: Claim, word: str) -> str:
    """Why a claim can never have a verdict, and which it can have; empty if it can."""
    possible = [outcome(claim, decided) for decided in (AS_CLAIMED, AGAINST, NOT_RESOLVED)]
    if word in possible:
        return ""
    kind = "has a threat" if claim.threat else "is a published claim" if claim.claim else "is a hypothesis of the grid"
    meant = possible[1] if word in (CONTRADICTS, FAILS) else possible[0]
    allowed = ", ".join(dict.fromkeys(possible))
    has_no = "" if word in (REPLICATES, CONTRADICTS, HOLDS, FAILS) else " and no such threat"
    return f"{kind}{has_no}, so it is never '{word}'. Allowed: {allowed}. Did you mean '{meant}'?"


def _check_places(one: Conclusion, where: Path_, metrics: list[str], cells: list[str], document: Document) -> None:
    for place in PLACE.findall(one.say):
        metric, cell = parted(place)
        if cell and metric not in metrics:
            text = f"'{metric}' is neither a metric of this grid nor a simple method's.{did_you_mean(metric, metrics)}"
            document.complain((*where, "say"), text)
        if cell and cell not in cells:
            text = f"there is no cell '{cell}' at this scale.{did_you_mean(cell, cells)}"
            document.complain((*where, "say"), text)
        elif not cell and metric not in one.given:
            text = f"'{metric}' is not among the verdicts under 'given', by which the sentence is withdrawn."
            document.complain((*where, "say"), text + did_you_mean(metric, one.given))
