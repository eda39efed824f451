"""The verdicts of the records on the claims of a grid.

The relation of a claim (``relations.py``) says how its sides compare: one is better, two are equal, an order, a trend,
an interaction, a ratio, a spread. The verdict is *replicates*, *contradicts* or *not resolved*, and the adjusted
interval decides:

======================  ==========================================  ===================================
verdict                 a better than b, and the other relations    a equals b
======================  ==========================================  ===================================
replicates              the interval lies above 0                   the interval lies within the margins
contradicts             the interval lies below 0                   the interval lies beyond a margin
not resolved            everything else, absent data included       everything else, absent data included
======================  ==========================================  ===================================

For a ratio, the claimed ratio replaces 0; for a trend, also no step may go the other way.

Holm's correction adjusts intervals over the distinct tests among the claims of the grid, of every relation, measured or
not: the family is fixed before there are results. Two claims about one contrast on one metric (the paper measured it by
two tasks) are one test. A metric without noise, such as a number of parameters, is compared directly and is no test.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ablations.claims.contrasts import Computing, Sides, collect, computing
from ablations.claims.relations import CONTRADICTS, NOT_RESOLVED, RELATIONS, REPLICATES, Better, agreement
from ablations.claims.verdict import Verdict
from ablations.claims.verdict_text import published, sentence, split_unit
from ablations.core.metrics import EXACT
from ablations.core.statistics import LEVEL, Contrast, holm, holm_levels, mean_interval
from ablations.measurements.example_scores import Resampled, resampled
from ablations.measurements.measurements import Measurements
from ablations.schema.cell import Cell
from ablations.schema.claim import Claim
from ablations.schema.grid import Grid
from lightning_modules.tasks import TASKS

__all__ = ["CONTRADICTS", "NOT_RESOLVED", "REPLICATES", "Verdict", "tally", "tests", "verdicts"]


@dataclass(frozen=True)
class _Case:
    """A claim with its data: contrasts whose positive direction is the claimed one, or why there are none."""

    claim: Claim
    sides: Sides
    contrasts: tuple[Contrast, ...]
    obstacle: str

    @property
    def relation(self) -> Better:
        return RELATIONS[self.claim.relation]

    @property
    def measured(self) -> bool:
        """Whether there is a p value, decided or not."""
        return self.contrasts[0].n > 1 and self.claim.metric not in EXACT

    @property
    def p(self) -> float:
        """The p value for Holm's correction; 1 if the claim cannot be decided."""
        return 1.0 if self.obstacle else self.relation.p(self.claim, self.contrasts)

    def shown_p(self) -> float | None:
        """The p value to print; None without a test."""
        return self.p if self.measured else None


def tests(claims: Sequence[Claim]) -> dict[tuple[object, ...], list[Claim]]:
    """The claims of each distinct test, in order: same relation, same sides, same metric."""
    by_test: dict[tuple[object, ...], list[Claim]] = {}
    for claim in claims:
        if claim.metric not in EXACT:
            by_test.setdefault(_test(claim), []).append(claim)
    return by_test


def _test(claim: Claim) -> tuple[object, ...]:
    sides = tuple(repr(sorted(side.items())) for side in claim.asked)
    mirrored = claim.relation in (">", "~", "spread")
    bound = {"~": claim.margin, "ratio": claim.ratio}.get(claim.relation)
    kind = claim.relation if claim.relation not in (">", "~") else ""
    return kind, frozenset(sides) if mirrored else sides, claim.metric, claim.against, bound


def verdicts(measured: Measurements) -> list[Verdict]:
    """One verdict for each claim of the grid, in the order of the grid."""
    claims = [_measured(claim, measured.cells) for claim in measured.grid.claims]
    cases = [_case(claim, measured) for claim in claims]
    p_values = dict.fromkeys(tests(claims), 1.0)
    p_values |= {_test(case.claim): case.p for case in cases if _test(case.claim) in p_values}
    adjusted = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    levels = dict(zip(p_values, holm_levels(list(p_values.values())), strict=True))
    judged = []
    for case in cases:
        test = _test(case.claim)
        decided = adjusted.get(test, 1.0), levels.get(test, LEVEL), len(p_values)
        spent = computing(case.sides.behind, measured)
        judged.append(_verdict(measured.grid, case, *decided, spent, _beside(case, measured)))
    return judged


def _measured(claim: Claim, cells: Sequence[Cell]) -> Claim:
    """The claim with the metric on official data if the cells are fine-tuned on it."""
    task = claim.official.partition(".")[0]
    is_official = any(task in cell.tasks for cell in cells) and bool(task)
    return claim.model_copy(update={"metric": claim.official}) if is_official else claim


def _beside(case: "_Case", measured: Measurements) -> Resampled | None:
    if case.claim.relation not in (">", "~") or len(case.contrasts) != 1:
        return None
    return resampled(case.claim, case.contrasts[0], case.sides.runs, measured)


def _case(claim: Claim, measured: Measurements) -> _Case:
    sides, relation = collect(measured, claim), RELATIONS[claim.relation]
    empty = (Contrast((), ()),)
    if sides.missing:
        return _Case(claim, sides, empty, sides.missing)
    problem = relation.problem(sides.values)
    if problem:
        return _Case(claim, sides, empty, problem)
    contrasts = relation.contrasts(claim, sides.values)
    return _Case(claim, sides, contrasts, _obstacle(claim, sides, contrasts))


def _obstacle(claim: Claim, sides: Sides, contrasts: Sequence[Contrast]) -> str:
    """Why contrasts cannot be decided, whatever their interval is."""
    relation, n, count = RELATIONS[claim.relation], contrasts[0].n, len(sides.values)
    if n < relation.fewest:
        what = ("pair" if count == 2 else "set") + "s" * (n > 1)
        sized = "" if count == 2 else f" of {count} runs"
        finished = f"{('no', 'one')[n] if n < 2 else n} finished {what}{sized}"
        return f"{finished} with a common seed on one device class; at least {relation.fewest} are needed"
    if any(sides.plateau[a] and sides.plateau[b] for a, b in relation.compared(count)):
        which = "both sides" if count == 2 else "two sides that are compared"
        return f"{which} are still on the plateau (no better than the bigram baseline); train longer"
    if claim.relation == "spread" and sides.lost:
        return f"{', '.join(sides.lost)}; without their scores the spread cannot be compared"
    if claim.metric not in EXACT and any(contrast.sd == 0 for contrast in contrasts):
        return "the difference is the same in every seed, so there is no noise to compare with"
    return ""


def _verdict(
    grid: Grid, case: _Case, p: float, level: float, family: int, spent: Computing, beside: Resampled | None
) -> Verdict:
    claim, relation, contrasts = case.claim, case.relation, case.contrasts
    labels = {metric.name: metric.label or metric.name for metric in grid.metrics}
    metric, unit = split_unit(labels.get(claim.metric, claim.metric))
    adjusted = relation.interval(claim, contrasts, level)
    outcome = NOT_RESOLVED if case.obstacle else relation.decide(claim, adjusted)
    veto = relation.veto(contrasts) if outcome == REPLICATES else ""
    verdict = Verdict(
        claim=claim,
        outcome=NOT_RESOLVED if veto else outcome,
        reason="; ".join(filter(None, (case.obstacle, veto, *case.sides.notes, _rank_agreement(case)))),
        sides=case.sides.names,
        metric=metric,
        unit=unit,
        raw=relation.interval(claim, contrasts, LEVEL),
        adjusted=adjusted,
        p=case.shown_p(),
        adjusted_p=p if case.measured else None,
        rank_p=contrasts[0].rank_p if len(contrasts) == 1 else None,
        detectable=relation.detectable(claim, contrasts, level),
        family=family,
        published=published(claim),
        proxy="; ".join(filter(None, (claim.proxy, _own_split(claim)))),
        runs=case.sides.runs,
        computing=spent,
        resampled=beside,
    )
    return replace(verdict, sentence=sentence(verdict))


def _own_split(claim: Claim) -> str:
    task = TASKS.get(claim.metric.partition(".")[0])
    return f"own split: {task.own_split}" if task and task.own_split else ""


def _rank_agreement(case: _Case) -> str:
    """Kendall's tau of an ordering; printed, never decisive."""
    if case.claim.relation != "ordering" or case.obstacle:
        return ""
    interval = mean_interval(agreement(case.claim, case.sides.values))
    if interval.mean is None:
        return ""
    around = f" [{interval.low:.2f}, {min(1.0, interval.high):.2f}]" if interval.low and interval.high else ""
    return f"Kendall's tau with the claimed order {interval.mean:.2f}{around}"


def tally(judged: Sequence[Verdict]) -> str:
    """``2 replicate, 1 contradicts, 1 not resolved, 3 not measured``: the verdicts of a grid in one line."""
    names = {REPLICATES: ("replicates", "replicate"), CONTRADICTS: ("contradicts", "contradict")}
    counts = []
    for outcome in (REPLICATES, CONTRADICTS, NOT_RESOLVED, "not measured"):
        count = sum((verdict.outcome if verdict.n else "not measured") == outcome for verdict in judged)
        singular, plural = names.get(outcome, (outcome, outcome))
        counts += [f"{count} {singular if count == 1 else plural}"] if count else []
    return ", ".join(counts) or "no claims"
