"""Checks of the claims of a grid: their sides, bounds and published values."""

from string import ascii_lowercase
from typing import Any

from ablations.claims.relations import RELATIONS
from ablations.core.metrics import EXACT
from ablations.core.strict_yaml import Document, Path_
from ablations.measurements.references import references
from ablations.schema.claim import Claim
from ablations.schema.grid import Grid
from lightning_modules.config import did_you_mean

_NEEDS = {"~": ("margin", "a claim of equality ('~') needs a 'margin'"), "ratio": ("ratio", "needs 'ratio'")}


def check(grid: Grid, document: Document) -> None:
    """Adds the problems of a well-formed grid's claims to ``document``."""
    ids = [claim.id for claim in grid.claims]
    directions = {metric.name: metric.better for metric in grid.metrics}
    for n, claim in enumerate(grid.claims):
        _check_sides(n, claim, document)
        if claim.against and claim.against not in references(claim.metric).values():
            hint = did_you_mean(claim.against, references(claim.metric).values())
            document.complain(("claims", n, "against"), f"is not a baseline of {claim.metric}.{hint}")
        if claim.against and claim.official:
            document.complain(
                ("claims", n, "official"), "a claim against a baseline has no official metric; leave this out"
            )
        if claim.id in ids[:n]:
            document.complain(("claims", n, "id"), f"two claims are called '{claim.id}'")
        if claim.better != directions.get(claim.metric, claim.better):
            document.complain(
                ("claims", n, "better"),
                f"contradicts the grid's metrics; for {claim.metric}, {directions[claim.metric]} is better",
            )
        _check_bounds(n, claim, document)
        letters = ascii_lowercase[: max(2, len(claim.asked))]
        for side in set(claim.published) - set(letters):
            named = " and ".join(letters) if len(letters) == 2 else f"the sides, {', '.join(letters)}"
            document.complain(
                ("claims", n, "published", side), f"is not a side of this claim; published values belong to {named}"
            )


def places(n: int, claim: Claim) -> list[tuple[Path_, dict[str, Any]]]:
    """Each side of a claim with its place in the file."""
    pair: list[tuple[Path_, dict[str, Any]]] = [
        (("claims", n, name), side) for name, side in (("a", claim.a), ("b", claim.b)) if side
    ]
    return pair + [(("claims", n, "sides", m), side) for m, side in enumerate(claim.sides)]


def _check_sides(n: int, claim: Claim, document: Document) -> None:
    """A relation has its own number of sides under its own keys, and no side twice."""
    where: Path_ = ("claims", n)
    fewest, most = RELATIONS[claim.relation].sides
    if most == 2:
        _check_two(where, claim, document)
    elif claim.a or claim.b or claim.against:
        document.complain(where, f"'{claim.relation}' takes no 'a', 'b' or 'against'; list its sides under 'sides'")
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
        document.complain(where, f"'{claim.relation}' takes no 'sides'; write its two sides as 'a' and 'b'")
    elif not claim.a:
        document.complain(where, "a claim needs a first side, 'a'")
    elif bool(claim.b) == bool(claim.against):
        document.complain(where, "a claim needs a second side, either 'b' or 'against'")
    elif claim.against and claim.relation not in (">", "~"):
        document.complain(where, f"only '>' and '~' take 'against'; give '{claim.relation}' a side 'b'")
    elif claim.a == claim.b:
        document.complain(where, "a and b are the same cell")


def _check_bounds(n: int, claim: Claim, document: Document) -> None:
    """A relation needs its own bound and no other; a metric without noise has no spread."""
    key, text = _NEEDS.get(claim.relation, ("", ""))
    if key and getattr(claim, key) is None:
        text = text if key == "margin" else f"'{claim.relation}' {text}: a is at least so many times as good as b"
        document.complain(("claims", n), text)
    for other, (name, _) in _NEEDS.items():
        if other != claim.relation and getattr(claim, name) is not None:
            document.complain(("claims", n, name), f"is for the relation '{other}' only; leave it out")
    if claim.relation == "spread" and claim.metric in EXACT:
        document.complain(("claims", n, "metric"), f"'{claim.metric}' is the same in every seed and has no spread")
