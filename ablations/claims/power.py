"""The number of seeds that the claims of a grid need, estimated before it runs.

To show an effect with 80 % power, its interval must be narrow enough, and its width depends on the noise, which only
finished runs show. The pilot is a scale with finished runs: the scale itself, then the other scales of the grid.
Without one, the answer is for effects in standard deviations of a seed's number (of the difference of two sides, or of
the relation's own number).

The level is Bonferroni's share for the family of the grid's claims: that of Holm's first step, its strictest. Seeds
follow from the noncentral t distribution, with the spread of the pilot taken as true.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from ablations.claims.contrasts import collect
from ablations.claims.judging import tests
from ablations.claims.published_claims import RELATIONS as IN_WORDS
from ablations.claims.relations import RELATIONS
from ablations.claims.verdict_text import split_unit
from ablations.core.formatting import Entry, Sheet, fixed, places
from ablations.core.metrics import EXACT
from ablations.core.statistics import LEVEL, POWER, Contrast, seeds_needed
from ablations.measurements.measurements import Measurements
from ablations.schema.claim import Claim
from ablations.schema.grid import Grid
from lightning_modules.tasks import TASKS

EFFECTS = (0.5, 1.0, 2.0)  # standard deviations, without a pilot
_PERCENT = 100.0


@dataclass(frozen=True)
class Need:
    """The seeds that a claim needs.

    Attributes:
        pilot: The scale that the spread comes from; empty without one.
        n: Seeds of the pilot.
        sd: Standard deviation of a seed's number in the pilot, of the noisiest step of an ordering.
        effect: The effect in the pilot, in the relation's own terms; positive is as claimed.
        seeds: Seeds for that effect at 80 % power and the level of the plan; None if no number suffices.
        printed: The smallest published effect of the grid in this metric's unit; None if it does not transfer.
        seeds_printed: Seeds for the published effect.
        planned: Seeds that the scale plans.
        exact: Whether the metric has no noise, so that one run per side suffices.
        plateau: Whether compared sides were on the plateau in the pilot, so that its effect means little.
    """

    claim: Claim
    pilot: str
    n: int
    sd: float | None
    effect: float | None
    seeds: int | None
    printed: float | None
    seeds_printed: int | None
    planned: int
    exact: bool = False
    plateau: bool = False

    def to_dict(self) -> dict[str, Entry]:
        """All fields, the claim by its id."""
        return {"claim": self.claim.id, **{f.name: getattr(self, f.name) for f in fields(self) if f.name != "claim"}}


def family_level(claims: Sequence[Claim]) -> float:
    """The coverage of each interval when the family shares the level evenly (Bonferroni)."""
    return 1 - (1 - LEVEL) / max(1, len(tests(claims)))


def needs(grid: Grid, scale: str, measured: Mapping[str, Measurements], planned: int | None = None) -> list[Need]:
    """The seeds that every claim of a grid needs at a scale.

    Args:
        grid: The grid.
        scale: The scale of the plan.
        measured: Scale -> measurements of its cells; pilots are tried in this order, after ``scale`` itself.
        planned: Number of planned seeds; by default that of the cells of ``scale``.
    """
    level = family_level(grid.claims)
    pilots = {scale: measured[scale], **measured}
    seeds = max((len(cell.planned) for cell in measured[scale].cells), default=0) if planned is None else planned
    return [_need(grid, claim, pilots, level, seeds) for claim in grid.claims]


def _need(grid: Grid, claim: Claim, pilots: Mapping[str, Measurements], level: float, planned: int) -> Need:
    relation = RELATIONS[claim.relation]
    printed = smallest_published(grid, claim)
    if claim.metric in EXACT:
        return Need(claim, "", 0, None, None, 1, None, None, planned, exact=True)
    pilot, contrasts, plateau = _pilot(claim, pilots)
    if not contrasts:
        return Need(claim, "", 0, None, None, None, printed, None, planned)
    return Need(
        claim=claim,
        pilot=pilot,
        n=contrasts[0].n,
        sd=max(contrast.sd or 0.0 for contrast in relation.tested(contrasts)),
        effect=relation.interval(claim, contrasts, LEVEL).mean,
        seeds=relation.needed(claim, contrasts, None, level),
        printed=printed,
        seeds_printed=None if printed is None else relation.needed(claim, contrasts, printed, level),
        planned=planned,
        plateau=plateau,
    )


def _pilot(claim: Claim, pilots: Mapping[str, Measurements]) -> tuple[str, tuple[Contrast, ...], bool]:
    """The first scale whose measurements of a claim's sides have enough common seeds and some noise."""
    relation = RELATIONS[claim.relation]
    for name, measured in pilots.items():
        sides = collect(measured, claim)
        if sides.missing or len(sides.seeds) < relation.fewest or relation.problem(sides.values):
            continue
        contrasts = relation.contrasts(claim, sides.values)
        if all(contrast.sd for contrast in contrasts):
            flat = any(sides.plateau[a] and sides.plateau[b] for a, b in relation.compared(len(sides.plateau)))
            return name, contrasts, flat
    return "", (), False


def smallest_published(grid: Grid, claim: Claim) -> float | None:
    """The smallest published difference of two sides, among the grid's claims, in the unit of a claim's metric.

    Scores of the same task and measure transfer, from per cent to shares; perplexities transfer as logarithms, in nats.
    Everything else (such as a mean over tasks against a loss) is None: there is no conversion.
    """
    if claim.relation != ">":
        return None
    kin = (other for other in grid.claims if (other.metric, other.relation) == (claim.metric, ">"))
    effects = [abs(effect) for other in kin if (effect := published_effect(other))]
    return min(effects, default=None)


def published_effect(claim: Claim) -> float | None:
    """The published advantage of a over b in the unit of our metric; None if it does not transfer or is missing."""
    a, b = claim.published.get("a"), claim.published.get("b")
    if a is None or b is None or len(claim.published) != 2:
        return None
    theirs = split_unit(claim.published_metric.partition(",")[0])[0].casefold()
    if claim.metric == "heldout.loss":
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


def sheet(needed: Sequence[Need], grid: Grid, scale: str) -> Sheet:
    """One row per claim, for people."""
    units = {metric.name: split_unit(metric.label or metric.name) for metric in grid.metrics}
    rows: list[list[Entry]] = []
    for need in needed:
        unit = units.get(need.claim.metric, (need.claim.metric, ""))[1]
        rows.append([
            need.claim.id, IN_WORDS[need.claim.relation], _pilot_text(need),
            _amount(need.sd), _with(_amount(need.effect), unit if need.claim.relation != "ratio" else "times"),
            _seeds(need, need.seeds), _with(_amount(need.printed), unit) if need.printed else "does not transfer",
            _seeds(need, need.seeds_printed) if need.printed else "", need.planned,
        ])  # fmt: skip
    headings = ("claim", "relation", "pilot seeds", "sd of a seed", "effect so far", "seeds for it",
                "smallest published effect", "seeds for that", "planned")  # fmt: skip
    return Sheet(headings, rows, left=3, notes=_notes(needed, grid, scale))


def _notes(needed: Sequence[Need], grid: Grid, scale: str) -> list[str]:
    level, family = family_level(grid.claims), len(tests(grid.claims))
    notes = [
        f"Seeds for {100 * POWER:g} % power at {100 * level:.4g} %, the level of each of {family} tests when they "
        "share the error evenly (Bonferroni; Holm is as strict at its first step and less strict after). The pilot's "
        "spread is taken as true; with three seeds its 95 % interval reaches from half to six times its value."
    ]
    if any(need.pilot not in ("", scale) for need in needed):
        notes.append("A pilot at another scale may have another spread than this scale.")
    if any(need.effect is not None and _against(need) for need in needed):
        notes.append("An effect below 0, or a ratio below the claimed ratio, goes against the claim.")
    if any(need.claim.relation == "~" for need in needed):
        notes.append("For 'about equal', the seeds show equality within the margin if there is no true difference.")
    if any(need.claim.relation == "ordering" and need.pilot and need.seeds is None for need in needed):
        notes.append("No number: a step of the ordering goes the other way in the pilot; more seeds cannot show it.")
    if any(not need.pilot and not need.exact for need in needed):
        listed = ", ".join(f"{seeds_needed(size, 1.0, level)} for {size:g}" for size in EFFECTS)
        notes.append(
            "Without a pilot the spread is unknown. Seeds for effects in standard deviations of a seed's number: "
            f"{listed}."
        )
    if any(need.printed is None and not need.exact for need in needed):
        notes.append(
            "A published effect transfers if it is a difference of two sides on the same task and measure, or of "
            "perplexities; others cannot be converted."
        )
    return notes


def _against(need: Need) -> bool:
    return need.effect is not None and need.claim.relation != "~" and need.effect < (need.claim.ratio or 0.0)


def _amount(value: float | None) -> str:
    return "" if value is None else fixed(value, places(abs(value), value))


def _with(text: str, unit: str) -> str:
    return f"{text} {unit}".strip() if text else ""


def _pilot_text(need: Need) -> str:
    return f"{need.n} at {need.pilot}{', on the plateau' * need.plateau}" if need.pilot else "none"


def _seeds(need: Need, seeds: int | None) -> str:
    if need.exact:
        return "no noise"
    if seeds is not None:
        return str(seeds)
    return "no number" if need.pilot else ""
