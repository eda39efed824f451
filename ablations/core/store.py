"""The store of records: one JSON file per run, the only source of tables. Writes are atomic; reads check everything.

A record is ``records/<2 hex>/<16 hex>.json`` of the results folder; its list of installed packages is
``environments/<12 hex>.json``; the process of the run holds ``.locks/<16 hex>.lock``.
"""

import errno
import json
import os
import re
import stat
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol

from filelock import FileLock, Timeout
from pydantic import ValidationError

from ablations.schema.record import Record, checksum
from lightning_modules.config import ConfigError, identity
from lightning_modules.files import is_full, write_atomically
from lightning_modules.places import cache, project

LARGEST_RECORD = 32_000  # bytes
_LARGEST_READ = 1_000_000  # bytes; a newer version may keep more in a record
_DEEPEST = 40  # containers within each other; a configuration has about ten
_ID = re.compile(r"[0-9a-f]{16}")
_VERSION = Record.model_fields["schema_version"].default
_REMEDY = "restore it from a copy, or run its grid again, which replaces it"

Flaw = Literal["unreadable", "empty", "truncated", "altered", "newer", "malformed", "drifted", "misplaced"]


class RecordWarning(UserWarning):
    """A record is unusable and was skipped."""


class StoreError(OSError):
    """A record could not be written; the old file is intact."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class _Flawed(Exception):
    """What is wrong with a file among the records."""

    def __init__(self, flaw: Flaw, message: str) -> None:
        super().__init__(message)
        self.flaw: Flaw = flaw


@dataclass(frozen=True)
class Damage:
    """A file among the records that is not a usable record.

    Attributes:
        path: The file, relative to the results folder.
        flaw: What kind of damage.
        message: The damage in words, and what to do.
    """

    path: str
    flaw: Flaw
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class Lookup(Protocol):
    """A source of records: a store, a snapshot, or a dictionary in tests."""

    def get(self, id: str, /) -> Record | None:
        """The record of a run; None if there is none."""


class Records:
    """The records of a results folder.

    Args:
        results_dir: The folder; by default ``results``. A relative path starts from the checkout, or from the working
            directory if there is no checkout.
    """

    def __init__(self, results_dir: str | Path | None = None) -> None:
        self.folder = Path(os.path.abspath(project() / Path(results_dir or "results").expanduser()))

    def path(self, run_id: str) -> Path:
        """The file of a run's record.

        Raises:
            ValueError: If ``run_id`` is not sixteen hexadecimal digits, which keeps every path inside the folder.
        """
        if not _ID.fullmatch(run_id):
            raise ValueError(f"{run_id!r} is not a run id; it must be sixteen lower-case hexadecimal digits")
        return self.folder / "records" / run_id[:2] / f"{run_id}.json"

    def work_folder(self, run_id: str) -> Path:
        """The folder of a run's log, checkpoint and progress: in the cache, separate for each results folder."""
        self.path(run_id)
        return self._work_home() / run_id

    def work_folders(self) -> list[Path]:
        """The work folders of this results folder's runs in the cache, ordered by run."""
        return sorted(path for path in self._work_home().glob("*") if _ID.fullmatch(path.name))

    def _work_home(self) -> Path:
        return cache() / "runs" / identity(str(self.folder))[:8]

    def files(self) -> list[Path]:
        """The files of all records, damaged ones included, ordered by run."""
        return sorted((self.folder / "records").glob("[0-9a-f][0-9a-f]/*.json"))

    def get(self, run_id: str) -> Record | None:
        """The record of a run; None if there is none, or (with a `RecordWarning`) if it is damaged."""
        return _usable(self.examine(run_id))

    def examine(self, run_id: str) -> Record | Damage | None:
        """The record of a run, or its damage."""
        return self._read(self.path(run_id))

    def all(self) -> Iterator[Record]:
        """Every usable record, ordered by id; skips damaged ones with a `RecordWarning` each."""
        for _, entry in self.survey():
            if (record := _usable(entry)) is not None:
                yield record

    def survey(self) -> Iterator[tuple[str, Record | Damage]]:
        """Every file among the records, ordered: its stem, and the record or its damage."""
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
        """Every file among the records that is not a sound record, with its damage."""
        damages = []
        for stem, entry in self.survey():
            damage = entry if isinstance(entry, Damage) else self._drift(self.path(stem), entry)
            damages += [damage] if damage else []
        return damages

    def put(self, record: Record) -> Record:
        """Writes a record, atomically. The caller holds the run's lock.

        A later failed attempt never replaces a finished record, and nothing replaces a record by a newer version of the
        project.

        Returns:
            The record that is now in the store.

        Raises:
            StoreError: If it cannot be written (disk full, no permission) or is too large; the old record is intact.
        """
        path, existing = self.path(record.id), self.examine(record.id)
        if isinstance(existing, Record) and existing.outcome == "done" and record.outcome != "done":
            return existing
        if isinstance(existing, Damage) and existing.flaw == "newer":
            raise StoreError(errno.EEXIST, existing.message, str(path))
        data = record.to_dict()
        data["checksum"] = checksum(data)
        text = _text(data)
        if len(text) > LARGEST_RECORD:
            message = f"the record has {len(text):,} bytes; at most {LARGEST_RECORD:,} are allowed"
            raise StoreError(errno.EMSGSIZE, message, str(path))
        if path.is_dir() and not path.is_symlink():  # what is in it may be somebody's
            os.replace(path, path.with_name(f"{path.name}.set-aside"))
        write(path, text)
        return Record.model_validate(data)

    def put_sums(self, run_id: str, sums: Mapping[str, Any]) -> None:
        """Writes the held-out losses of a run by sequence beside the place of its record. The caller holds the lock."""
        write(_sums_file(self.folder, run_id), _text({**sums, "checksum": checksum(dict(sums))}))

    def sums(self, run_id: str) -> dict[str, Any] | None:
        """The held-out losses of a run by sequence, packed; None if none were kept, or (with a warning) if damaged."""
        return _sums(self.folder, run_id)

    def lock(self, run_id: str) -> FileLock:
        """The lock of a run, not yet acquired. The kernel releases it when its holder dies."""
        self.path(run_id)
        folder = self.folder / ".locks"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritten(error, folder, "locks of runs") from error
        return FileLock(folder / f"{run_id}.lock")

    def is_locked(self, run_id: str) -> bool:
        """Whether a process holds this run's lock."""
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
            record = _parsed(_content(path))
            if path != self.path(record.id):
                message = f"holds the record of {record.id}; rename it to {record.id}.json or delete it"
                raise _Flawed("misplaced", message)
        except FileNotFoundError:
            return None
        except _Flawed as error:
            return self._damage(path, error.flaw, str(error))
        return record

    def _drift(self, path: Path, record: Record) -> Damage | None:
        """The damage if the configuration of a sound file no longer hashes to its id."""
        try:
            now = record.run().id
        except ConfigError as error:
            return self._damage(path, "drifted", f"its configuration is no longer readable: {error.problems[0]}")
        except KeyError as error:  # of a text or a package that the run depends on
            return self._damage(path, "drifted", f"its configuration lacks {error}; {_REMEDY}")
        message = f"its configuration now hashes to {now}; a setting changed its meaning without a migration"
        return self._damage(path, "drifted", message) if now != record.id else None

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
        return _sums(self.folder, run_id)

    @property
    def done(self) -> set[str]:
        """The ids of the runs that are done."""
        return {id for id, entry in self.found.items() if isinstance(entry, Record) and entry.outcome == "done"}


def name_damaged(entries: Iterable[Record | Damage | None]) -> None:
    """Warns of each damaged file with a `RecordWarning`: which, why, and what to do."""
    for entry in entries:
        if isinstance(entry, Damage):
            warnings.warn(f"set aside: {entry}", RecordWarning, stacklevel=3)


def _usable(entry: Record | Damage | None) -> Record | None:
    name_damaged([entry])
    return None if isinstance(entry, Damage) else entry


def _sums_file(folder: Path, run_id: str) -> Path:
    return folder / "records" / run_id[:2] / f"{run_id}.heldout"


def _sums(folder: Path, run_id: str) -> dict[str, Any] | None:
    path = _sums_file(folder, run_id)
    try:
        data = _json(_content(path))
        if data.pop("checksum", None) != checksum(data):
            raise _Flawed("altered", "does not match its checksum: it was changed after it was written; remove it")
    except FileNotFoundError:
        return None
    except _Flawed as flaw:
        name_damaged([Damage(str(path.relative_to(folder)), flaw.flaw, str(flaw))])
        return None
    return data


def _content(path: Path) -> bytes:
    """The bytes of a record's file.

    Raises:
        FileNotFoundError: If there is none.
        _Flawed: If it cannot be read.
    """
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            raise _Flawed("unreadable", "is a folder or a device where a file should be; move it away")
        if state.st_size > _LARGEST_READ:
            raise _Flawed("malformed", f"has {state.st_size:,} bytes, a record at most {LARGEST_RECORD:,}; {_REMEDY}")
        return path.read_bytes()
    except FileNotFoundError:
        if path.is_symlink():
            raise _Flawed("unreadable", "is a link to nothing; remove it or restore what it points to") from None
        raise
    except OSError as error:
        raise _Flawed("unreadable", f"cannot be read: {error.strerror}; mend its permissions or remove it") from None


def _parsed(raw: bytes) -> Record:
    """The record in a file's content.

    Raises:
        _Flawed: If it is none.
    """
    data = _json(raw)
    version = data.get("schema_version")
    if isinstance(version, int) and version > _VERSION:
        message = f"has schema version {version}, newer than the known version {_VERSION}; update the project"
        raise _Flawed("newer", message)
    try:
        right = checksum(data)
    except ValueError:  # 1e999 is read as infinity, and no text can be written with half a pair of surrogates
        message = f"holds a number without bounds or a character that is half of one; {_REMEDY}"
        raise _Flawed("malformed", message) from None
    if data.get("checksum") != right:
        raise _Flawed("altered", f"does not match its checksum: it was changed after it was written; {_REMEDY}")
    try:
        return Record.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise _Flawed("malformed", f"{place}: {first['msg']}; {_REMEDY}") from None


def _json(raw: bytes) -> dict[str, Any]:
    if not raw.strip():
        raise _Flawed("empty", f"is empty; {_REMEDY}")
    try:
        data = json.loads(raw, parse_constant=_refuse)
        is_deep = _depth_exceeds(_DEEPEST, data)
    except RecursionError:
        is_deep = True
    except ValueError:  # bad JSON and bad UTF-8 alike
        raise _Flawed("truncated", f"is not complete JSON; {_REMEDY}") from None
    if is_deep:
        raise _Flawed("malformed", f"nests more than {_DEEPEST} lists or mappings; {_REMEDY}")
    if not isinstance(data, dict):
        raise _Flawed("malformed", f"is not a record; {_REMEDY}")
    return data


def _depth_exceeds(most: int, value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return most == 0 or any(_depth_exceeds(most - 1, item) for item in inner if isinstance(item, (dict, list)))


def _refuse(constant: str) -> NoReturn:
    raise _Flawed("malformed", f"holds {constant}, which is no number; {_REMEDY}")


def _text(data: dict[str, Any]) -> bytes:
    """A record as JSON with one line per section: diffs are readable and files small."""
    lines = (f"{json.dumps(key)}: {json.dumps(data[key], sort_keys=True, allow_nan=False)}" for key in sorted(data))
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def write(path: Path, content: bytes) -> None:
    """Replaces a file atomically: the old content stays until the new content is on the disk.

    Raises:
        StoreError: With the file and the bytes it needs; the file is unchanged.
    """
    try:
        write_atomically(path, lambda file: file.write(content))
    except OSError as error:
        raise unwritten(error, path, f"{len(content):,} bytes") from error


def unwritten(error: OSError, path: Path, what: str) -> StoreError:
    """The error for a path that could not be replaced: where, why, what to do."""
    advice = "free some space and try again" if is_full(error) else "make it writable or take another folder"
    message = f"{error.strerror or error}: {what} could not be written; the file is unchanged; {advice}"
    return StoreError(error.errno or errno.EIO, message, str(path))
