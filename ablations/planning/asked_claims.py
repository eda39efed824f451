"""Joins the claims of a grid file with the published claims that they name.

A paper's claim is stated once, in ``ablations/published/claims``. A grid names it and adds what only a grid knows: the
metric, the cells, a margin. A hypothesis, which no paper claims, is
stated in the grid: it has an ``id`` and a ``statement`` of its own, is judged by the same statistics, and is on no row
of the scoreboard.
"""

from typing import Any, get_args

from ablations.claims.published_claims import PublishedClaim, unknown, with_parts
from ablations.core.strict_yaml import Document, Path_
from ablations.schema.claim import Claim
from lightning_modules.config import did_you_mean

_STATED = ("statement", "source", "published_metric", "published")  # by the published claim
_OWN = ("id", "statement")  # by a hypothesis
# published relation -> relations by which a grid may test a part of it, or a sharper claim
_ASKED_AS = {">": ("ratio",), "~": ("ratio",), "ordering": (">",), "trend": (">", "ordering"), "interaction": (">",)}


def join(document: Document) -> Any:
    """The claims of a grid file in full, as `Claim` takes them; adds problems to ``document``."""
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
        own = " A hypothesis of your own has 'id' in place of 'claim'." if "statement" in entry else ""
        document.complain((*where, "claim"), unknown(str(name), known) + own)
        return _placeholders(n) | entry | {"claim": ""}
    published = known[name]
    for key in _STATED:
        if key in entry:
            document.complain((*where, key), f"{published.place} states this. Leave it out.")
    if entry.get("id") == name:
        document.complain((*where, "id"), "repeats the id of the published claim. Leave it out.")
    _check_relation(where, entry, published, document)
    _check_values(where, entry, published, document)
    return {"relation": published.as_asked} | entry | _stated(published) | {"id": entry.get("id", name)}


def _own(where: Path_, entry: dict[str, Any], document: Document) -> dict[str, Any]:
    if not any(key in entry for key in _OWN):
        own = " and ".join(f"'{key}'" for key in _OWN)
        document.complain(where, f"needs a published claim ('claim: ID') or a statement of its own ({own})")
        return _placeholders(int(where[1])) | entry
    published = with_parts().get(str(entry.get("id")))
    if published:
        stated = ", ".join(key for key in _STATED if key in entry)
        rest = f" and leave out {stated}" if stated else ""
        message = f"is a published claim ({published.place}). Write 'claim: {published.id}'{rest}."
        document.complain((*where, "id"), message)
    elif "statement" not in entry:
        near = did_you_mean(str(entry["id"]), with_parts())
        message = "a hypothesis of your own needs a 'statement'. A published claim is named by 'claim', not 'id'."
        document.complain((*where, "id"), message + near)
        return _placeholders(int(where[1])) | entry
    return entry


def _placeholders(n: int) -> dict[str, Any]:
    """Values that let the rest of a claim without a statement be checked."""
    return {"id": f"claim_{n}", "statement": "-", "source": "-"}


def _stated(published: PublishedClaim) -> dict[str, Any]:
    return {
        "statement": published.statement,
        "source": published.source,
        "published_metric": published.label or published.metric,
        "published": published.values_as_asked,
    }


def _check_relation(where: Path_, entry: dict[str, Any], published: PublishedClaim, document: Document) -> None:
    relation, theirs = entry.get("relation"), published.as_asked
    if relation is None:
        return
    if relation == theirs:
        document.complain((*where, "relation"), f"{published.place} states this. Leave it out.")
        return
    known = get_args(Claim.model_fields["relation"].annotation)
    allowed = _ASKED_AS.get(theirs, ())
    if relation in known and relation not in allowed:
        others = f". Use {theirs!r} or {' or '.join(map(repr, allowed))}." if allowed else ""
        message = f"{relation!r} is not the published relation, '{theirs}' ({published.place}){others}"
        document.complain((*where, "relation"), message)


def _check_values(where: Path_, entry: dict[str, Any], published: PublishedClaim, document: Document) -> None:
    sides = entry.get("sides")
    count = len(sides) if isinstance(sides, list) else 2
    if published.values and len(published.values) != count:
        listed = ", ".join(published.sides)
        message = f"has {count} sides, but {published.place} has values for {len(published.values)} ({listed})"
        document.complain(where, f"{message}. Name a claim with these sides, or add one there with 'part_of'.")
