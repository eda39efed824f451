"""Checks of the claims of a grid: their sides, bounds and published values."""

from collections.abc import Mapping, Sequence
from string import ascii_lowercase
from typing import Any

from ablations.claims.floors import constant_answer
from ablations.claims.margins import margin
from ablations.claims.relations import RELATIONS
from ablations.core.strict_yaml import Document, Path_
from ablations.measurements.references import BIGRAM, compared, references
from ablations.measurements.selection import agrees
from ablations.planning.cells import label
from ablations.schema.claim import Claim
from ablations.schema.grid import FIRST_SEARCH_SEED, Grid
from ablations.schema.metrics import EXACT, METRICS
from lightning_modules.config import did_you_mean

_MOST_LOOKS = 2  # as `core.looks` supports
_SIZED = (">", "~", "interaction")  # relations that take a margin: differences in the metric's own unit


def check(grid: Grid, document: Document) -> None:
    """Adds the problems of a well-formed grid's claims to ``document``."""
    ids = [claim.id for claim in grid.claims]
    for n, claim in enumerate(grid.claims):
        _check_sides(n, claim, document)
        if claim.against and claim.against not in compared(claim.metric).values():
            hint = did_you_mean(claim.against, compared(claim.metric).values())
            document.complain(("claims", n, "against"), f"is not a baseline of {claim.metric}.{hint}")
        if claim.against and claim.official:
            document.complain(
                ("claims", n, "official"), "a claim against a baseline has no official metric. Leave this out."
            )
        if claim.id in ids[:n]:
            document.complain(("claims", n, "id"), f"two claims are called '{claim.id}'")
        _check_bounds(n, claim, document)
        _check_control(n, claim, document)
        letters = ascii_lowercase[: max(2, len(claim.asked))]
        for side in set(claim.published) - set(letters):
            named = " and ".join(letters) if len(letters) == 2 else f"the sides, {', '.join(letters)}"
            document.complain(
                ("claims", n, "published", side), f"is not a side of this claim. Published values belong to {named}."
            )


def check_judged(grid: Grid, document: Document) -> None:
    """Adds the problems with the claims that scales name: the grid has each of them."""
    ids = [claim.id for claim in grid.claims]
    for name, scale in grid.scales.items():
        for n, judged in enumerate(scale.claims):
            place: Path_ = ("scales", name, "claims", n)
            if judged not in ids:
                document.slip(place, f"'{judged}' is not a claim of this grid.", ids, judged)
            elif judged in scale.claims[:n]:
                document.complain(place, f"'{judged}' is named twice. Name it once.")


def places(n: int, claim: Claim) -> list[tuple[Path_, dict[str, Any]]]:
    """Each side of a claim, and its positive control, with its place in the file."""
    pair: list[tuple[Path_, dict[str, Any]]] = [
        (("claims", n, name), side) for name, side in (("a", claim.a), ("b", claim.b)) if side
    ]
    control = claim.positive_control
    listed = [(("claims", n, "sides", m), side) for m, side in enumerate(claim.sides)]
    return [*pair, *listed, *([(("claims", n, "positive_control", "at"), control.at)] if control else [])]


def _check_sides(n: int, claim: Claim, document: Document) -> None:
    """A relation has its own number of sides under its own keys, and no side twice."""
    where: Path_ = ("claims", n)
    fewest, most = RELATIONS[claim.relation].sides
    if most == 2:
        _check_two(where, claim, document)
    elif claim.a or claim.b or claim.against:
        document.complain(where, f"'{claim.relation}' takes no 'a', 'b' or 'against'. List its sides under 'sides'.")
    elif not fewest <= len(claim.sides) <= most:
        count = str(fewest) if fewest == most else f"{fewest} to {most}"
        document.complain(where, f"'{claim.relation}' needs {count} 'sides', not {len(claim.sides)}")
    if not all(claim.sides):
        document.complain((*where, "sides"), "a side needs at least one axis and its value")
    if claim.relation == "interaction" and claim.sides[:2] == claim.sides[2:]:
        document.complain((*where, "sides"), "the two differences are the same")
    elif claim.relation == "interaction" and any(
        a == b for a, b in zip(claim.sides[::2], claim.sides[1::2], strict=False)
    ):
        document.complain((*where, "sides"), "compares a cell with itself")
    elif claim.relation != "interaction" and any(side in claim.sides[:m] for m, side in enumerate(claim.sides)):
        document.complain((*where, "sides"), "two sides are the same cell")


def _check_two(where: Path_, claim: Claim, document: Document) -> None:
    if claim.sides:
        document.complain(where, f"'{claim.relation}' takes no 'sides'. Write its two sides as 'a' and 'b'.")
    elif not claim.a:
        document.complain(where, "a claim needs a first side, 'a'")
    elif bool(claim.b) == bool(claim.against):
        document.complain(where, "a claim needs a second side, either 'b' or 'against'")
    elif claim.against and claim.relation not in (">", "~"):
        document.complain(where, f"only '>' and '~' take 'against'. Give '{claim.relation}' a side 'b'.")
    elif claim.a == claim.b:
        document.complain(where, "a and b are the same cell")


def _check_bounds(n: int, claim: Claim, document: Document) -> None:
    """A relation takes its own bound and no other; a metric without noise has no spread."""
    if claim.relation == "ratio" and claim.ratio is None:
        document.complain(("claims", n), "'ratio' needs 'ratio': a is at least so many times as good as b")
    if claim.relation != "ratio" and claim.ratio is not None:
        document.complain(("claims", n, "ratio"), "is for the relation 'ratio' only. Leave it out.")
    if claim.relation not in _SIZED and claim.margin is not None:
        sized = ", ".join(map(repr, _SIZED))
        document.complain(("claims", n, "margin"), f"is for differences only ({sized}). Leave it out.")
    if claim.size and claim.relation != ">":
        document.complain(("claims", n, "size"), "is for the relation '>' only. Leave it out.")
    if (claim.relation == "~" or claim.size) and margin(claim) is None:
        document.complain(("claims", n), f"needs a 'margin': there is none by default for {claim.metric}")
    if claim.relation == "spread" and claim.metric in EXACT:
        document.complain(("claims", n, "metric"), f"'{claim.metric}' is the same in every seed and has no spread")


def _check_control(n: int, claim: Claim, document: Document) -> None:
    """A positive control needs something to be above: a simple method, a constant answer, or the bigram baseline."""
    metric = claim.positive_control and (claim.positive_control.metric or claim.metric)
    above = claim.positive_control.above if claim.positive_control else ""
    if metric and above and above not in references(metric).values():
        hint = did_you_mean(above, references(metric).values())
        document.complain(("claims", n, "positive_control", "above"), f"is not a baseline of {metric}.{hint}")
    if metric and not above and not constant_answer(metric) and BIGRAM not in references(metric):
        known = [name for name in METRICS if constant_answer(name)]
        text = f"'{metric}' has no constant answer and no baseline to be above.{did_you_mean(metric, known)}"
        document.complain(("claims", n, "positive_control", "metric"), text)


def check_looks(grid: Grid, document: Document) -> None:
    """Adds the problems with numbers of seeds: they grow from look to look and stay below those of searches."""
    if grid.looks:
        _check_looks((), grid.looks, grid.seeds, document)
    for name, scale in grid.scales.items():
        place: Path_ = ("scales", name)
        if scale.looks:
            _check_looks(place, scale.looks, scale.seeds or grid.seeds, document)
        last = grid.first_seed_at(name) + grid.looks_at(name)[-1] - 1
        if last >= FIRST_SEARCH_SEED:
            own = scale.first_seed is not None
            text = f"the last seed at scale '{name}' is {last}. Seeds from {FIRST_SEARCH_SEED} on belong to searches."
            document.complain((*place, "first_seed") if own else ("first_seed",), text)


def _check_looks(place: Path_, looks: Sequence[int], seeds: int, document: Document) -> None:
    where = (*place, "looks")
    if len(looks) > _MOST_LOOKS:
        document.complain(where, f"{len(looks)} looks. At most {_MOST_LOOKS} are supported.")
    elif list(looks) != sorted(set(looks)):
        document.complain(where, "numbers of seeds must grow from look to look")
    elif looks[0] != seeds:
        document.complain(where, f"the first look has {looks[0]} seeds, 'seeds' says {seeds}: write the same number")


def check_groups(grid: Grid, rows: Mapping[str, Sequence[Mapping[str, Any]]], document: Document) -> None:
    """Adds the problems with variance groups: every cell belongs to exactly one.

    Args:
        rows: Scale -> the combinations of its cells, in published values.
    """
    groups = grid.variance_groups
    for scale, combinations in rows.items() if groups else ():
        for row in combinations:
            count = sum(agrees(row, when) for when in groups)
            if count != 1:
                text = f"the cell {label(row)} of scale '{scale}' is in {count} groups. Each belongs to exactly one."
                document.complain(("variance_groups",), text)
                break
