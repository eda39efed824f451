"""What a claim must be beyond its shape: the sides that its relation compares, and values that belong to them."""

from string import ascii_lowercase
from typing import Any

from ablations.claims.relations import RELATIONS
from ablations.core.metrics import EXACT
from ablations.core.strict_yaml import Document, Path_
from ablations.measurements.references import references
from ablations.schema.claim import Claim
from ablations.schema.grid import Grid
from lightning_modules.config import did_you_mean

_NEEDS = {"~": ("margin", "a claim of equality ('~') needs a margin"), "ratio": ("ratio", "needs a ratio")}


def check(grid: Grid, document: Document) -> None:
    """Notes in ``document`` everything that is wrong with the claims of a grid of the right shape."""
    ids = [claim.id for claim in grid.claims]
    directions = {metric.name: metric.better for metric in grid.metrics}
    for n, claim in enumerate(grid.claims):
        _check_sides(n, claim, document)
        if claim.against and claim.against not in references(claim.metric).values():
            hint = did_you_mean(claim.against, references(claim.metric).values())
            document.complain(("claims", n, "against"), f"is not what {claim.metric} is read against.{hint}")
        if claim.against and claim.official:
            document.complain(("claims", n, "official"), "a claim against a baseline has one metric")
        if claim.id in ids[:n]:
            document.complain(("claims", n, "id"), f"two claims are called '{claim.id}'")
        if claim.better != directions.get(claim.metric, claim.better):
            document.complain(("claims", n, "better"), f"among the grid's metrics {directions[claim.metric]} is better")
        _check_bounds(n, claim, document)
        letters = ascii_lowercase[: max(2, len(claim.asked))]
        for side in set(claim.published) - set(letters):
            named = " and ".join(letters) if len(letters) == 2 else f"the sides, {', '.join(letters)}"
            document.complain(("claims", n, "published", side), f"the published values are those of {named}")


def places(n: int, claim: Claim) -> list[tuple[Path_, dict[str, Any]]]:
    """Where the file has each side of a claim, and what it says there."""
    found: list[tuple[Path_, dict[str, Any]]] = [
        (("claims", n, name), side) for name, side in (("a", claim.a), ("b", claim.b)) if side
    ]
    return found + [(("claims", n, "sides", m), side) for m, side in enumerate(claim.sides)]


def _check_sides(n: int, claim: Claim, document: Document) -> None:
    """The sides that the relation compares, in the words that it has for them, and no side twice."""
    where: Path_ = ("claims", n)
    fewest, most = RELATIONS[claim.relation].sides
    if most == 2:
        _check_two(where, claim, document)
    elif claim.a or claim.b or claim.against:
        document.complain(where, f"'{claim.relation}' lists its sides under 'sides', not as 'a', 'b' or 'against'")
    elif not fewest <= len(claim.sides) <= most:
        count = str(fewest) if fewest == most else f"{fewest} to {most}"
        document.complain(where, f"'{claim.relation}' needs {count} 'sides', not {len(claim.sides)}")
    if not all(claim.sides):
        document.complain((*where, "sides"), "a side names at least one axis and its value")
    if claim.relation == "interaction" and claim.sides[:2] == claim.sides[2:]:
        document.complain((*where, "sides"), "the two differences are the same")
    elif claim.relation == "interaction" and any(
        a == b for a, b in zip(claim.sides[::2], claim.sides[1::2], strict=False)
    ):
        document.complain((*where, "sides"), "a difference of a cell to itself is nothing")
    elif claim.relation != "interaction" and any(side in claim.sides[:m] for m, side in enumerate(claim.sides)):
        document.complain((*where, "sides"), "two sides are the same cell")


def _check_two(where: Path_, claim: Claim, document: Document) -> None:
    if claim.sides:
        document.complain(where, f"'{claim.relation}' compares two sides, 'a' and 'b': it has no 'sides'")
    elif not claim.a:
        document.complain(where, "a claim has a first side: 'a'")
    elif bool(claim.b) == bool(claim.against):
        document.complain(where, "a claim has a second side: either 'b' or 'against'")
    elif claim.against and claim.relation not in (">", "~"):
        document.complain(where, f"'against' goes with '>' and '~'; '{claim.relation}' has a side 'b'")
    elif claim.a == claim.b:
        document.complain(where, "a and b are the same cell")


def _check_bounds(n: int, claim: Claim, document: Document) -> None:
    """Margins and ratios where a relation has one; what has no noise has no spread."""
    key, text = _NEEDS.get(claim.relation, ("", ""))
    if key and getattr(claim, key) is None:
        text = text if key == "margin" else f"'{claim.relation}' {text}: how many times as good a is at least"
        document.complain(("claims", n), text)
    for other, (name, _) in _NEEDS.items():
        if other != claim.relation and getattr(claim, name) is not None:
            document.complain(("claims", n, name), f"goes with the relation '{other}' alone")
    if claim.relation == "spread" and claim.metric in EXACT:
        document.complain(("claims", n, "metric"), f"'{claim.metric}' is the same in every seed: it has no spread")
