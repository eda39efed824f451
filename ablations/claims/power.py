"""What each claim of a grid can show at each look, before it runs: visible differences, and the power of equality.

The noise of a run comes from a pilot, the first scale with finished runs (the planned one, then the others of the
grid), pooled over cells as verdicts pool it; without a pilot from runs of other grids with the same metric and of like
size; without these it is assumed. Each row says which. The level is that of Holm's first step, its strictest, at each
look. The numbers of seeds are the grid's: none is chosen by looking at results.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from ablations.claims.contrasts import Sides, collect, measuring_runs, official
from ablations.claims.families import families, test_of
from ablations.claims.margins import margin, source
from ablations.claims.published_claims import RELATIONS as IN_WORDS
from ablations.claims.relations import RELATIONS
from ablations.claims.sample import Sample
from ablations.core.formatting import Entry, Sheet, fixed, places, split_unit
from ablations.core.looks import Looks, nominal_alpha
from ablations.core.moderation import Variance
from ablations.core.statistics import LEVEL, POWER
from ablations.measurements import like_size, trunks
from ablations.measurements.dictionary import unit
from ablations.measurements.example_scores import Scores
from ablations.measurements.measurements import Measurements
from ablations.measurements.variances import group_of
from ablations.schema.claim import Claim
from ablations.schema.grid import Grid
from ablations.schema.kinds import KINDS
from ablations.schema.metrics import EXACT
from ablations.schema.record import Record
from ablations.schema.run import Run

ASSUMED = {
    "nats": 0.012,
    "nats/byte": 0.003,
    "share": 0.01,
    "correlation": 0.02,
    "mean score": 0.01,
    "points": 0.6,
}  # unit -> sd of a run, without a pilot
_SPREAD = 0.6  # sd of distances from the median, in those of a run (normal: sqrt(1 - 2 / pi))
_NONE = 0.05  # a power of equality below this is none


@dataclass(frozen=True)
class Prospect:
    """What a claim can show at a look.

    Attributes:
        look: The look, from 1.
        n: Its number of seeds.
        pilot: The scale that the noise comes from; empty if it comes from elsewhere or is assumed.
        like: The number of other grids' cells of like size that the noise comes from; 0 if it does not.
        sd: Standard deviation of a run (of its logarithm for a ratio, of its distance from the median for a spread),
            the largest of the compared cells; None if unknown.
        examples: Whether the noise of held-out examples is counted.
        visible: The smallest true difference that is seen with 80 % power; None if unknown.
        margin, margin_from: The margin and where it comes from.
        equality: The chance to show a difference inside the margin if there is none; None without a margin.
        exact: Whether the metric has no noise, so that one run per side suffices.
        untestable: Why the scale cannot test the claim; empty if it can.
    """

    claim: Claim
    look: int
    n: int
    pilot: str = ""
    like: int = 0
    sd: float | None = None
    examples: bool = False
    visible: float | None = None
    margin: float | None = None
    margin_from: str = ""
    equality: float | None = None
    exact: bool = False
    untestable: str = ""

    @property
    def asks_equality(self) -> bool:
        """Whether the claim says that a difference is small."""
        return self.claim.relation == "~" or self.claim.size == "inside"

    @property
    def is_assumed(self) -> bool:
        """Whether the runs are too few to know the noise."""
        return self.sd is not None and not self.pilot and not self.like

    def to_dict(self) -> dict[str, Entry]:
        """All fields, the claim by its id."""
        return {"claim": self.claim.id, **{f.name: getattr(self, f.name) for f in fields(self) if f.name != "claim"}}


def prospects(
    grid: Grid, scale: str, measured: Mapping[str, Measurements], records: Sequence[Record] = ()
) -> list[Prospect]:
    """What every claim of a grid can show at each look of a scale, claim by claim.

    Args:
        measured: Scale -> measurements of its cells; pilots are tried in this order, after ``scale`` itself.
        records: Finished runs of any grids, for claims without a pilot.
    """
    here = measured[scale]
    looks, pilots = Looks(here.looks), {scale: here, **measured}
    claims = [official(claim, here.cells) for claim in grid.claims]
    corrected, found = families(claims, grid, here.cells), []
    for claim in claims:
        tests = corrected.size(claim, test_of(claim, grid, here.cells))
        level = 1 - nominal_alpha((1 - LEVEL) / max(1, tests), looks)
        known = _noise(claim, here, pilots, records)
        found += [_prospect(claim, look, here, known, level) for look in range(1, len(looks.n) + 1)]
    return found


@dataclass(frozen=True)
class _Noise:
    """The noise of a run and where it comes from; as in `Prospect`, with the sides of the pilot."""

    sd: float | None = None
    pilot: str = ""
    like: int = 0
    scores: tuple[Scores, ...] = ()


def _prospect(claim: Claim, look: int, here: Measurements, noise: _Noise, level: float) -> Prospect:
    n, relation = here.looks[look - 1], RELATIONS[claim.relation]
    sides, bound = collect(here, claim), margin(claim)
    told = Prospect(claim, look, n, margin=bound, margin_from=source(claim), exact=claim.metric in EXACT)
    if sides.missing or sides.apart or told.exact:
        return replace(told, untestable=sides.missing or sides.apart)
    sd = noise.sd
    if sd is None:
        return told
    df = sum(n - 1 for cell in here.cells if group_of(here.grid, cell) == group_of(here.grid, sides.cells[0]))
    planned = [[run] for run in _planned(claim, sides)]
    crossed, blocked = trunks.are_tuned(planned), sides.sample.blocked or trunks.are_shared(planned)
    df = n - 1 if blocked else df
    known = dict.fromkeys((cell.label for cell in sides.cells), Variance(sd**2, max(df, 1), max(df, 1)))
    keys = tuple(cell.label for cell in sides.cells)
    sample = Sample(keys, ((0.0,) * n,) * len(keys), known=known, scores=noise.scores, planned=True)
    sample = replace(sample, blocked=blocked, crossed=crossed)
    estimates = relation.estimates(claim, sample)
    return replace(
        told,
        pilot=noise.pilot,
        like=noise.like,
        sd=sd,
        examples=bool(noise.scores),
        visible=relation.detectable(claim, estimates, level) if n >= relation.fewest else None,
        equality=relation.equality(claim, estimates, level, bound),
    )


def _noise(claim: Claim, here: Measurements, pilots: Mapping[str, Measurements], records: Sequence[Record]) -> _Noise:
    """The largest sd of a claim's cells at the first scale whose runs show it; else that of like size, or assumed."""
    relation = RELATIONS[claim.relation]
    for name, measured in pilots.items():
        sides = collect(measured, claim)
        if sides.missing or sides.n < relation.fewest or relation.problem(sides.sample.values):
            continue
        sample = {"ratio": Sample.logs, "spread": Sample.spreads}.get(claim.relation, lambda same: same)(sides.sample)
        if not sample.has_noise:
            continue
        scores = sides.sample.scores if claim.relation not in ("ratio", "spread") else ()
        within = sample.within
        variance = within.value if within else max(sample.variances[key].value for key in sample.keys)
        return _Noise(variance**0.5, name, scores=scores)
    if claim.relation == "ratio":
        return _Noise()
    found = _of_like_size(claim, here, records)
    sd, cells = (found.sd, found.cells) if found else (ASSUMED.get(unit(claim.metric)), 0)
    return _Noise(None if sd is None else sd * (_SPREAD if claim.relation == "spread" else 1.0), like=cells)


def _of_like_size(claim: Claim, here: Measurements, records: Sequence[Record]) -> like_size.Noise | None:
    """The noise of other grids' runs that are as large as the largest of the claim's."""
    sides = collect(here, claim)
    runs = _planned(claim, sides)
    if not runs:
        return None
    largest = max(runs, key=lambda run: KINDS[run.kind].work(run)[2])
    return like_size.noise(
        records, claim.metric, largest, within=sides.sample.blocked or trunks.are_shared([[run] for run in runs])
    )


def _planned(claim: Claim, sides: Sides) -> list[Run]:
    """A run of each side that will measure the metric; while its search is open, one that is awaited."""
    task, runs = claim.metric.partition(".")[0], []
    for cell in sides.cells:
        awaited = tuple(run for run in cell.awaited if run.task == task) or cell.planned
        runs += (measuring_runs(cell, claim.metric) or awaited)[:1]
    return runs


def sheet(told: Sequence[Prospect], grid: Grid) -> Sheet:
    """One row per claim and two columns per look, for people."""
    units = {metric.name: split_unit(metric.label or metric.name)[1] for metric in grid.metrics}
    by_claim: dict[str, list[Prospect]] = {}
    for prospect in told:
        by_claim.setdefault(prospect.claim.id, []).append(prospect)
    rows: list[list[Entry]] = []
    for of_claim in by_claim.values():
        first = of_claim[0]
        claim, unit_ = first.claim, units.get(first.claim.metric, "")
        much = {"inside": ", a little", "beyond": ", much", "at_most": ", at most"}.get(claim.size, "")
        asked = IN_WORDS[claim.relation] + much
        row: list[Entry] = [claim.id + " (post hoc)" * claim.post_hoc, asked, amount(first.margin, unit_)]
        row += [amount(first.sd, "" if claim.relation == "ratio" else unit_) + _source(first)]
        for prospect in of_claim:
            row += [_visible(prospect, unit_), _equality(prospect)]
        rows.append(row)
    looks = [(p.look, p.n) for p in next(iter(by_claim.values()), [])]
    headings = ["claim", "relation", "margin", "sd of a run"]
    for look, n in looks:
        headings += [f"visible at look {look} (n = {n})", "power of equality"]
    return Sheet(headings, rows, left=2, notes=_notes(told, looks))


def _source(prospect: Prospect) -> str:
    """Where the noise comes from, to follow it: `` (laptop)``, `` (12 cells of like size)`` or `` (assumed)``."""
    if prospect.sd is None:
        return ""
    cells = f"{prospect.like} cell{'s' * (prospect.like > 1)} of like size" if prospect.like else "assumed"
    return f" ({prospect.pilot or cells})"


def amount(value: float | None, unit_: str) -> str:
    """A difference with its unit; empty for None."""
    return "" if value is None else f"{fixed(value, places(abs(value), value))} {unit_}".strip()


def _visible(prospect: Prospect, unit_: str) -> str:
    if prospect.untestable:
        return "not testable at this scale"
    if prospect.exact:
        return "no noise"
    if prospect.visible is None:
        return "unknown" if prospect.n >= RELATIONS[prospect.claim.relation].fewest else "too few seeds"
    return amount(prospect.visible, "times" if prospect.claim.relation == "ratio" else unit_)


def _equality(prospect: Prospect) -> str:
    if prospect.equality is None or not prospect.asks_equality:
        return ""
    return "none: cannot be shown" if prospect.equality < _NONE else f"{100 * prospect.equality:.0f} %"


def _notes(told: Sequence[Prospect], looks: Sequence[tuple[int, int]]) -> list[str]:
    numbers = " and ".join(str(n) for _, n in looks)
    notes = [
        f"Claims are judged at {numbers} seeds, fixed in the grid. What the first look decides is final. Only "
        "cells of open claims get the seeds of a second. Visible: the smallest true difference seen with "
        f"{100 * POWER:g} % power, at the level of Holm's first step over the claims of the grid and both looks. Power "
        "of equality: the chance to show a difference inside the margin if there is none."
    ]
    notes += _of_noise(told)
    hopeless = [p.claim.id for p in told if p.look == len(looks) and p.asks_equality and (p.equality or 0.0) < _NONE
                and p.sd is not None]  # fmt: skip
    if hopeless:
        notes.append(f"That a difference is small cannot be shown with these seeds and margins: {', '.join(hopeless)}.")
    return notes


def _of_noise(told: Iterable[Prospect]) -> list[str]:
    sources = list(dict.fromkeys(p.pilot for p in told if p.pilot))
    notes = [f"The sd of a run comes from the finished runs at {' and '.join(sources)}."] if sources else []
    if any(p.like for p in told):
        notes.append(
            "Of like size: runs of other grids on the same text that have the metric, with at most twice and at least "
            "half the FLOPs."
        )
    if any(p.is_assumed for p in told):
        notes.append("Assumed: too few runs have finished. The sd is a guess from grids of this kind.")
    if any(p.sd is not None and not p.examples for p in told):
        notes.append("Where no scores by example are known, the noise of held-out examples comes on top.")
    return notes
