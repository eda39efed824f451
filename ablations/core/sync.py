"""Records of another results folder, brought into this one; the other is only read.

Records are immutable and named by their run, so this is copying what is missing. What a record needs (the digest and
the file of its held-out losses by sequence, its list of packages, its bars) is copied before it. A copy that is killed
leaves no record without them. Each file is checked as it arrives.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from filelock import Timeout

from ablations.core.counted import counted
from ablations.core.disk import bars, environments, heldout
from ablations.core.disk.publishing import check_inside, publish
from ablations.core.disk.reading import Damage, Flawed, content, parsed
from ablations.core.store import Records
from ablations.schema.record import Record

_MEASURED = ("outcome", "detail", "config", "metrics", "curve", "layers", "examples", "cost")


@dataclass
class Report:
    """What bringing records did, or would do.

    Attributes:
        copied: Runs whose records were copied.
        same: How many runs have the same record here, or one that is no worse.
        busy: Runs that a process here makes now, or has recorded meanwhile.
        conflicts: Run -> in what its two final records differ. The one here stays.
        damages: Files that were skipped, each with its folder.
    """

    copied: list[str] = field(default_factory=list)
    same: int = 0
    busy: list[str] = field(default_factory=list)
    conflicts: dict[str, str] = field(default_factory=dict)
    damages: list[tuple[str, Damage]] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether this store has all that is in the other."""
        return not (self.busy or self.conflicts or self.damages)


def bring(there: Records, here: Records, dry_run: bool = False) -> Report:
    """Copies records that are missing here. A final record takes the place of an attempt; nothing else is replaced.

    Args:
        there: The store that is read.
        here: The store that gets the records.
        dry_run: Only read, and report what would be copied.

    Raises:
        StoreError: If a store cannot be read or written. What was copied until then is whole.
    """
    visit = _Visit(there, here, dry_run)
    for path in counted(there.files(), "records"):
        name, check = path.relative_to(there.folder).as_posix(), partial(_check_place, path, there)
        if (raw := visit.read(there, name, check)) is not None:
            visit.settle(parsed(raw), raw)
    return visit.report


def _check_place(path: Path, records: Records, raw: bytes) -> None:
    if path != records.path((record := parsed(raw)).id):
        raise Flawed("misplaced", f"holds the record of {record.id}. Rename it or remove it.")


class _Visit:
    def __init__(self, there: Records, here: Records, dry_run: bool) -> None:
        self.there, self.here, self.dry_run, self.report = there, here, dry_run, Report()
        lists = [self.read(records, heldout.LIST, heldout.from_list) for records in (there, here)]
        self.theirs, self.ours = (heldout.from_list(raw or b"") for raw in lists)

    def read(self, records: Records, name: str, check: Callable[[bytes], Any]) -> bytes | None:
        """The content of a file; None if it is gone, or has a flaw, which is reported once."""
        try:
            check(raw := content(records.folder / name, records.folder))
            return raw
        except FileNotFoundError:
            return None
        except Flawed as flaw:
            found = str(records.folder), Damage(name, flaw.flaw, str(flaw))
            self.report.damages += [found] * (found not in self.report.damages)
            return None

    def settle(self, record: Record, raw: bytes) -> None:
        ours = self.here.examine(record.id)
        if isinstance(ours, Damage):  # whether another may take its place is for people to say
            self.report.damages.append((str(self.here.folder), ours))
        elif ours is None or (record.final and not ours.final):
            self._take(record, raw)
        elif record.final and ours.checksum != record.checksum:
            self.report.conflicts[record.id] = _difference(ours.to_dict(), record.to_dict())
        else:
            self.report.same += 1
            if record.final:
                self._complete(record)

    def _take(self, record: Record, raw: bytes) -> None:
        try:
            with contextlib.nullcontext() if self.dry_run else self.here.lock(record.id).acquire(timeout=0):
                self._complete(record, anew=record.final)
                taken = self._put(self.here.path(record.id), raw, self.here.stays)
        except Timeout:
            taken = False
        (self.report.copied if taken else self.report.busy).append(record.id)

    def _complete(self, record: Record, anew: bool = False) -> None:
        """Copies what belongs to a record and is not here. With ``anew`` the losses here are an attempt's."""
        digest = heldout.recorded(record)
        if digest is None and (digest := self.theirs.get(record.id)) and (anew or record.id not in self.ours):
            self.ours[record.id] = digest
            self._put(self.here.folder / heldout.LIST, heldout.to_list(self.ours), lambda path: not path.is_file())
        for name, check in _companions(record, digest):
            target, is_old = self.here.folder / name, anew and name.endswith(".heldout")
            if (is_old or not target.exists()) and (raw := self.read(self.there, name, check)) is not None:
                self._put(target, raw, lambda path, is_old=is_old: path.exists() and not is_old)

    def _put(self, path: Path, raw: bytes, stands: Callable[[Path], bool]) -> bool:
        check_inside(path.parent, self.here.folder)
        return self.dry_run or publish(path, raw, stands)


def _companions(record: Record, digest: str | None) -> Iterator[tuple[str, Callable[[bytes], Any]]]:
    """The files that may belong to a record, relative to the store, and what raises `Flawed` for one that is not it."""
    if environment := environments.recorded(record):
        yield environments.file(environment), partial(environments.check, environment)
    yield heldout.name(record.id), partial(heldout.parsed, right=digest)
    for bar in bars.recorded(record):
        yield bars.file(bar), partial(bars.parsed, bar)


def _difference(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """The first three values in which two records of a run differ."""
    found = []
    for part in _MEASURED:
        values = ours.get(part), theirs.get(part)
        a, b = (value if isinstance(value, dict) else {"": value} for value in values)
        keys = [key for key in sorted({*a, *b}) if a.get(key) != b.get(key)]
        found += [f"{part}.{key}".rstrip(".") + f" {a.get(key)!s:.40} here, {b.get(key)!s:.40} there" for key in keys]
    return "; ".join(found[:3] + [f"{len(found) - 3} more"] * (len(found) > 3)) or "equal numbers, made elsewhere"
