"""The store of records: one JSON file per run, the only source of tables. Writes are atomic; reads check everything.

A record is ``records/<2 hex>/<16 hex>.json`` of the results folder; its list of installed packages is
``environments/<12 hex>.json``; the process of the run holds ``.locks/<16 hex>.lock``. `disk` has how files are read and
published, and what belongs to the records.
"""

import contextlib
import errno
import functools
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout

from ablations.core.disk import bars, environments, heldout, kept_weights, locks
from ablations.core.disk.publishing import StoreError, check_inside, publish, unwritten, write
from ablations.core.disk.reading import LARGEST_RECORD, REMEDY, Damage, Flaw, Flawed, content, parsed, to_json
from ablations.schema.record import Record, checksum
from ablations.schema.run import Run
from lightning_modules import cached
from lightning_modules.config import ConfigError
from lightning_modules.files import read, version, write_atomically
from lightning_modules.places import behind, results

_ID, _FOLDER = re.compile(r"[0-9a-f]{16}"), re.compile(r"[0-9a-f]{2}")


class RecordWarning(UserWarning):
    """A record is unusable and was skipped."""


class Lookup(Protocol):
    """A source of records: a store, a snapshot, or a dictionary in tests."""

    def get(self, id: str, /) -> Record | None:
        """The record of a run; None if there is none."""


class Records:
    """The records of a results folder.

    Args:
        results_dir: The folder; by default ``results`` of the checkout, or of the working directory if there is none.

    Attributes:
        folder: The folder. New records are written there alone.
        published: Of the folder of unpublished results the published ones, which are read too; else None.

    Raises:
        ConfigError: If the name of the folder is no text in UTF-8.
    """

    def __init__(self, results_dir: str | Path | None = None) -> None:
        self.folder = results(results_dir)
        self.published: Records | None = next(map(Records, behind(self.folder)[1:]), None)

    @property
    def parts(self) -> "list[Records]":
        """This store and those of the published results behind it."""
        return [self, *(self.published.parts if self.published else [])]

    def path(self, run_id: str) -> Path:
        """The file of a run's record.

        Raises:
            ValueError: If ``run_id`` is not sixteen hexadecimal digits, which keeps every path inside the folder.
        """
        if not _ID.fullmatch(run_id):
            raise ValueError(f"{run_id!r} is not a run id. It must be sixteen lower-case hexadecimal digits.")
        return self.folder / "records" / run_id[:2] / f"{run_id}.json"

    def work_folder(self, run_id: str) -> Path:
        """The folder of a run's log, checkpoint and progress: in the cache, separate for each results folder."""
        self.path(run_id)
        return cached.work_home(self.folder) / run_id

    def make_work_folder(self, run_id: str) -> Path:
        """Makes the work folder of a run. A note next to it says whose runs these are, for locks of `ablations clean`.

        Raises:
            CacheError: If it cannot be made.
        """
        folder = cached.folder(self.work_folder(run_id))
        note, named = folder.parent / cached.RESULTS, str(self.folder).encode()
        try:
            is_noted = read(note, len(named)) == named
        except OSError:
            is_noted = False
        if not is_noted:
            with contextlib.suppress(OSError):  # another launcher is quicker, or the disk is full, as runs will report
                write_atomically(note, lambda file: file.write(named))
        return folder

    def work_folders(self) -> list[Path]:
        """The work folders of this results folder's runs in the cache, ordered by run."""
        return sorted(path for path in cached.work_home(self.folder).glob("*") if _ID.fullmatch(path.name))

    def weights(self, run_id: str) -> Path | None:
        """The weights of a finished run as they were written: in the cache, or kept here; None if in neither."""
        own = self.work_folder(run_id) / kept_weights.WEIGHTS
        found = own if cached.is_sound(own) else kept_weights.kept(self.folder, run_id, kept_weights.WEIGHTS)
        return self.published.weights(run_id) if found is None and self.published else found

    def lacking(self, run: Run) -> Iterator[Run]:
        """The parents of a run, and those behind them, that have to be trained for their weights."""
        for parent in run.by_role.values():
            own = self.work_folder(parent.id) / kept_weights.WEIGHTS
            if own.exists() or self.weights(parent.id):  # digests of large weights take time; a run compares them
                continue
            yield parent
            yield from self.lacking(parent)

    def files(self) -> list[Path]:
        """The files of all records, damaged ones included, ordered by run.

        Raises:
            StoreError: If a folder of records cannot be read: its records would count as missing.
        """
        folders = [path for path in _entries(self.folder / "records") if _FOLDER.fullmatch(path.name)]
        return sorted(path for folder in folders for path in _entries(folder) if path.suffix == ".json")

    def get(self, run_id: str) -> Record | None:
        """The record of a run; None if there is none, or (with a `RecordWarning`) if it is damaged."""
        return _usable(self.examine(run_id))

    def examine(self, run_id: str) -> Record | Damage | None:
        """The record of a run, or its damage."""
        found = self._read(self.path(run_id))
        return self.published.examine(run_id) if found is None and self.published else found

    def all(self) -> Iterator[Record]:
        """Every usable record, ordered by id; skips damaged ones with a `RecordWarning` each."""
        for _, entry in self.survey():
            if (record := _usable(entry)) is not None:
                yield record

    def survey(self) -> Iterator[tuple[str, Record | Damage]]:
        """Every file among the records, ordered: its stem, and the record or its damage."""
        known = dict(self.published.survey()) if self.published else {}
        yield from sorted((known | dict(self._own())).items())

    def _own(self) -> Iterator[tuple[str, Record | Damage]]:
        for path in self.files():
            entry = self._read(path)
            if entry is not None:
                yield path.stem, entry

    def snapshot(self) -> "Snapshot":
        """All present records; reads each file once, and names damaged ones with a `RecordWarning` each."""
        found = dict(self.survey())
        name_damaged(found.values())
        return Snapshot(self.folder, found)

    def verify(self) -> list[Damage]:
        """Every file of the store that is not sound, with its damage: records first, then what belongs to them.

        These are held-out losses by sequence, lists of packages, bars, and kept weights.
        """
        _as_seen.cache_clear()  # a dying disk changes files and none of their times
        found = dict(self._own())
        records = {stem: entry for stem, entry in found.items() if isinstance(entry, Record)}
        done = {stem: record for stem, record in records.items() if record.outcome == "done"}
        named = filter(None, map(environments.recorded, records.values()))
        return [
            *filter(None, map(self._fault, found.values())),
            *heldout.damages(self.folder, done.values()),
            *environments.damages(self.folder, named),
            *bars.damages(self.folder),
            *kept_weights.damages(self.folder, done.get),
        ]

    def put(self, record: Record) -> Record:
        """Writes a record, whole or not at all, if the run has none that stays.

        A record with a final outcome is never replaced, nor one by a newer version of the project; an attempt is. Of
        several writers of final records exactly one wins, even if they no longer hold the run's lock (see `publish`).

        Returns:
            The record that is now in the store: this one with its checksum, or the one that was there and stays.

        Raises:
            StoreError: If it cannot be written (disk full, no permission, a newer record) or is too large; the old
                record is intact.
        """
        known = self.published.examine(record.id) if self.published else None
        if isinstance(known, Record) and known.final:
            return known
        path, data = self.path(record.id), record.to_dict()
        data["checksum"] = checksum(data)
        text = to_json(data)
        if len(text) > LARGEST_RECORD:
            message = f"the record has {len(text):,} bytes. At most {LARGEST_RECORD:,} are allowed."
            raise StoreError(errno.EMSGSIZE, message, str(path))
        check_inside(path.parent, self.folder)
        if path.is_dir() and not path.is_symlink():  # what is in it may be somebody's
            os.replace(path, path.with_name(f"{path.name}.set-aside"))
        if publish(path, text, self.stays):
            return Record.model_validate(data)
        existing = self.examine(record.id)
        if isinstance(existing, Record):
            return existing
        reason = existing.message if existing else "was removed while it was written. Try again."
        raise StoreError(errno.EEXIST, reason, str(path))

    def stays(self, path: Path) -> bool:
        """Whether nothing may replace a file among the records: it is of a newer version, or a final record in place.

        A record of another run is no reason; a file moved aside for a moment counts as in its place.
        """
        try:
            record = parsed(content(path, self.folder))
        except FileNotFoundError:
            return False
        except Flawed as error:
            return error.flaw == "newer"
        return record.final and record.id in path.name

    def put_sums(self, run_id: str, sums: Mapping[str, Any]) -> str:
        """Writes the held-out losses of a run by sequence next to the place of its record.

        Those of a final record stay as they are. The caller holds the lock.

        Returns:
            Their digest, for the provenance of the record.
        """
        raw = to_json({**sums, "checksum": checksum(dict(sums))})
        if not self.stays(self.path(run_id)):
            check_inside(self.path(run_id).parent, self.folder)
            write(self.folder / heldout.name(run_id), raw)
        return heldout.digest(raw)

    def sums(self, run_id: str) -> dict[str, Any] | None:
        """The held-out losses of a run by sequence, packed; None if none were kept, or (with a warning) if damaged."""
        return _sums(self.folder, run_id, self.examine(run_id))

    def lock(self, run_id: str) -> FileLock:
        """The lock of a run, not yet acquired.

        Raises:
            Refused: If something other than a plain file is in the place of its file.
            StoreError: If the folder of locks cannot be made, or is linked out of the results.
        """
        self.path(run_id)
        return locks.named(self.folder, run_id)

    def is_locked(self, run_id: str) -> bool:
        """Whether a process holds this run's lock; nobody holds one that nobody has made."""
        self.path(run_id)
        if not (self.folder / ".locks" / f"{run_id}.lock").exists():
            return False
        lock = self.lock(run_id)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        except OSError as error:
            raise unwritten(error, Path(lock.lock_file), "the lock of a run") from error
        lock.release()
        return False

    def _read(self, path: Path) -> Record | Damage | None:
        try:
            record = _parsed(path, self.folder)
            if path != self.path(record.id):
                message = f"holds the record of {record.id}. Rename it to {record.id}.json or delete it."
                raise Flawed("misplaced", message)
        except FileNotFoundError:
            return None
        except Flawed as error:
            return self._damage(path, error.flaw, str(error))
        return record

    def _fault(self, entry: Record | Damage) -> Damage | None:
        """What is wrong with a file; of a sound one, whether its configuration no longer hashes to its id."""
        if isinstance(entry, Damage):
            return entry
        path = self.path(entry.id)
        try:
            now = entry.run().id
        except ConfigError as error:
            return self._damage(path, "drifted", f"its configuration is no longer readable: {error.problems[0]}")
        except KeyError as error:  # of a text or a package that the run depends on
            return self._damage(path, "drifted", f"its configuration lacks {error}. {REMEDY}")
        message = f"its configuration now hashes to {now}. A setting changed its meaning without a migration."
        return self._damage(path, "drifted", message) if now != entry.id else None

    def _damage(self, path: Path, flaw: Flaw, message: str) -> Damage:
        return Damage(str(path.relative_to(self.folder)), flaw, message)


@dataclass(frozen=True)
class Snapshot:
    """The records of a results folder at one moment, without later ones.

    Attributes:
        folder: The results folder.
        found: Stem of each file, which is its run's id -> the record or its damage.
    """

    folder: Path
    found: dict[str, Record | Damage]

    def get(self, run_id: str) -> Record | None:
        """The record of a run; None if there is none, or (with a `RecordWarning`) if it is damaged."""
        return _usable(self.found.get(run_id))

    def survey(self) -> Iterator[tuple[str, Record | Damage]]:
        """Every file among the records, ordered: its stem, and the record or its damage."""
        return iter(self.found.items())

    def sums(self, run_id: str) -> dict[str, Any] | None:
        """As `Records.sums`, read now."""
        return _sums(self.folder, run_id, self.found.get(run_id))

    @property
    def done(self) -> set[str]:
        """The ids of the runs that are done."""
        return {id for id, entry in self.found.items() if isinstance(entry, Record) and entry.outcome == "done"}


def name_damaged(entries: Iterable[Record | Damage | None]) -> None:
    """Warns of each damaged file with a `RecordWarning`: which, why, and what to do."""
    for entry in entries:
        if isinstance(entry, Damage):
            warnings.warn(f"set aside: {entry}", RecordWarning, stacklevel=3)


def _parsed(path: Path, folder: Path) -> Record:
    """The record in a file, parsed once a process while the file stays the same."""
    try:
        seen = version(path)
    except OSError:
        return parsed(content(path, folder))  # it says what is wrong
    return _as_seen(path, folder, seen)


@functools.lru_cache(maxsize=1 << 14)
def _as_seen(path: Path, folder: Path, _version: tuple[int, int, int]) -> Record:
    return parsed(content(path, folder))


def _usable(entry: Record | Damage | None) -> Record | None:
    name_damaged([entry])
    return None if isinstance(entry, Damage) else entry


def _entries(folder: Path) -> list[Path]:
    """What is in a folder; nothing if it is not there or is no folder."""
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        advice = " Let its owner give you permission (chmod -R g+rwX)." if isinstance(error, PermissionError) else ""
        reason = f"{error.strerror}: its records cannot be read.{advice}"
        raise StoreError(error.errno or errno.EIO, reason, str(folder)) from error


def _sums(folder: Path, run_id: str, entry: Record | Damage | None) -> dict[str, Any] | None:
    parts = behind(folder)
    place = next((part for part in parts if (part / heldout.name(run_id)).exists()), parts[0])
    try:
        return heldout.read(place, run_id, entry if isinstance(entry, Record) else None)
    except FileNotFoundError:
        return None
    except Flawed as flaw:
        name_damaged([Damage(heldout.name(run_id), flaw.flaw, str(flaw))])
        return None
