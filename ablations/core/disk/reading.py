"""From the bytes of a file among the records to a record, or to what is wrong with them."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from pydantic import ValidationError

from ablations.schema.record import Record, checksum
from lightning_modules.files import Refused, open_plain

LARGEST_RECORD = 64_000  # bytes; 8,192 losses, each of another document, take 34,000 to 44,000
LARGEST_READ = 1_000_000  # bytes; a newer version may keep more in a record
_DEEPEST = 40  # containers within each other; a configuration has about ten
_VERSION = Record.model_fields["schema_version"].default
REMEDY = "Restore it from a copy, or run its grid again, which replaces it."

Flaw = Literal["unreadable", "empty", "truncated", "altered", "newer", "malformed", "drifted", "misplaced", "missing"]


class Flawed(Exception):
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


def content(path: Path, within: Path | None = None) -> bytes:
    """The bytes of a record's file.

    Args:
        within: The results folder, which links may not lead out of.

    Raises:
        FileNotFoundError: If there is none.
        Flawed: If it cannot be read, or is no plain file of the folder.
    """
    try:
        with open_plain(path, within) as file:
            check_size(size := os.fstat(file.fileno()).st_size)
            raw = file.read(size + 1)
        if len(raw) > size:
            raise Flawed("unreadable", "grows while it is read. Try again.")
        return raw
    except Refused as error:
        raise Flawed("unreadable", str(error.strerror)) from None
    except FileNotFoundError:
        if path.is_symlink():
            raise Flawed("unreadable", "is a link to nothing. Remove it or restore what it points to.") from None
        raise
    except OSError as error:
        raise Flawed("unreadable", f"cannot be read: {error.strerror}. Mend its permissions or remove it.") from None


def check_size(size: int) -> None:
    """Refuses a file that is too large to be a record's.

    Raises:
        Flawed: If it is.
    """
    if size > LARGEST_READ:
        raise Flawed("malformed", f"has {size:,} bytes, a record at most {LARGEST_RECORD:,}. {REMEDY}")


def parsed(raw: bytes) -> Record:
    """The record in a file's content.

    Raises:
        Flawed: If it is none.
    """
    data = from_json(raw)
    version = data.get("schema_version")
    if isinstance(version, int) and version > _VERSION:
        message = f"has schema version {version}, newer than the known version {_VERSION}. Update the project."
        raise Flawed("newer", message)
    try:
        right = checksum(data)
    except ValueError:  # 1e999 is read as infinity, and no text can be written with half a pair of surrogates
        message = f"holds a number without bounds or a character that is half of one. {REMEDY}"
        raise Flawed("malformed", message) from None
    if data.get("checksum") != right:
        raise Flawed("altered", f"does not match its checksum: it was changed after it was written. {REMEDY}")
    try:
        return Record.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise Flawed("malformed", f"{place}: {first['msg']}. {REMEDY}") from None


def from_json(raw: bytes) -> dict[str, Any]:
    """The mapping in a text of strict JSON.

    Raises:
        Flawed: If it is none, or one that no version of the project has written.
    """
    if not raw.strip():
        raise Flawed("empty", f"is empty. {REMEDY}")
    try:
        data = json.loads(raw, parse_constant=_refuse)
        is_deep = _depth_exceeds(_DEEPEST, data)
    except RecursionError:
        is_deep = True
    except ValueError:  # bad JSON and bad UTF-8 alike
        raise Flawed("truncated", f"is not complete JSON. {REMEDY}") from None
    if is_deep:
        raise Flawed("malformed", f"nests more than {_DEEPEST} lists or mappings. {REMEDY}")
    if not isinstance(data, dict):
        raise Flawed("malformed", f"is not a record. {REMEDY}")
    return data


def to_json(data: dict[str, Any]) -> bytes:
    """A record as JSON with one line per section: diffs are readable and files small."""
    lines = (f"{json.dumps(key)}: {json.dumps(data[key], sort_keys=True, allow_nan=False)}" for key in sorted(data))
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _depth_exceeds(most: int, value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return most == 0 or any(_depth_exceeds(most - 1, item) for item in inner if isinstance(item, (dict, list)))


def _refuse(constant: str) -> NoReturn:
    raise Flawed("malformed", f"holds {constant}, which is no number. {REMEDY}")
