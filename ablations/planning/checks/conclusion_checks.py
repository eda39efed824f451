"""Checks of the sentences of a grid's answers: what they name exists."""

from collections.abc import Mapping

from ablations.core.strict_yaml import Document, Path_
from ablations.measurements.measurements import STREAM
from ablations.measurements.references import COUNTED, FLOOR, references
from ablations.planning.cells import label, layout
from ablations.schema.grid import Grid
from ablations.schema.metrics import HELDOUT
from ablations.schema.scale import PLACE, parted
from lightning_modules.config import did_you_mean


def check(grid: Grid, document: Document) -> None:
    """Adds the problems with claims and cells that conclusions name; of a grid that has no others."""
    if document.problems:
        return
    names = [metric.name for metric in grid.metrics]
    metrics = [*names, *(simple for name in names for simple in references(name).values())]
    metrics += [f"{name}{end}" for end in (FLOOR, COUNTED) for name in names if name in (*HELDOUT, f"{STREAM}.loss")]
    for scale, own in grid.scales.items():
        claims = {claim.id: claim for claim in grid.claims if not own.claims or claim.id in own.claims}
        cells = [label(row) for row in layout(grid, scale).kept] if own.conclusion or own.caveat else []
        _check_places(own.caveat, {}, ("scales", scale, "caveat"), metrics, cells, document)
        for n, one in enumerate(own.conclusion):
            where: Path_ = ("scales", scale, "conclusion", n)
            for name in one.given.keys() - claims.keys():
                document.slip((*where, "given", name), "is not a claim of this grid at this scale.", list(claims))
            _check_places(one.say, one.given, (*where, "say"), metrics, cells, document)


def _check_places(
    text: str, given: Mapping[str, str], where: Path_, metrics: list[str], cells: list[str], document: Document
) -> None:
    for place in PLACE.findall(text):
        asked = parted(place)
        if asked.cell and asked.metric not in metrics:
            meant = did_you_mean(asked.metric, metrics)
            document.complain(where, f"'{asked.metric}' is neither a metric of this grid nor a simple method's.{meant}")
        for cell in filter(None, (asked.cell, asked.other)):
            if cell not in cells:
                document.complain(where, f"there is no cell '{cell}' at this scale.{did_you_mean(cell, cells)}")
        if asked.steps is not None and asked.metric not in HELDOUT:
            allowed = ", ".join(HELDOUT)
            document.complain(where, f"'{asked.metric}' has no curve to be read after some steps. Allowed: {allowed}.")
        if not asked.cell and asked.metric not in given:
            said = f"'{asked.metric}' is not among the verdicts under 'given', by which the sentence is withdrawn."
            document.complain(where, said + did_you_mean(asked.metric, given))
