"""What the size of a difference is held against, fixed before any run.

For a claim of equality, of a little or of much it is the margin, the largest difference that still counts as equal: the
claim's own, or the rule of thumb of the metric's unit. A claim that one side is better asks for a direction alone. Its
size is held against the effect that the paper printed, where that transfers to our metric: found as large, or smaller.
"""

import math

from ablations.core.formatting import split_unit
from ablations.measurements.dictionary import unit
from ablations.schema.claim import Claim
from ablations.schema.metrics import HELDOUT
from lightning_modules.tasks import TASKS

SIZED = (">", "~", "interaction")  # relations that take a margin: differences in the metric's own unit
RULES_OF_THUMB = {
    "nats": 0.02,
    "share": 0.015,
    "correlation": 0.015,
    "mean score": 0.015,
    "points": 0.5,
}  # unit -> margin
PUBLISHED = "the published effect"
_PERCENT = 100.0


def margin(claim: Claim) -> float | None:
    """The margin of a claim or the published effect, in the unit of its metric; None for an ordering or a distance."""
    return _margin(claim)[0]


def source(claim: Claim) -> str:
    """Where the margin comes from: ``fixed in the grid``, ``the published effect`` or ``rule of thumb``."""
    return _margin(claim)[1]


def _margin(claim: Claim) -> tuple[float | None, str]:
    if claim.relation not in SIZED:
        return None, ""
    if claim.margin is not None:
        return claim.margin, "fixed in the grid"
    effect = abs(published_effect(claim) or 0.0) if claim.relation == ">" and not claim.size else 0.0
    if effect:
        return effect, PUBLISHED
    rule = RULES_OF_THUMB.get(unit(claim.metric))
    return rule, "rule of thumb" if rule else ""


def published_effect(claim: Claim) -> float | None:
    """The published advantage of a over b in the unit of our metric; None if it does not transfer or is missing.

    Scores of the same task and measure transfer, from per cent to shares; perplexities transfer as logarithms, in nats.
    Everything else (such as a mean over tasks against a loss) is None: there is no conversion.
    """
    a, b = claim.published.get("a"), claim.published.get("b")
    if a is None or b is None or len(claim.published) != 2:
        return None
    theirs = split_unit(claim.published_metric.partition(",")[0])[0].casefold()
    if claim.metric == HELDOUT[0]:
        return math.log(b / a) if "perplexity" in theirs and min(a, b) > 0 else None
    task, _, measure = claim.metric.partition(".")
    closed = theirs.replace("-", "").replace(" ", "")
    prefix = measure.replace("_", "") if task == "heldout" else task if task in TASKS else ""
    if (
        not prefix
        or not closed.startswith(prefix)
        or measure.rpartition("_")[2] not in closed
        or claim.better != "higher"
    ):
        return None
    return (a - b) / (_PERCENT if max(abs(a), abs(b)) > 1 else 1.0)
