"""Which claims were stated before their grid had run: registered by commit, or marked *post hoc*.

A claim is registered if the first commit whose grid file names it is older than what it could be seen from, at a scale
that counts: runs of two of its sides that measured its metric. A trunk that another grid had trained says nothing of
fine-tunings, nor of models that differ from it. Without git, or outside a checkout, nothing is known.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ablations.core.store import Lookup
from ablations.measurements.selection import side_of
from ablations.schema.cell import Cell
from ablations.schema.claim import Claim
from ablations.schema.grid import Grid
from lightning_modules.tasks import TASKS

REGISTERED, POST_HOC, UNMARKED, NOT_RUN, UNKNOWN = "registered", "post hoc", "unmarked", "not run", "unknown"
_NAMED = re.compile(r"^\s*-?\s*(?:claim|id):\s*[\"']?([a-z0-9][a-z0-9_.]*)", re.MULTILINE)
_SECONDS = 20.0


@dataclass(frozen=True)
class Registration:
    """When a claim was stated, and when its grid first ran at a scale.

    Attributes:
        standing: One of ``REGISTERED``, ``POST_HOC`` (stated later, and marked so), ``UNMARKED`` (stated later, and not
            marked), ``NOT_RUN``, ``UNKNOWN``.
        stated: When the first commit with the claim was made; None if no commit has it, or without git.
        ran: `first_seen`; None without records.
    """

    claim: str
    grid: str
    scale: str
    standing: str
    stated: datetime | None
    ran: datetime | None


def stated(file: Path) -> dict[str, datetime] | None:
    """Claim or id -> when the first commit was made whose version of a grid file has it; None without git history."""
    commits = _commits(file)
    if commits is None:
        return None
    first: dict[str, datetime] = {}
    for commit, path, when in commits:  # oldest first
        text = _git(file.parent, "show", f"{commit}:{path}")
        for name in _NAMED.findall(text or ""):
            first.setdefault(name, when)
    return first


def _commits(file: Path) -> list[tuple[str, str, datetime]] | None:
    """The commits that changed a file, oldest first, each with the file's path then; renames are followed."""
    told = _git(file.parent, "log", "--follow", "--name-only", "--format=%x00%H%x09%cI", "--", file.name)
    if told is None:
        return None
    commits = []
    for entry in filter(str.strip, told.split("\0")):
        head, *paths = [line for line in entry.splitlines() if line]
        commit, _, when = head.partition("\t")
        if paths:
            commits.append((commit, paths[0], datetime.fromisoformat(when)))
    return commits[::-1]


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says in a folder; None without git, outside a repository, or if it fails."""
    if shutil.which("git") is None:
        return None
    command = ["git", "-C", str(folder), "-c", "core.quotePath=off", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def first_seen(claim: Claim, grid: Grid, cells: Sequence[Cell], records: Lookup) -> datetime | None:
    """When something of a claim could first be seen: once two of its sides have a run, or its only side has one."""
    sides = (side_of(grid, cells, side) for side in claim.asked)
    starts = sorted(filter(None, (first_run(side, records, claim.metric) for side in sides)))
    return starts[1] if len(starts) > 1 else starts[0] if starts and len(claim.asked) == 1 else None


def first_run(cells: Iterable[Cell], records: Lookup, metric: str) -> datetime | None:
    """When the first run of some cells that measures a metric began, searches left out; None without records.

    Those are the runs on the task that the metric begins with; of any other metric all runs.
    """
    task = metric.partition(".")[0]
    work = (run for cell in cells for run in cell.work if run.task == task or task not in TASKS)
    found = (records.get(run.id) for run in work)
    starts = [started for record in found if record and (started := _time(record.provenance.get("started")))]
    return min(starts, default=None)


def _time(text: object) -> datetime | None:
    """A time with its zone, UTC if the text names none; None for what is no time."""
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return time.replace(tzinfo=UTC) if time and time.utcoffset() is None else time


def registrations(
    grid: str,
    scale: str,
    claims: Sequence[Claim],
    known: Mapping[str, datetime] | None,
    ran: Callable[[Claim], datetime | None],
) -> list[Registration]:
    """The state of a grid's claims at a scale.

    Args:
        known: What `stated` says of its file.
        ran: What `first_seen` says of a claim.
    """
    found = []
    for claim in claims:
        when = None if known is None else known.get(claim.id, known.get(claim.claim))
        first = ran(claim)
        found.append(Registration(claim.id, grid, scale, _standing(claim, known, when, first), when, first))
    return found


def _standing(claim: Claim, known: Mapping[str, datetime] | None, when: datetime | None, ran: datetime | None) -> str:
    if ran is None:
        return NOT_RUN
    if known is None:
        return POST_HOC if claim.post_hoc else UNKNOWN
    is_before = when is not None and when <= ran
    if claim.post_hoc:
        return POST_HOC
    return REGISTERED if is_before else UNMARKED
