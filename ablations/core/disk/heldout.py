"""The held-out losses of a pretraining by sequence, in a file next to its record: ``records/<2 hex>/<16 hex>.heldout``.

The SHA-256 of the file is in the record's provenance, so a file of another run is refused and a lost one is missed.
Earlier records have no such entry; ``records/heldout.sha256`` lists their digests, as `sha256sum --check` reads them.
"""

import contextlib
import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ablations.core.disk.reading import Damage, Flawed, content, from_json
from ablations.schema.record import Record, checksum
from lightning_modules.config import ConfigError
from lightning_modules.evaluation import MOST_SEQUENCES
from lightning_modules.files import version
from lightning_modules.tasks.scores.kept import unpack

ENTRY = "heldout"  # entry of a record's provenance
LIST = "records/heldout.sha256"
_LINE = re.compile(r"([0-9a-f]{64})  ([0-9a-f]{2})/(\2[0-9a-f]{14})\.heldout")
_PREFIX = "heldout."  # of the metrics
_ROUNDING = 2e-3  # relative: half precision of the sums of a sequence, and the precision of the training
_REMEDY = "Restore it from a copy, or remove it and the record and run its grid again."
_BARE = f"is missing, with its digest. Other pretrainings here have theirs. {_REMEDY}"
_UNLISTED = (
    "lacks the digests of {} .heldout files, whose records have none: an altered file may pass. Restore the list from "
    "a copy (git checkout). If it always lacked them, write it in its folder: sha256sum */*.heldout > heldout.sha256"
)


@dataclass(frozen=True)
class Losses:
    """The losses of one metric by sequence.

    Attributes:
        nats: The sum of each sequence ``[sequences]``.
        counts: Its number of predictions ``[sequences]``.
        documents: The document that it begins in ``[sequences]``.
        text: What the sequences are; losses of two runs compare only if it is the same.
    """

    nats: np.ndarray
    counts: np.ndarray
    documents: np.ndarray
    text: str


def name(run_id: str) -> str:
    """The place of a run's file, relative to the results folder."""
    return f"records/{run_id[:2]}/{run_id}.heldout"


def digest(raw: bytes) -> str:
    """The SHA-256 of the content of a file."""
    return hashlib.sha256(raw).hexdigest()


def recorded(record: Record | None) -> str | None:
    """The digest in a record; None if it has none."""
    found = record.provenance.get(ENTRY) if record else None
    return found if isinstance(found, str) else None


def listed(folder: Path) -> Mapping[str, str]:
    """Run -> digest, for the records of a results folder that have none."""
    path = folder / LIST
    try:
        return _listed(path, folder, version(path))
    except (OSError, Flawed):
        return {}


@functools.lru_cache(maxsize=16)
def _listed(path: Path, folder: Path, _version: tuple[int, int, int]) -> Mapping[str, str]:
    return from_list(content(path, folder))


def from_list(raw: bytes) -> dict[str, str]:
    """Run -> digest, from the content of a list; other lines are left out."""
    lines = map(_LINE.fullmatch, raw.decode(errors="replace").splitlines())
    return {line[3]: line[1] for line in lines if line}


def to_list(digests: Mapping[str, str]) -> bytes:
    """The content of a list."""
    return "".join(f"{digests[run]}  {name(run).removeprefix('records/')}\n" for run in sorted(digests)).encode()


def parsed(raw: bytes, right: str | None = None) -> dict[str, Any]:
    """The losses in the content of a file, packed, without their checksum.

    Args:
        right: Its digest, if one is known.

    Raises:
        Flawed: If it is no such file, or another one than that of the digest.
    """
    if right and digest(raw) != right:
        raise Flawed("altered", f"is not the file that was written with the record. {_REMEDY}")
    data = from_json(raw)
    if data.pop("checksum", None) != checksum(data):
        raise Flawed("altered", f"does not match its checksum: it was changed after it was written. {_REMEDY}")
    return data


def losses(kept: Mapping[str, Any], metric: str, value: float) -> Losses:
    """The losses of a metric.

    Args:
        kept: From `parsed`.
        value: Its value in the record, which must be the mean.

    Raises:
        Flawed: If there are none, or they belong to another value.
    """
    try:
        part = kept["losses"][metric.removeprefix(_PREFIX)]
        nats, counts = unpack(part["nats"]).astype(float), unpack(part["counts"]).astype(float)
        documents, text = unpack(part.get("documents", kept["documents"])), str(kept["text"])
    except (KeyError, TypeError, AttributeError, ConfigError):
        raise Flawed("malformed", f"holds no losses of {metric} by sequence. {_REMEDY}") from None
    if not (len(nats) == len(counts) == len(documents)) or counts.sum() <= 0:
        raise Flawed("malformed", f"has counts of {metric} that do not fit its losses. {_REMEDY}")
    if not abs(nats.sum() / counts.sum() - value) <= _ROUNDING * max(1.0, abs(value)):
        mean = f"has a mean of {nats.sum() / counts.sum():.4f}"
        raise Flawed("altered", f"{mean} for {metric}, and the record has {value:.4f}. {_REMEDY}")
    return Losses(nats, counts, documents, text)


def read(folder: Path, run_id: str, record: Record | None) -> dict[str, Any]:
    """The losses of a run, packed.

    Raises:
        FileNotFoundError: If there is no file, and none was written with the record.
        Flawed: If the file is missing, altered, or of another run.
    """
    right = recorded(record) or listed(folder).get(run_id)
    try:
        raw = content(folder / name(run_id), folder)
    except FileNotFoundError:
        if right is None:
            raise
        raise Flawed("missing", f"is missing, and was written with the record. {_REMEDY}") from None
    return parsed(raw, right)


def damages(folder: Path, records: Iterable[Record]) -> Iterator[Damage]:
    """What is wrong with the files next to records, and with the list of their digests.

    Args:
        records: Those of finished runs.
    """
    with contextlib.suppress(FileNotFoundError):
        try:
            if to_list(from_list(raw := content(folder / LIST, folder))) != raw:
                raise Flawed("altered", "has lines that are no digests, or are out of order. Restore it from a copy.")
        except Flawed as flaw:
            yield Damage(LIST, flaw.flaw, str(flaw))
    known, unlisted, bare = listed(folder), 0, []
    pretrainings = [record for record in records if record.kind == "pretrain"]
    for record in pretrainings:
        try:
            _check(read(folder, record.id, record), record)
        except FileNotFoundError:
            bare.append(record)
        except Flawed as flaw:
            yield Damage(name(record.id), flaw.flaw, str(flaw))
        else:
            unlisted += not recorded(record) and record.id not in known
    if unlisted:
        yield Damage(LIST, "missing", _UNLISTED.format(unlisted))
    if len(bare) < len(pretrainings):
        yield from (Damage(name(record.id), "missing", _BARE) for record in bare if _keeps(record))


def _keeps(record: Record) -> bool:
    """Whether a run of this configuration has few enough held-out sequences, segments of a stream included."""
    try:
        system = record.run().system
    except (ConfigError, KeyError):  # of a text or a package that the run depends on
        return False
    usual, evaluation = system.format.sequence_length, system.evaluation
    return evaluation.sequences_at_end * usual / (evaluation.sequence_length or usual) <= MOST_SEQUENCES


def _check(kept: Mapping[str, Any], record: Record) -> None:
    parts = kept.get("losses")
    for part in parts if isinstance(parts, dict) and parts else ("loss",):
        if (metric := _PREFIX + part) not in record.metrics:
            raise Flawed("altered", f"holds losses of {metric}, which the record does not have. {_REMEDY}")
        losses(kept, metric, float(record.metrics[metric]))
