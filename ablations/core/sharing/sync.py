"""Unites two stores. Records are immutable and named by their run, so uniting is copying what is missing.

What a record needs (the list of its packages, its held-out losses by sequence, their bars) is copied before it, so a
store that is interrupted has no record without them. Everything is checked where it is read, before it is published
elsewhere. Digests of losses that are in a list rather than in records are added to the other store's list.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from ablations.core.disk import bars, conflicts, environments, heldout
from ablations.core.disk.reading import LARGEST_READ, Damage, Flawed, check_size, parsed
from ablations.core.sharing.sites import Site, always
from ablations.schema.record import Record

_BATCH = 64  # records read at once


@dataclass(frozen=True)
class Conflict:
    """Two different final records of one run.

    Attributes:
        run: Its id.
        message: In what they differ, where each was made, what to do.
    """

    run: str
    message: str

    def __str__(self) -> str:
        return f"run {self.run}: {self.message}"


@dataclass
class Report:
    """What uniting two stores did, or would do.

    Attributes:
        pushed: Runs whose records were copied to the other store.
        pulled: Runs whose records were copied from there.
        same: Runs that both had: the same final record, or each an attempt of its own.
        overtaken: Runs that got a record from elsewhere while theirs was copied; it stays.
        conflicts: Runs with two different final records. Both are kept.
        damages: Files that were skipped, each with its store.
    """

    pushed: list[str] = field(default_factory=list)
    pulled: list[str] = field(default_factory=list)
    same: int = 0
    overtaken: list[str] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    damages: list[tuple[str, Damage]] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether the stores agree now, as far as was requested."""
        return not (self.overtaken or self.conflicts or self.damages)


@dataclass(frozen=True)
class _Entry:
    """A record, and the bytes of its file."""

    record: Record
    raw: bytes

    @property
    def rank(self) -> int:
        return 2 if self.record.final else 1


_Found = _Entry | Damage | None


def unite(
    here: Site,
    there: Site,
    *,
    push: bool = True,
    pull: bool = True,
    dry_run: bool = False,
    on_step: Callable[[int, int], None] | None = None,
) -> Report:
    """Copies to each store the records that only the other has; a final record takes the place of an attempt.

    Args:
        here: The one store.
        there: The other.
        push: Whether to copy from here to there.
        pull: Whether to copy from there to here.
        dry_run: Only read, and report what would be copied.
        on_step: Receives how many runs have been compared, and how many there are.

    Raises:
        StoreError: If a store cannot be reached or written; what was copied until then is whole.
    """
    return _Union(here, there, push, pull, dry_run).made(on_step)


class _Union:
    def __init__(self, here: Site, there: Site, push: bool, pull: bool, dry_run: bool) -> None:
        self.here, self.there, self.push, self.pull, self.dry_run = here, there, push, pull, dry_run
        self.files = {here: here.files(), there: there.files()}
        self.report = Report()
        self.lists = {here: self._listed(here), there: self._listed(there)}
        self.longer: set[Site] = set()  # those whose list has got further digests

    def made(self, on_step: Callable[[int, int], None] | None) -> Report:
        runs = sorted({run for files in self.files.values() for run in _runs(files)})
        for first in range(0, len(runs), _BATCH):
            batch = runs[first : first + _BATCH]
            ours, theirs = self._records(self.here, batch), self._records(self.there, batch)
            for number, run in enumerate(batch, first + 1):
                self._settle(run, ours.get(run), theirs.get(run))
                if on_step:
                    on_step(number, len(runs))
        for site in self.longer:
            site.put(heldout.LIST, heldout.to_list(self.lists[site]), lambda there: False)
        return self.report

    def _settle(self, run: str, ours: _Found, theirs: _Found) -> None:
        if isinstance(ours, Damage) or isinstance(theirs, Damage):
            return  # it is named already; whether the other store's may take its place is for people to say
        if ours and (theirs is None or ours.rank > theirs.rank):
            self._copy(ours, self.here, self.there)
        elif theirs and (ours is None or theirs.rank > ours.rank):
            self._copy(theirs, self.there, self.here)
        elif ours and theirs and ours.rank == 2 and ours.record.checksum != theirs.record.checksum:
            self._keep_both(run, ours, theirs)
        elif ours and theirs:
            self.report.same += 1
            if ours.rank == 2:
                self._complete(ours.record, self.here, self.there)
                self._complete(ours.record, self.there, self.here)

    def _copy(self, entry: _Entry, source: Site, target: Site) -> None:
        if not self._may_write(target):
            return
        run = entry.record.id
        self._complete(entry.record, source, target, anew=entry.rank == 2)
        if self.dry_run or target.put(_file(run), entry.raw, _stays):
            (self.report.pulled if target is self.here else self.report.pushed).append(run)
        else:
            self.report.overtaken.append(run)

    def _keep_both(self, run: str, ours: _Entry, theirs: _Entry) -> None:
        self.report.conflicts.append(Conflict(run, conflicts.explanation(ours.record, theirs.record)))
        for target, foreign in ((self.here, theirs), (self.there, ours)):
            if self._may_write(target) and not self.dry_run:
                target.put(conflicts.name(foreign.record), foreign.raw)

    def _complete(self, record: Record, source: Site, target: Site, anew: bool = False) -> None:
        """Copies what belongs to a record: the list of packages, the losses by sequence, what counting reaches.

        Args:
            record: The record, which the source has.
            source: Where to read.
            target: Where to write what is not there.
            anew: Whether the losses that are there take second place: without a final record they are an attempt's.
        """
        if not self._may_write(target):
            return
        for name in companions(record):
            is_old = anew and name.endswith(".heldout")
            if name not in self.files[source] or (name in self.files[target] and not is_old):
                continue
            raw = source.read([name]).get(name, b"")
            right = heldout.recorded(record) or self.lists[source].get(record.id)
            if (damage := _damage(name, raw, right)) is not None:
                self.report.damages.append((source.address, damage))
                del self.files[source][name]  # other records may ask for it; it is named once
            elif isinstance(raw, bytes) and not self.dry_run:
                target.put(name, raw, (lambda there: False) if is_old else always)
                self.files[target][name] = len(raw)
        listed = None if heldout.recorded(record) else self.lists[source].get(record.id)
        if listed and not self.dry_run and (anew or record.id not in self.lists[target]):
            self.lists[target][record.id] = listed
            self.longer.add(target)

    def _records(self, site: Site, runs: Iterable[str]) -> dict[str, _Entry | Damage]:
        """The records of some runs at a site; damaged ones are reported."""
        sizes = self.files[site]
        present = {_file(run): run for run in runs if _file(run) in sizes}
        contents = site.read(name for name in present if sizes[name] <= LARGEST_READ)
        found: dict[str, _Entry | Damage] = {}
        for name, run in present.items():
            if name not in contents and sizes[name] <= LARGEST_READ:
                continue  # it was removed meanwhile
            try:
                check_size(sizes[name])
                found[run] = _entry(run, contents[name])
            except Flawed as flaw:
                found[run] = damage = Damage(name, flaw.flaw, str(flaw))
                self.report.damages.append((site.address, damage))
        return found

    def _may_write(self, target: Site) -> bool:
        return self.pull if target is self.here else self.push

    def _listed(self, site: Site) -> dict[str, str]:
        """The list of digests at a site; one that cannot be read is reported, and stays as it is."""
        raw = site.read([heldout.LIST]).get(heldout.LIST, b"")
        if isinstance(raw, bytes):
            return heldout.from_list(raw)
        self.report.damages.append((site.address, Damage(heldout.LIST, raw.flaw, str(raw))))
        return {}


def _entry(run: str, raw: bytes | Flawed) -> _Entry:
    if isinstance(raw, Flawed):
        raise raw
    record = parsed(raw)
    if record.id != run:
        raise Flawed("misplaced", f"holds the record of {record.id}. Rename it or remove it.")
    return _Entry(record, raw)


def _stays(raw: bytes) -> bool:
    """Whether a record's file may not be replaced: a final record, or one of a newer version."""
    try:
        return parsed(raw).final
    except Flawed as flaw:
        return flaw.flaw == "newer"


def _damage(name: str, raw: bytes | Flawed, digest: str | None) -> Damage | None:
    """What is wrong with a file that belongs to a record; of losses, their digest may be known."""
    try:
        if isinstance(raw, Flawed):
            raise raw
        folder, _, rest = name.partition("/")
        if folder == "environments":
            environments.check(rest.removesuffix(".json"), raw)
        elif folder == bars.FOLDER:
            bars.parsed(rest.removesuffix(".json"), raw)
        else:
            heldout.parsed(raw, digest)
    except Flawed as flaw:
        return Damage(name, flaw.flaw, str(flaw))
    return None


def companions(record: Record) -> Iterator[str]:
    """The files that belong to a record, whether or not they are there, relative to the store."""
    if environment := environments.recorded(record):
        yield environments.file(environment)
    yield heldout.name(record.id)
    yield from map(bars.file, bars.recorded(record))


def _runs(files: Iterable[str]) -> Iterator[str]:
    return (name[-21:-5] for name in files if name.startswith("records") and name.endswith(".json"))


def _file(run: str) -> str:
    return f"records/{run[:2]}/{run}.json"
