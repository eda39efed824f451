"""What the interval of a verdict is computed from, in numbers that need none of this project's code.

The interval is ``effect ± t(df, level) * standard error``. Of a ratio it is that of the logarithm. Of an ordering each
step has such an interval: the lower end is the lowest of the steps, and the upper end the lowest at a level that the
steps share, ``1 - (1 - level) / steps`` (`relations.Ordering`).
"""

import json
import math
from collections.abc import Sequence

from ablations.claims.verdict import Verdict
from ablations.core.estimates import Estimate
from ablations.core.formatting import Entry

COLUMNS = ("test", "level", "looks", "standard error", "error over runs", "error over examples", "df",
           "prior variance", "prior df", "steps", "aligned standard error", "aligned df", "aligned steps")  # fmt: skip


def columns(verdict: Verdict) -> dict[str, Entry]:
    """The columns ``COLUMNS`` of a verdict; those without a value are None.

    ``standard error`` and ``df`` are empty where one number says nothing: of an ordering, whose ``steps`` are a list of
    ``[effect, standard error, df]`` as JSON, and of a metric without noise. ``prior variance`` is what the variances of
    single runs are moderated towards, and ``prior df`` how many degrees of freedom it counts; both are empty of paired
    tests. The aligned interval has the level of 95 %.
    """
    found: dict[str, Entry] = dict.fromkeys(COLUMNS)
    if verdict.tested and not verdict.is_exact:
        first = verdict.tested[0]
        found |= {"test": _name(verdict), "level": verdict.adjusted.level, "looks": " ".join(map(str, verdict.looks))}
        found |= _parts("", verdict.tested)
        if len(verdict.tested) == 1:
            found |= {"error over runs": verdict.seed_error, "error over examples": verdict.example_error}
        if first.prior is not None:
            found |= {"prior variance": first.prior.value, "prior df": _finite(first.prior.df)}
    if verdict.aligned is not None and verdict.aligned.interval is not None:
        found |= _parts("aligned ", verdict.aligned.estimates)
    return found


def _name(verdict: Verdict) -> str:
    """``moderated t``, ``paired t, logarithms``: how the noise of runs was estimated, and of what."""
    of = {"ratio": "logarithms", "ordering": "each step", "spread": "distances from the median"}
    design = "Welch's t" if verdict.claim.relation == "spread" else "moderated t"
    if verdict.paired:
        design = "paired t, crossed with examples" if verdict.tested[0].crossed else "paired t"
    return ", ".join(filter(None, (design, of.get(verdict.claim.relation, ""))))


def _parts(prefix: str, estimates: Sequence[Estimate]) -> dict[str, Entry]:
    if len(estimates) == 1:
        return {f"{prefix}standard error": estimates[0].error, f"{prefix}df": _finite(estimates[0].df)}
    return {f"{prefix}steps": json.dumps([[step.value, step.error, _finite(step.df)] for step in estimates])}


def _finite(df: float | None) -> Entry:
    """Infinite degrees of freedom as the word that pandas reads: JSON has no such number."""
    return "inf" if df is not None and math.isinf(df) else df
