"""The claims of a grid file, joined with the published claims that they name.

A paper's claim is stated once, in ``ablations/published/claims``. A grid names it and adds what only a grid knows: the
metric, the cells, a margin. What no paper claims, a hypothesis, states itself in the grid.
"""

from typing import Any, get_args

from ablations.claims.published_claims import PublishedClaim, with_parts
from ablations.core.strict_yaml import Document, Path_
from ablations.schema.claim import Claim
from lightning_modules.config import did_you_mean

_STATED = ("statement", "source", "published_metric", "published")  # by the published claim
_OWN = ("id", "statement", "source")  # by a hypothesis
# published relation -> the relations by which a grid may ask a part of it, or something sharper
_ASKED_AS = {">": ("ratio",), "~": ("ratio",), "ordering": (">",), "trend": (">", "ordering"), "interaction": (">",)}


def join(document: Document) -> Any:
    """The claims of a grid file in full, as `Claim` takes them; what is wrong is noted in ``document``."""
    entries = document.data["claims"]
    if not isinstance(entries, list):
        return entries
    return [_joined(n, entry, document) if isinstance(entry, dict) else entry for n, entry in enumerate(entries)]


def _joined(n: int, entry: dict[str, Any], document: Document) -> dict[str, Any]:
    where, known = ("claims", n), with_parts()
    if "claim" not in entry:
        return _own(where, entry, document)
    name = entry["claim"]
    if not isinstance(name, str) or name not in known:
        hint = did_you_mean(str(name), known)
        document.complain((*where, "claim"), f"there is no published claim '{name}'.{hint}")
        return _placeholders(n) | entry | {"claim": ""}
    published = known[name]
    for key in _STATED:
        if key in entry:
            document.complain((*where, key), f"{published.place} says this; leave it out")
    if entry.get("id") == name:
        document.complain((*where, "id"), "is that of the published claim anyway; leave it out")
    _check_relation(where, entry, published, document)
    _check_values(where, entry, published, document)
    return {"relation": published.as_asked} | entry | _stated(published) | {"id": entry.get("id", name)}


def _own(where: Path_, entry: dict[str, Any], document: Document) -> dict[str, Any]:
    """A claim that names no published one, and so states itself."""
    if not any(key in entry for key in _OWN):
        own = ", ".join(f"'{key}'" for key in _OWN)
        document.complain(where, f"names no published claim ('claim: ID'), nor does it state itself ({own})")
        return _placeholders(int(where[1])) | entry
    published = with_parts().get(str(entry.get("id")))
    if published:
        stated = ", ".join(key for key in _STATED if key in entry)
        rest = f" and leave out {stated}" if stated else ""
        message = f"is a published claim ({published.place}): write 'claim: {published.id}'{rest}"
        document.complain((*where, "id"), message)
    return entry


def _placeholders(n: int) -> dict[str, Any]:
    """So that everything else about a claim without a statement is checked too."""
    return {"id": f"claim_{n}", "statement": "-", "source": "-"}


def _stated(published: PublishedClaim) -> dict[str, Any]:
    return {
        "statement": published.statement,
        "source": published.source,
        "published_metric": published.label or published.metric,
        "published": published.values_as_asked,
    }


def _check_relation(where: Path_, entry: dict[str, Any], published: PublishedClaim, document: Document) -> None:
    asked, theirs = entry.get("relation"), published.as_asked
    if asked is None:
        return
    if asked == theirs:
        document.complain((*where, "relation"), f"{published.place} says this; leave it out")
        return
    known = get_args(Claim.model_fields["relation"].annotation)
    allowed = _ASKED_AS.get(theirs, ())
    if asked in known and asked not in allowed:
        others = f"; a grid may ask {' or '.join(repr(one) for one in allowed)} instead" if allowed else ""
        message = f"{asked!r} is another claim than the published one, '{theirs}' ({published.place}){others}"
        document.complain((*where, "relation"), message)


def _check_values(where: Path_, entry: dict[str, Any], published: PublishedClaim, document: Document) -> None:
    """Printed values belong to sides: as many of the one as of the other."""
    sides = entry.get("sides")
    asked = len(sides) if isinstance(sides, list) else 2
    if published.values and len(published.values) != asked:
        listed = ", ".join(published.sides)
        message = f"asks {asked} sides, but {published.place} has values of {len(published.values)} ({listed})"
        document.complain(where, f"{message}; name a claim of these sides, or add it there with 'part_of'")
