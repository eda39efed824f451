"""The verdicts that a page shows: those of the records, or the same numbers without an outcome."""

from dataclasses import replace

from ablations.claims import judging
from ablations.claims.verdict import Verdict
from ablations.claims.verdict_text import sentence
from ablations.measurements.measurements import Measurements
from ablations.planning import scales


def verdicts(scale: str, measured: Measurements) -> list[Verdict]:
    """The verdicts of a grid at a scale; where the scale's numbers mean nothing, none of them is judged."""
    found = judging.verdicts(measured)
    if scales.judges(scale):
        return found
    unjudged = (verdict.unjudged() for verdict in found)
    return [replace(verdict, sentence=sentence(verdict)) for verdict in unjudged]
