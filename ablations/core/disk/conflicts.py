"""Two different final records of one run: the foreign one is kept next to the store's own and explained.

It lies at ``records/<2 hex>/<16 hex>.<8 hex of its checksum>.conflict``, which no table reads.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ablations.core.disk.reading import Damage, Flawed, content, parsed
from ablations.core.formatting import printable
from ablations.schema.record import Record

_MOST_NAMED = 3  # differing values; of more only how many there are
_MEASURED = ("outcome", "detail", "config", "metrics", "curve", "layers", "examples", "cost")
_ORIGIN = {
    "commit": "commit", "dirty": "changed code", "code": "code", "device": "device", "torch": "torch",
    "finished": "finished",
}  # fmt: skip
_DIGITS = 7  # of a commit


def name(record: Record) -> str:
    """The place of a foreign record, relative to the results folder."""
    return f"records/{record.id[:2]}/{record.id}.{record.checksum[:8]}.conflict"


def explained(folder: Path) -> Iterator[Damage]:
    """The conflicts kept in a results folder, each with what differs, where both come from, and what to do."""
    for path in sorted((folder / "records").glob("[0-9a-f][0-9a-f]/*.conflict")):
        place = str(path.relative_to(folder))
        try:
            theirs = parsed(content(path, folder))
            ours = parsed(content(path.with_name(f"{theirs.id}.json"), folder))
        except FileNotFoundError:
            message = "another record of a run that has none here. Rename it to ID.json, or remove it."
            yield Damage(place, "conflict", message)
        except Flawed as error:
            yield Damage(place, "conflict", f"of two records of this run one is unusable: {error}")
        else:
            yield Damage(place, "conflict", _settled(ours) if ours == theirs else explanation(ours, theirs))


def explanation(ours: Record, theirs: Record) -> str:
    """In what two records of a run differ, where each comes from, and what to do."""
    differing = list(_differing(ours.to_dict(), theirs.to_dict()))
    said = "; ".join(differing[:_MOST_NAMED]) or "all measurements are equal, only where they were made differs"
    more = f"; and {len(differing) - _MOST_NAMED} more" if len(differing) > _MOST_NAMED else ""
    return (
        f"another final record of this run: {said}{more}. Made here: {origin(ours)}. Made there: {origin(theirs)}. "
        f"Choose the one to trust: to keep the one here remove this file, to take the other move this file over "
        f"{ours.id}.json. Then put the chosen one into the other store too."
    )


def origin(record: Record) -> str:
    """Where a record was made: commit, device, version of torch, when."""
    known = {label: record.provenance.get(key) for key, label in _ORIGIN.items()}
    if isinstance(known["commit"], str):
        known["commit"] = known["commit"][:_DIGITS]
    if not known.pop("changed code"):
        return _listed(known)
    return f"{_listed(known)}, code changed since the commit"


def _listed(known: Mapping[str, Any]) -> str:
    return (
        ", ".join(f"{label} {printable(str(value))}" for label, value in known.items() if value is not None)
        or "unknown"
    )


def _settled(record: Record) -> str:
    return f"is now the record of run {record.id}. Remove this file."


def _differing(ours: dict[str, Any], theirs: dict[str, Any]) -> Iterator[str]:
    for field in _MEASURED:
        a, b = ours.get(field), theirs.get(field)
        if isinstance(a, dict) and isinstance(b, dict):
            keys = [key for key in sorted({*a, *b}) if a.get(key) != b.get(key)]
            yield from (f"{field}.{_short(key)} {_short(a.get(key))} here, {_short(b.get(key))} there" for key in keys)
        elif a != b:
            yield f"{field} {_short(a)} here, {_short(b)} there"


def _short(value: Any) -> str:
    text = "none" if value is None else printable(str(value))
    return text if len(text) <= 40 else f"{text[:39]}…"
