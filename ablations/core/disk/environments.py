"""Lists of installed packages next to the records: ``environments/<12 hex>.json``, named by what they hold."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ablations.core.disk.reading import Damage, Flawed, content
from ablations.schema.record import Record

ENTRY = "environment"  # entry of a record's provenance
_NAME = re.compile(r"[0-9a-f]{12}")
_REMEDY = "Restore it from a copy."


def digest(text: str) -> str:
    """The name of a list with this text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def file(name: str) -> str:
    """The place of a list, relative to the results folder."""
    return f"environments/{name}.json"


def recorded(record: Record) -> str | None:
    """The name of the list in a record; None if it has none."""
    found = record.provenance.get(ENTRY)
    return found if isinstance(found, str) and _NAME.fullmatch(found) else None


def check(name: str, raw: bytes) -> None:
    """Compares the content of a list with its name.

    Raises:
        Flawed: If it is another.
    """
    if hashlib.sha256(raw.removesuffix(b"\n")).hexdigest()[:12] != name:
        raise Flawed("altered", f"does not match its name: it was cut short or changed. {_REMEDY}")


def is_sound(folder: Path, name: str) -> bool:
    """Whether a results folder has a list, as it was written."""
    try:
        check(name, content(folder / file(name), folder))
    except (FileNotFoundError, Flawed):
        return False
    return True


def damages(folder: Path, named: Iterable[str]) -> Iterator[Damage]:
    """What is wrong with the lists of a results folder.

    Args:
        named: The lists that its records name.
    """
    there = {path.stem for path in (folder / "environments").glob("*.json")}
    for name in sorted(there | {*named}):
        try:
            check(name, content(folder / file(name), folder))
        except FileNotFoundError:
            yield Damage(file(name), "missing", f"is missing, and records name it. {_REMEDY}")
        except Flawed as flaw:
            yield Damage(file(name), flaw.flaw, str(flaw))
