"""Notes on runs: ``notes.json`` of a results folder, next to the records and never in them."""

import json
from collections.abc import Iterable
from pathlib import Path

from ablations.core.disk.publishing import turn, write
from lightning_modules.config import ConfigError, Problem
from lightning_modules.files import read

FILE = "notes.json"
_PATIENCE = 60.0  # seconds for another process that writes in the folder


def notes(folder: Path | None) -> dict[str, str]:
    """Run id -> what somebody noted of it; empty without a folder or a file.

    Raises:
        ConfigError: If the file holds anything else.
    """
    if folder is None or not (folder / FILE).is_file():
        return {}
    try:
        found = json.loads(read(folder / FILE, within=folder))
    except (OSError, ValueError, RecursionError):
        found = None
    match found:
        case dict() if all(isinstance(text, str) for text in found.values()):
            return found
        case _:
            raise ConfigError([Problem(str(folder / FILE), "is no mapping of run ids to notes. Repair or delete it.")])


def note(folder: Path, ids: Iterable[str], text: str) -> None:
    """Notes a text of runs, in place of an earlier one; an empty text removes it."""
    with turn(folder, _PATIENCE):
        kept = notes(folder) | dict.fromkeys(ids, text)
        kept = {id: kept[id] for id in sorted(kept) if kept[id]}
        write(folder / FILE, (json.dumps(kept, indent=1, ensure_ascii=False) + "\n").encode())
