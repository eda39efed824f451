"""Published claims and what the records say about them.

A claim is directional ("a is better than b") or of near-equality ("a equals b within a margin"). Its verdict is one of
*replicates*, *contradicts* and *not resolved*, and it is the adjusted interval that decides:

======================  ==========================================  ===================================
verdict                 a better than b                             a equals b
======================  ==========================================  ===================================
replicates              the interval lies above 0                   the interval lies within the margins
contradicts             the interval lies below 0                   the interval lies beyond a margin
not resolved            everything else, absent data included       everything else, absent data included
======================  ==========================================  ===================================

Intervals are adjusted by Holm over the distinct contrasts among the claims of the grid, all of them, whether or not
they could be measured: the family is fixed before there are results. Two claims about one contrast on one metric (the
paper measured it by two tasks) are one test. Near-equality is two one-sided tests (Schuirmann, Journal of
Pharmacokinetics and Biopharmaceutics 15, 1987, 657-680), done with the same interval as everything else: each at half
the usual alpha.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ablations.frames import Lookup, Pairing, against, pair, references, side_of
from ablations.literature import printed_difference
from ablations.markup import cell_text, fixed, places, range_text, value_text
from ablations.schema import Cell, Claim, Grid
from ablations.statistics import (
    POWER,
    Contrast,
    Interval,
    holm,
    holm_levels,
    minimum_detectable_effect,
)
from lightning_modules.tasks import TASKS

REPLICATES, CONTRADICTS, NOT_RESOLVED = "replicates", "contradicts", "not resolved"


@dataclass(frozen=True)
class Verdict:
    """One claim and the measured answer. Effects are in the metric's unit; positive means a is better than b.

    Attributes:
        outcome: ``replicates``, ``contradicts`` or ``not resolved``.
        reason: Why nothing was decided, or what else to know; empty where the interval says it all.
        a, b: The two sides for people, ``b`` without what both share.
        raw: The 95 % interval of the paired difference; ``adjusted``: the one that decides.
        p: Two-sided, of the paired t test (of the two one-sided tests for near-equality); ``adjusted_p``: Holm's.
        rank_p: Of the signed-rank test; None below six pairs.
        detectable: The smallest true effect that would have been seen with 80 % power at the adjusted level.
        family: The number of distinct contrasts that Holm's correction counted.
        published: The printed values of a and b as a sentence, in the paper's own metric; never mixed with ours.
        proxy: How the paper's metric and ours differ, and our data, where they are an own split.
        runs: The run ids of each pair.
    """

    claim: Claim
    outcome: str
    reason: str
    a: str
    b: str
    metric: str
    unit: str
    raw: Interval
    adjusted: Interval
    p: float | None
    adjusted_p: float | None
    rank_p: float | None
    detectable: float | None
    family: int
    published: str
    proxy: str
    runs: tuple[tuple[str, str], ...]

    @property
    def effect(self) -> float | None:
        """How much better a is than b; None without data."""
        return self.raw.mean

    @property
    def n(self) -> int:
        """Pairs of runs with a common seed."""
        return self.raw.n

    @property
    def sentence(self) -> str:
        """The verdict for people, one sentence."""
        return _sentence(self)


@dataclass(frozen=True)
class _Case:
    """A claim with its data: the contrast oriented so that positive is good, or the reason why there is none."""

    claim: Claim
    contrast: Contrast
    runs: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    obstacle: str = ""
    names: tuple[str, str] = ("", "")

    @property
    def p(self) -> float:
        """The p value that enters Holm's correction: 1 where nothing can be decided."""
        if self.obstacle or self.contrast.p is None:
            return 1.0
        if self.claim.relation != "~":
            return self.contrast.p
        margin, tail = self.claim.margin or 0.0, self.contrast.tail
        inside = max(tail(-margin), tail(margin, below=True))
        beyond = min(tail(margin), tail(-margin, below=True))
        return min(1.0, 2 * min(inside, beyond))

    @property
    def test(self) -> tuple[object, ...]:
        """What makes two claims one test: the same two sides, metric and margin."""
        sides = frozenset(repr(sorted(side.items())) for side in (self.claim.a, self.claim.b))
        return sides, self.claim.metric, self.claim.against, self.claim.margin if self.claim.relation == "~" else None


def verdicts(grid: Grid, cells: Sequence[Cell], records: Lookup) -> list[Verdict]:
    """One verdict for each claim of the grid, in the order of the grid."""
    cases = [_case(grid, cells, _measured(claim, cells), records) for claim in grid.claims]
    tests = {case.test: case.p for case in cases}
    order = list(tests)
    adjusted = dict(zip(order, holm(list(tests.values())), strict=True))
    levels = dict(zip(order, holm_levels(list(tests.values())), strict=True))
    return [_verdict(grid, case, adjusted[case.test], levels[case.test], len(order)) for case in cases]


def _measured(claim: Claim, cells: Sequence[Cell]) -> Claim:
    """The claim with the metric on official data where the cells are fine-tuned on those."""
    task = claim.official.partition(".")[0]
    is_official = any(task in cell.tasks for cell in cells) and bool(task)
    return claim.model_copy(update={"metric": claim.official}) if is_official else claim


def _case(grid: Grid, cells: Sequence[Cell], claim: Claim, records: Lookup) -> _Case:
    sides = []
    for name, wanted in (("a", claim.a), ("b", claim.b)) if not claim.against else (("a", claim.a),):
        found = side_of(grid, cells, wanted)
        if len(found) != 1:
            fault = "is not among the cells" if not found else f"fits {len(found)} cells"
            return _Case(claim, Contrast((), ()), obstacle=f"side {name} ({cell_text(wanted)}) {fault} of this scale")
        sides.append(found[0])
    pairing = (
        against(*sides, records, claim.metric, claim.against) if claim.against else pair(*sides, records, claim.metric)
    )
    contrast, names = pairing.contrast, _sides(claim, sides)
    if claim.better == "lower":
        contrast = replace(contrast, differences=tuple(-d for d in contrast.differences))
    return _Case(claim, contrast, pairing.runs, pairing.notes, _obstacle(contrast, pairing), names)


def _obstacle(contrast: Contrast, pairing: Pairing) -> str:
    """Why a contrast cannot be decided, whatever its interval."""
    if contrast.n < 2:
        pairs = "one finished pair" if contrast.n else "no finished pair"
        return f"{pairs} with a common seed on one device class; at least 2 are needed"
    if all(pairing.plateau):
        return "both sides are still on the plateau (no better than the neighbour-count baseline): train longer"
    if contrast.sd == 0:
        return "the difference is the same in every seed, so there is no noise to compare it with"
    return ""


def _verdict(grid: Grid, case: _Case, p: float, level: float, family: int) -> Verdict:
    claim, contrast, sd = case.claim, case.contrast, case.contrast.sd
    labels = {metric.name: metric.label or metric.name for metric in grid.metrics}
    metric, unit = split_unit(labels.get(claim.metric, claim.metric))
    adjusted = contrast.interval(level)
    side_a, side_b = case.names if any(case.names) else _sides(claim, ())
    return Verdict(
        claim=claim,
        outcome=NOT_RESOLVED if case.obstacle else _decide(claim, adjusted),
        reason="; ".join(filter(None, (case.obstacle, *case.notes))),
        a=side_a,
        b=side_b,
        metric=metric,
        unit=unit,
        raw=contrast.interval(),
        adjusted=adjusted,
        p=None if contrast.p is None else case.p,
        adjusted_p=None if contrast.p is None else p,
        rank_p=contrast.rank_p,
        detectable=minimum_detectable_effect(sd, contrast.n, level) if sd else None,
        family=family,
        published=_published(claim),
        proxy="; ".join(filter(None, (claim.proxy, _own_split(claim)))),
        runs=case.runs,
    )


def _own_split(claim: Claim) -> str:
    task = TASKS.get(claim.metric.partition(".")[0])
    return f"own split: {task.own_split}" if task and task.own_split else ""


def _decide(claim: Claim, interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return NOT_RESOLVED
    if claim.relation == "~":
        margin = claim.margin or 0.0
        if -margin < interval.low and interval.high < margin:
            return REPLICATES
        return CONTRADICTS if interval.low > margin or interval.high < -margin else NOT_RESOLVED
    if interval.low > 0:
        return REPLICATES
    return CONTRADICTS if interval.high < 0 else NOT_RESOLVED


def split_unit(label: str) -> tuple[str, str]:
    """``held-out loss (nats)`` -> ``("held-out loss", "nats")``; no unit where there are no brackets."""
    name, bracket, unit = label.rstrip(")").rpartition(" (")
    return (name, unit) if bracket and label.endswith(")") else (label, "")


def _sides(claim: Claim, cells: Sequence[Cell]) -> tuple[str, str]:
    """``masking rate 40 %`` and ``15 %``: the sides as the cells at hand have them, the second in short.

    A claim names its sides by published values; where others stand for them at a small scale, both are said:
    ``num_layers 4 (for 12)``.
    """
    sides = [dict(claim.a), dict(claim.b)]
    theirs = ["", ""]
    for n, (side, cell) in enumerate(zip(sides, cells, strict=False)):
        stood_for = [value_text(path, cell.printed[path]) for path in side if path in cell.printed]
        theirs[n] = f" (for {', '.join(stood_for)})" if stood_for else ""
        side |= {path: cell.values[path] for path in side}
    a, b = sides
    if claim.against:
        return cell_text(a) + theirs[0], _reference_text(claim)
    if len(a) == 1 and a.keys() == b.keys():
        ((path, value),) = b.items()
        return cell_text(a) + theirs[0], value_text(path, value) + theirs[1]
    return cell_text(a) + theirs[0], cell_text(b) + theirs[1]


def _reference_text(claim: Claim) -> str:
    """``the majority answer``: what stands in for side b."""
    names = {metric: f"the {name}" for name, metric in references(claim.metric).items()}
    return names.get(claim.against, claim.against)


def _published(claim: Claim) -> str:
    if not {"a", "b"} <= claim.published.keys():
        return ""
    a, b = claim.published["a"], claim.published["b"]
    metric, unit = split_unit(claim.published_metric)
    return f"{metric} {a} against {b}{f' {unit}' if unit else ''}, {printed_difference(a, b)}".strip()


def _sentence(verdict: Verdict) -> str:
    published = f" (published: {verdict.published})" if verdict.published else ""
    interval, effect = verdict.adjusted, verdict.effect
    if effect is None or interval.low is None or interval.high is None:
        return f"{verdict.outcome}: {verdict.reason}{published}"
    unit = f" {verdict.unit}" if verdict.unit else ""
    amount = f"{fixed(abs(effect), places(interval.half, effect))}{unit}"
    around = range_text(interval if effect >= 0 else _turned(interval))
    if verdict.claim.relation == ">" and verdict.outcome != NOT_RESOLVED:
        direction = "better" if effect > 0 else "worse"
        text = f"at this scale {verdict.a} is {direction} than {verdict.b} in {verdict.metric} by {amount} {around}"
    else:
        favoured = verdict.a if effect >= 0 else verdict.b
        text = f"at this scale {verdict.a} and {verdict.b} differ in {verdict.metric} by {amount} {around}"
        text += f" in favour of {favoured}"
    if verdict.claim.relation == "~":
        side = {REPLICATES: "within", CONTRADICTS: "beyond"}.get(verdict.outcome, "undecided against")
        text += f", {side} the margin of {verdict.claim.margin:g}{unit}"
    text += f", n = {verdict.n}"
    return f"{verdict.outcome}: {text}{_why(verdict, unit)}{published}"


def _why(verdict: Verdict, unit: str) -> str:
    parts = [verdict.reason] if verdict.reason else []
    if verdict.outcome == NOT_RESOLVED and verdict.detectable:
        smallest = fixed(verdict.detectable, places(verdict.detectable, verdict.detectable))
        parts.append(f"a true effect of {smallest}{unit} would be seen with {100 * POWER:g} % power")
    return "".join(f"; {part}" for part in parts)


def _turned(interval: Interval) -> Interval:
    """The interval of ``b - a``."""
    mean, low, high = (None if x is None else -x for x in (interval.mean, interval.high, interval.low))
    return Interval(mean, low, high, interval.n, interval.level)


def tally(found: Sequence[Verdict]) -> str:
    """``2 replicate, 1 contradicts, 1 not resolved``: the verdicts of a grid in one line."""
    names = {REPLICATES: ("replicates", "replicate"), CONTRADICTS: ("contradicts", "contradict")}
    counts = []
    for outcome in (REPLICATES, CONTRADICTS, NOT_RESOLVED):
        count = sum(verdict.outcome == outcome for verdict in found)
        one, many = names.get(outcome, (outcome, outcome))
        counts += [f"{count} {one if count == 1 else many}"] if count else []
    return ", ".join(counts) or "no claims"
