"""The records: one JSON file a run, the only source of tables. Written whole or not at all; read with suspicion.

A record is ``records/<2 hex>/<16 hex>.json`` of the results folder; the list of installed packages it refers to is
``environments/<12 hex>.json``; the process that makes the run holds ``.locks/<16 hex>.lock``.
"""

import errno
import json
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from filelock import FileLock, Timeout
from pydantic import ValidationError

from ablations.schema.record import Record, checksum
from lightning_modules.config import ConfigError, identity
from lightning_modules.files import write_atomically
from lightning_modules.places import cache, project

LARGEST_RECORD = 32_000  # bytes
_ID = re.compile(r"[0-9a-f]{16}")
_VERSION = Record.model_fields["schema_version"].default

Flaw = Literal["empty", "truncated", "altered", "newer", "malformed", "drifted", "misplaced"]


class RecordWarning(UserWarning):
    """A record that cannot be used and was skipped."""


class StoreError(OSError):
    """A record could not be written; what was there before still is."""


@dataclass(frozen=True)
class Damage:
    """A file among the records that is not a usable record.

    Attributes:
        path: The file, relative to the results folder.
        flaw: What kind of damage.
        message: The same in words, with what to do.
    """

    path: str
    flaw: Flaw
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class Lookup(Protocol):
    """Where records come from: a store, what was read of one, or a dictionary in tests."""

    def get(self, id: str, /) -> Record | None:
        """The record of a run, None where there is none."""


class Records:
    """The records of a results folder.

    Args:
        results_dir: The folder; by default the project's ``results``. A relative path is relative to the project.
    """

    def __init__(self, results_dir: str | Path | None = None) -> None:
        self.folder = Path(os.path.abspath(project() / Path(results_dir or "results").expanduser()))

    def path(self, run_id: str) -> Path:
        """The file of a run's record.

        Raises:
            ValueError: If ``run_id`` is not sixteen hexadecimal digits, which keeps every path inside the folder.
        """
        if not _ID.fullmatch(run_id):
            raise ValueError(f"{run_id!r} is not a run id: sixteen lower-case hexadecimal digits")
        return self.folder / "records" / run_id[:2] / f"{run_id}.json"

    def work_folder(self, run_id: str) -> Path:
        """Where a run keeps its log, checkpoint and progress: in the cache, apart for each results folder."""
        self.path(run_id)
        return self._work_home() / run_id

    def work_folders(self) -> list[Path]:
        """The work folders that this results folder's runs have left in the cache, ordered by run."""
        return sorted(path for path in self._work_home().glob("*") if _ID.fullmatch(path.name))

    def _work_home(self) -> Path:
        return cache() / "runs" / identity(str(self.folder))[:8]

    def files(self) -> list[Path]:
        """The files of all records, damaged ones included, ordered by run."""
        return sorted((self.folder / "records").glob("[0-9a-f][0-9a-f]/*.json"))

    def get(self, run_id: str) -> Record | None:
        """The record of a run, None (with a `RecordWarning`) where it is damaged, None where there is none."""
        return _usable(self.examine(run_id))

    def examine(self, run_id: str) -> Record | Damage | None:
        """The record of a run, or what is wrong with it."""
        return self._read(self.path(run_id))

    def all(self) -> Iterator[Record]:
        """Every usable record, ordered by id; damaged ones are skipped with a `RecordWarning` each."""
        for _, found in self.survey():
            if (record := _usable(found)) is not None:
                yield record

    def survey(self) -> Iterator[tuple[str, Record | Damage]]:
        """Every file among the records, ordered: its stem, and the record or what is wrong with it."""
        for path in self.files():
            found = self._read(path)
            if found is not None:
                yield path.stem, found

    def snapshot(self) -> "Snapshot":
        """All records as they stand now, each file read once."""
        return Snapshot(self.folder, dict(self.survey()))

    def verify(self) -> list[Damage]:
        """Everything among the records that is not a sound record, each with its reason."""
        damages = []
        for stem, found in self.survey():
            damage = found if isinstance(found, Damage) else self._drift(self.path(stem), found)
            damages += [damage] if damage else []
        return damages

    def put(self, record: Record) -> Record:
        """Writes a record, atomically. The caller holds the run's lock.

        A finished record stays: an attempt that failed later never replaces it, and nothing replaces one that a newer
        version of the project wrote.

        Returns:
            The record as it stands in the store now.

        Raises:
            StoreError: If it could not be written (disk full, no permission), or is too large; the old one is intact.
        """
        path, existing = self.path(record.id), self.examine(record.id)
        if isinstance(existing, Record) and existing.outcome == "done" and record.outcome != "done":
            return existing
        if isinstance(existing, Damage) and existing.flaw == "newer":
            raise StoreError(errno.EEXIST, str(existing), str(path))
        data = record.to_dict()
        data["checksum"] = checksum(data)
        text = _text(data)
        if len(text) > LARGEST_RECORD:
            message = f"the record would have {len(text):,} bytes, more than the {LARGEST_RECORD:,} a record may have"
            raise StoreError(errno.EMSGSIZE, message, str(path))
        write(path, text)
        return Record.model_validate(data)

    def lock(self, run_id: str) -> FileLock:
        """The lock of a run, not yet taken. The kernel frees it when its holder dies."""
        self.path(run_id)
        folder = self.folder / ".locks"
        folder.mkdir(parents=True, exist_ok=True)
        return FileLock(folder / f"{run_id}.lock")

    def is_locked(self, run_id: str) -> bool:
        """Whether some process is making this run right now."""
        lock = self.lock(run_id)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        lock.release()
        return False

    def _read(self, path: Path) -> Record | Damage | None:
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        if not raw.strip():
            return self._damage(path, "empty", "is empty; delete it and run again")
        try:
            data = json.loads(raw)
        except ValueError:  # bad JSON and bad UTF-8 alike
            return self._damage(path, "truncated", "is not complete JSON; delete it and run again")
        if not isinstance(data, dict):
            return self._damage(path, "malformed", "is not a record")
        version = data.get("schema_version")
        if isinstance(version, int) and version > _VERSION:
            message = f"has schema version {version}, newer than the {_VERSION} known here; update the project"
            return self._damage(path, "newer", message)
        if data.get("checksum") != checksum(data):
            return self._damage(path, "altered", "does not match its checksum: it was changed after it was written")
        try:
            record = Record.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            return self._damage(path, "malformed", f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
        if path != self.path(record.id):
            return self._damage(path, "misplaced", f"holds the record of {record.id}")
        return record

    def _drift(self, path: Path, record: Record) -> Damage | None:
        """A sound file whose configuration no longer hashes to its id."""
        try:
            now = record.run().id
        except ConfigError as error:
            return self._damage(path, "drifted", f"its configuration cannot be read any more: {error.problems[0]}")
        message = f"its configuration hashes to {now} here: the meaning of a setting was changed without a migration"
        return self._damage(path, "drifted", message) if now != record.id else None

    def _damage(self, path: Path, flaw: Flaw, message: str) -> Damage:
        return Damage(str(path.relative_to(self.folder)), flaw, message)


@dataclass(frozen=True)
class Snapshot:
    """The records of a results folder as they stood at one moment: what is written later is not seen.

    Attributes:
        folder: The results folder.
        found: Stem of each file, which is its run's id, to the record or what is wrong with it.
    """

    folder: Path
    found: dict[str, Record | Damage]

    def get(self, run_id: str) -> Record | None:
        """The record of a run, None (with a `RecordWarning`) where it is damaged, None where there is none."""
        return _usable(self.found.get(run_id))

    def survey(self) -> Iterator[tuple[str, Record | Damage]]:
        """Every file among the records, ordered: its stem, and the record or what is wrong with it."""
        return iter(self.found.items())

    @property
    def done(self) -> set[str]:
        """The ids of the runs that are done."""
        return {id for id, found in self.found.items() if isinstance(found, Record) and found.outcome == "done"}


def _usable(found: Record | Damage | None) -> Record | None:
    if isinstance(found, Damage):
        warnings.warn(f"{found}; skipped", RecordWarning, stacklevel=3)
        return None
    return found


def _text(data: dict[str, Any]) -> bytes:
    """A record as JSON with one line a section, which keeps diffs readable and files small."""
    lines = (f"{json.dumps(key)}: {json.dumps(data[key], sort_keys=True, allow_nan=False)}" for key in sorted(data))
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def write(path: Path, content: bytes) -> None:
    """Replaces a file whole: the old content stays until the new is on the disk.

    Raises:
        StoreError: Naming the file and the bytes it needed; the file is as it was.
    """
    try:
        write_atomically(path, lambda file: file.write(content))
    except OSError as error:
        message = f"{error.strerror or error}: {len(content):,} bytes could not be written; the file is as it was"
        raise StoreError(error.errno or errno.EIO, message, str(path)) from error
