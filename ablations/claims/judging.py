"""The verdicts of the records on the claims of a grid.

The relation of a claim (``relations.py``) says how its sides compare: one is better, two are equal, an order, a trend,
an interaction, a ratio, a spread. The interval of its estimate at the claim's level says two things: the *direction*,
whether it excludes 0 and on which side, and the *size*, whether it lies inside the margin, beyond it or astride. The
decision sums them up as the claim asks:

=================  ===============  ===============  ================  ================  ================
verdict            a better than b  a little better  much better       better at most    a equals b
=================  ===============  ===============  ================  ================  ================
as claimed         above 0          above 0, inside  above the margin  below the margin  inside
against            below 0          below 0, beyond  below 0, inside   above the margin  beyond
within the margin  inside           inside
open               everything else  everything else  everything else   everything else   everything else
=================  ===============  ===============  ================  ================  ================

For a ratio the claimed ratio is the margin; for a trend, also no step may go the other way. Next to the verdict is its
regime (``outcomes.py``): whether models are past counting, and whether a threat to the claim's validity, the length
of training or the rate explains the result. It changes no verdict and no number, unless a test was withdrawn before it
had a verdict.

A grid is judged at fixed numbers of seeds (its looks). A verdict that is reached at the first is final and is computed
from the seeds of that look alone; claims that are open may be judged once more. The correction (``core.looks``) is
Holm's over the distinct tests with runs among the planned claims, within looks; post hoc claims are corrected for all
of them besides (``families.py``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ablations.claims.alignment import Aligned, Kind, aligned
from ablations.claims.contrasts import Sides, collect, computing, official
from ablations.claims.families import families, test_of
from ablations.claims.floors import floors, named, unlearned
from ablations.claims.margins import PUBLISHED, margin, source
from ablations.claims.outcomes import (
    NOT_JUDGED,
    NOT_MEASURED,
    OPEN,
    SETTLED,
    WITHIN,
    Direction,
    Reason,
    Regime,
)
from ablations.claims.rates import differs_at_common
from ablations.claims.relations import RELATIONS, Better, Trend, Way
from ablations.claims.verdict import Verdict
from ablations.claims.verdict_text import published, sentence
from ablations.core.estimates import Estimate
from ablations.core.formatting import split_unit
from ablations.core.looks import Decision, Looks, decided_in_families
from ablations.core.statistics import LEVEL, Interval
from ablations.measurements.measurements import Measurements
from ablations.measurements.references import BIGRAM
from ablations.measurements.selection import parts_of
from ablations.measurements.variances import about
from ablations.schema.claim import Claim
from ablations.schema.metrics import EXACT
from lightning_modules.tasks import TASKS
from lightning_modules.zero_shot.table import ZERO_SHOT

_OF_KIND = {
    Kind.QUALITY: Regime.QUALITY,
    Kind.SPEED: Regime.SPEED,
    Kind.OPEN: Regime.SPEED_OR_QUALITY,
    Kind.NONE: Regime.SPEED_OR_QUALITY,
}
_NOTHING = Interval(None, None, None, 0, LEVEL)


@dataclass(frozen=True)
class _Case:
    """A claim with its data at a look: estimates whose positive direction is the claimed one, or why there are none."""

    claim: Claim
    sides: Sides
    estimates: tuple[Estimate, ...]
    reason: Reason
    why: str
    floors: tuple[str, ...] = ()  # the method that each side is no better than, if it is not
    unlearned: str = ""  # by the positive control
    rate: str = ""  # the setting in common that reverses the direction

    @property
    def relation(self) -> Better:
        return RELATIONS[self.claim.relation]

    @property
    def margin(self) -> float | None:
        return margin(self.claim)

    @property
    def ways(self) -> list[Way]:
        """The ways to an outcome."""
        return self.relation.ways(self.claim, self.margin, self.estimates)

    @property
    def is_below(self) -> bool:
        """Whether in some pair that is compared neither side is better than a simple method."""
        pairs = self.relation.compared(len(self.floors))
        return any(self.floors[a] and self.floors[b] for a, b in pairs if max(a, b) < len(self.floors))

    def regime(self, found: Aligned | None) -> Regime:
        """What kind of result the numbers are; `found` compares them at equal multiples of the crossing."""
        if threat := self.claim.threat:
            return Regime(threat.kind)
        if self.rate:
            return Regime.CONFOUNDED
        if self.unlearned or (self.is_below and BIGRAM in self.floors):
            return Regime.PLATEAU
        if self.is_below:
            return Regime.BELOW
        if any(cell.system.checkpoint for cell in self.sides.cells):
            return Regime.OTHER
        return _OF_KIND[found.kind] if found else Regime.AS_PUBLISHED

    @property
    def is_exact(self) -> bool:
        """Whether the metric has no noise."""
        return self.claim.metric in EXACT

    @property
    def has_ended(self) -> bool:
        """Whether every run of the look has ended, so that the look may be judged."""
        return self.reason not in (Reason.UNFINISHED, Reason.NO_RUN)

    @property
    def p(self) -> float:
        """The p value for the correction; 1 if the claim cannot be decided. Floors are no part of the test."""
        if self.reason or self.rate or not self.estimates or self.claim.is_withdrawn:
            return 1.0
        return self.relation.p(self.estimates, self.ways)

    def shown_p(self) -> float | None:
        """The p value to print; None without a test."""
        return self.p if self.estimates and self.estimates[0].error and not self.is_exact else None


def verdicts(measured: Measurements) -> list[Verdict]:
    """One verdict for each claim of the grid, in the order of the grid."""
    return [judged.verdict(measured) for judged in _judged(measured)]


@dataclass(frozen=True)
class FirstLook:
    """What the first look leaves to the second.

    Attributes:
        open: Labels of the cells in claims which more seeds may resolve.
        missing: The number of runs that have not ended, in the claim that lacks most.
    """

    open: frozenset[str]
    missing: int


def first_look(measured: Measurements) -> FirstLook:
    """What the first look leaves open, by the seeds of that look alone."""
    first = _judged(measured, looks=1)
    missing = max((judged.case.sides.unended for judged in first), default=0)
    helped = [
        case for judged in first if judged.reason is Reason.POWER and judged.outcome == OPEN
        and not ((case := judged.case).claim.is_withdrawn or case.rate or case.unlearned or case.is_below)
    ]  # fmt: skip
    standing = (cell for case in helped for cell in case.sides.cells)
    cells = {part.label for cell in standing for part in parts_of(measured.grid, measured.cells, cell)}
    return FirstLook(frozenset(cells), missing)


@dataclass(frozen=True)
class _Judged:
    """A claim at the look that decides, or at the last that it has reached."""

    case: _Case
    decision: Decision
    family: int
    test: int | None
    looks: tuple[int, ...]

    @property
    def level(self) -> float:
        return LEVEL if self.case.is_exact else self.decision.level

    @property
    def adjusted(self) -> Interval:
        case = self.case
        return case.relation.interval(case.estimates, self.level) if case.estimates else _NOTHING

    @property
    def outcome(self) -> str:
        case = self.case
        if case.reason or not case.estimates:
            return OPEN
        margin_ = None if source(case.claim) == PUBLISHED else case.margin  # smaller than published is no equality
        return case.relation.decide(case.claim, self.adjusted, case.ways, margin_)

    @property
    def reason(self) -> Reason:
        """Why the claim is open; `Reason.NONE` if it is not."""
        return self.case.reason or (Reason.POWER if self.outcome == OPEN else Reason.NONE)

    def verdict(self, measured: Measurements) -> Verdict:
        case, adjusted = self.case, self.adjusted
        claim, relation, estimates, sides = case.claim, case.relation, case.estimates, case.sides
        labels = {metric.name: metric.label or metric.name for metric in measured.grid.metrics}
        metric, unit = split_unit(labels.get(claim.metric, claim.metric))
        first = estimates[0] if estimates else None
        raw = relation.interval(estimates, LEVEL) if estimates else _NOTHING
        at_equal_multiples = aligned(claim, sides, measured.at_look(max(1, self.decision.look)))
        direction = relation.direction(adjusted)
        differs = direction is not Direction.OPEN and claim.relation != "~"
        verdict = Verdict(
            claim=claim,
            outcome=self.outcome,
            regime=case.regime(at_equal_multiples if differs else None) if self.reason.is_measured else Regime.NONE,
            direction=direction,
            size=relation.size(claim, adjusted, case.margin),
            reason=self.reason,
            notes=tuple(filter(None, (case.why, case.rate, case.unlearned, *sides.notes, *self._marks()))),
            sides=sides.names,
            metric=metric,
            unit=unit,
            margin=case.margin,
            raw=raw,
            adjusted=adjusted,
            look=max(1, self.decision.look),
            looks=self.looks,
            n=sides.n,
            seed_error=_root(first.seeds.value if first and first.seeds else None),
            example_error=_root(first.examples.value) if first and sides.has_examples else None,
            p=case.shown_p(),
            adjusted_p=None if case.shown_p() is None else self.decision.p,
            detectable=relation.detectable(claim, estimates, self.level) if first and not case.is_exact else None,
            pools=about(measured.grid, measured.cells),
            family=self.family,
            test=self.test,
            published=published(claim),
            proxy="; ".join(filter(None, (claim.proxy, _own_split(claim)))),
            runs=sides.runs,
            computing=computing([id for id in sides.behind if id not in sides.trunks], measured),
            continued=sides.continued,
            trunks=computing([id for id in sides.behind if id in sides.trunks], measured),
            floors=case.floors,
            unlearned=case.unlearned,
            aligned=at_equal_multiples,
            tested=tuple(relation.tested(estimates)),
            paired=sides.sample.blocked,
        )
        return replace(verdict, sentence=sentence(verdict))

    def _marks(self) -> list[str]:
        """Remarks added to the reason: threat, sides at the floor, runs that answer every example alike, steps back."""
        case, marks = self.case, []
        if threat := case.claim.threat:
            marks.append(threat.because.removesuffix("."))
        marks += named(case.floors)
        if silent := case.sides.silent:
            counted = "counted" if case.relation.counts_silent else "not counted"
            marks.append(f"{silent} fine-tuning{'s' * (silent > 1)} with all outputs equal, {counted}")
        if isinstance(case.relation, Trend):
            steps, names = case.relation.wrong(case.estimates), case.sides.names
            marks += [f"from {names[n]} to {names[n - 1]} it gets worse" for n in reversed(steps)]
        return marks


def _root(variance: float | None) -> float | None:
    return None if variance is None else variance**0.5


def _judged(measured: Measurements, looks: int | None = None) -> list[_Judged]:
    """Every claim at the look that decides, or at the last that it has reached, of the first ``looks``."""
    numbers = measured.looks
    claims = [official(claim, measured.cells) for claim in measured.grid.claims]
    cases = [[_case(claim, at) for claim in claims]
             for at in (measured.at_look(look) for look in range(1, (looks or len(numbers)) + 1))]  # fmt: skip
    reached = _reached(cases, numbers)
    ran = [claim for claim, case in zip(claims, cases[0], strict=True) if case.sides.begun]
    found = families(ran or claims, measured.grid, measured.cells)
    places = {test: [claims.index(claim) for claim in found.deciding(test)] for test in found.tests}
    p_values = {
        test: [min(cases[look][n].p for n in members) for look in range(min(reached[n] for n in members))]
        for test, members in places.items()
    }
    decisions = decided_in_families(p_values, found.planned, Looks(numbers))
    exact = Decision(1, False, LEVEL, 1.0)
    judged = []
    for place, claim in enumerate(claims):
        key = test_of(claim, measured.grid, measured.cells)
        decision, test = decisions.get(key, exact), list(found.tests).index(key) if key in found.tests else None
        case = cases[max(1, decision.look) - 1][place]
        judged.append(_Judged(case, decision, found.size(claim, key), test, numbers))
    return judged


def _reached(cases: Sequence[Sequence[_Case]], numbers: Sequence[int]) -> list[int]:
    """How many looks each claim has reached: all their runs have ended, and the second has more of them."""
    counts = []
    for of_claim in zip(*cases, strict=True):
        count = 0
        for look, case in enumerate(of_claim):
            planned = max((len(cell.planned) for cell in case.sides.cells), default=0)
            if not case.has_ended or (look and planned < numbers[look]):
                break
            count = look + 1
        counts.append(count)
    return counts


def _case(claim: Claim, measured: Measurements) -> _Case:
    sides, relation = collect(measured, claim), RELATIONS[claim.relation]
    reason, why = _without_estimate(claim, sides)
    if not sides.n or reason in (Reason.UNTESTABLE, Reason.TEXT, Reason.QUESTION):
        return _Case(claim, sides, (), reason, why)
    problem = relation.problem(sides.sample.values)
    if problem:
        return _Case(claim, sides, (), reason or Reason.UNTESTABLE, why or problem)
    estimates = relation.estimates(claim, sides.sample)
    if not reason:
        reason, why = _with_estimate(claim, sides, estimates)
    rate = "" if reason else differs_at_common(claim, sides, estimates, measured)
    found = floors(measured, claim, sides)
    return _Case(claim, sides, estimates, reason, why, found, unlearned(measured, claim), rate)


def _without_estimate(claim: Claim, sides: Sides) -> tuple[Reason, str]:
    """Why the runs of a claim cannot be compared, whatever they measured."""
    if sides.missing or sides.apart:
        return (Reason.UNTESTABLE, sides.missing) if sides.missing else (sides.apart_for, sides.apart)
    if claim.metric in EXACT and sides.n:
        return Reason.NONE, ""
    if not sides.begun:
        return Reason.NO_RUN, "no finished run of some side"
    if sides.unended:
        return Reason.UNFINISHED, f"{sides.unended} of its runs have not ended. A look is judged when all have"
    lost = "; ".join(sides.lost)
    if not sides.n:
        if sides.silent:
            return Reason.SILENT, f"all {sides.silent} scores of some side are of equal outputs"
        told = "" if sides.notes else "its runs do not measure this"
        return (Reason.LOST, lost) if lost else (Reason.UNTESTABLE, told)
    if claim.relation == "spread" and lost:
        return Reason.LOST, f"{lost}. Without their scores the spread cannot be compared"
    if sides.n < 2:
        return Reason.ONE_SEED, "one seed on some side shows no noise. At least 2 are needed"
    return Reason.NONE, ""


def _with_estimate(claim: Claim, sides: Sides, estimates: Sequence[Estimate]) -> tuple[Reason, str]:
    fewest = RELATIONS[claim.relation].fewest
    if sides.n < fewest:
        return Reason.POWER, f"{sides.n} runs of some side. At least {fewest} are needed"
    if claim.metric not in EXACT and any(not estimate.error for estimate in estimates):
        return Reason.NO_NOISE, "the values are the same in every seed, so there is no noise to compare with"
    return Reason.NONE, ""


def _own_split(claim: Claim) -> str:
    name = claim.metric.partition(".")[0]
    task = TASKS.get(name) or ZERO_SHOT.get(name)
    return f"own split: {task.own_split}" if task and task.own_split else ""


def tally(judged: Sequence[Verdict]) -> str:
    """``2 as claimed (1 below counting), 1 open, 3 not measured``: the verdicts of a grid in one line."""
    counts = []
    for word in (*SETTLED, WITHIN, OPEN, NOT_JUDGED, NOT_MEASURED):
        of_word = [verdict for verdict in judged if verdict.standing == word]
        kinds = [verdict.regime for verdict in of_word if word in SETTLED and not verdict.regime.is_past_counting]
        told = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        counts += [f"{len(of_word)} {word}" + f" ({told})" * bool(told)] if of_word else []
    return ", ".join(counts) or "no claims"
