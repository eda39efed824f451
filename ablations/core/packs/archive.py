"""Writes packs: the archive that `unpack` reads, equal bytes for equal content, in one file or in parts."""

import contextlib
import errno
import hashlib
import io
import json
import lzma
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablations.core.packs import unpack
from lightning_modules.config import ConfigError, Problem
from lightning_modules.files import open_plain, read

Source = Path | bytes  # of a file in a pack
SCRIPT = "unpack.py"  # next to each pack
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6}]
_WINDOWS, _WINDOW = 16, 1 << 16  # of a kind of content, compressed to estimate the size of all of it


@dataclass(frozen=True)
class Row:
    """What a pack holds in one of its folders.

    Attributes:
        part: The folder.
        files: How many files.
        size: Their bytes.
        packed: About how many bytes they take in the pack.
    """

    part: str
    files: int
    size: int
    packed: int


def table(files: Mapping[str, Source]) -> list[Row]:
    """What a pack of some files would hold, folder by folder, and all of it; sizes in the pack are estimated."""
    rows = []
    for part in sorted({name.partition("/")[0] for name in files}):
        sizes = [(source, _size(source)) for name, source in files.items() if name.partition("/")[0] == part]
        rows.append(Row(part, len(sizes), sum(size for _, size in sizes), _packed(sizes)))
    return [*rows, Row("all", *(sum(getattr(row, name) for row in rows) for name in ("files", "size", "packed")))]


def write(output: Path, told: Mapping[str, Any], files: Mapping[str, Source], split: int | None = None) -> list[Path]:
    """Writes a pack, and next to it the script that unpacks it. What is there already stays.

    Args:
        output: The file.
        told: Entries of the manifest that say for what the pack is: ``kind``, ``run`` and ``needs`` at least.
        files: Name in the pack -> where its content is.
        split: The largest bytes of a part; None for one file.

    Returns:
        The file, or the parts ``FILE.01``, ``FILE.02`` and so on.

    Raises:
        ConfigError: If a file of the pack, a part of it or another script is there already; for a name that a pack
            cannot hold.
        OSError: If something cannot be read, or changes meanwhile; nothing is written then.
    """
    check_free(output)
    try:
        unpack.check_names(sorted(files), unpack.PARTS[told["kind"]])
        listed = [[name, *_summed(files[name])] for name in sorted(files)]
        manifest = {"format": unpack.FORMAT, **told, "bytes": sum(size for _, size, _ in listed), "files": listed}
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{output.name}.", suffix=".tmp", dir=output.parent) as hidden:
            pieces = _in_pieces(_compressed(_archive(manifest, files)), Path(hidden), split)
            ends = [f".{number:02d}" for number in range(1, len(pieces) + 1)] if split else [""]
            made = [output.with_name(output.name + end) for end in ends]
            (Path(hidden) / SCRIPT).write_bytes(_script())
            for piece, path in [*zip(pieces, made, strict=True)][::-1]:  # the first is the last to appear
                os.replace(piece, path)
            os.replace(Path(hidden) / SCRIPT, output.with_name(SCRIPT))
    except unpack.Unfit as error:
        raise ConfigError([str(error)]) from None
    return made


def check_free(output: Path) -> None:
    """Refuses a place where a pack, a part of it or another script is already.

    Raises:
        ConfigError: With what is there.
    """
    found = [output, *output.parent.glob(f"{output.name}.[0-9][0-9]*")] if output.parent.is_dir() else []
    taken = [path for path in found if os.path.lexists(path)]
    beside = output.with_name(SCRIPT)
    if os.path.lexists(beside) and not (beside.is_file() and read(beside) == _script()):
        taken.append(beside)
    if taken:
        raise ConfigError([Problem("--output", f"{taken[0]} is there already. Remove it, or name another file.")])


def _script() -> bytes:
    return Path(unpack.__file__).read_bytes()


def _archive(manifest: Mapping[str, Any], files: Mapping[str, Source]) -> Iterator[bytes]:
    first = json.dumps(manifest, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    yield unpack.header(unpack.MANIFEST, len(first)) + first + unpack.padding(len(first))
    for name, size, digest in manifest["files"]:
        yield unpack.header(name, size)
        sums, left = hashlib.sha256(), size
        for chunk in _chunks(files[name]):
            sums.update(chunk)
            left -= len(chunk)
            yield chunk
        if left or sums.hexdigest() != digest:
            raise OSError(errno.EBUSY, "has changed while it was packed. Pack it again", str(files[name]))
        yield unpack.padding(size)
    yield bytes(2 * unpack.BLOCK)


def _compressed(content: Iterator[bytes]) -> Iterator[bytes]:
    packer = lzma.LZMACompressor(lzma.FORMAT_XZ, lzma.CHECK_CRC64, filters=_FILTERS)
    for chunk in content:
        yield packer.compress(chunk)
    yield packer.flush()


def _in_pieces(content: Iterator[bytes], folder: Path, most: int | None) -> list[Path]:
    """Writes numbered files of a folder, each filled up to a size before the next begins."""
    paths: list[Path] = []
    with contextlib.ExitStack() as files:
        room, file = 0, io.BytesIO()
        for chunk in content:
            while chunk:
                if not room:
                    files.close()
                    paths.append(folder / f"{len(paths):04d}")
                    file, room = files.enter_context(paths[-1].open("xb")), most or 1 << 62
                chunk, room = chunk[file.write(chunk[:room]) :], room - len(chunk[:room])
    return paths


def _chunks(source: Source) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
        return
    with open_plain(source) as file:
        while chunk := file.read(unpack.CHUNK):
            yield chunk


def _summed(source: Source) -> tuple[int, str]:
    sums, size = hashlib.sha256(), 0
    for chunk in _chunks(source):
        sums.update(chunk)
        size += len(chunk)
    return size, sums.hexdigest()


def _size(source: Source) -> int:
    return len(source) if isinstance(source, bytes) else source.stat().st_size


def _packed(sizes: Sequence[tuple[Source, int]]) -> int:
    """About how many bytes some files take: windows of them, evenly spaced, are compressed."""
    total = sum(size for _, size in sizes)
    every = max(1, total // _WINDOWS)
    sample, ahead = bytearray(), 0  # bytes until the next window
    for source, size in sizes:
        while ahead < size:
            if isinstance(source, bytes):
                window = source[ahead : ahead + min(_WINDOW, every)]
            else:
                with open_plain(source) as file:
                    file.seek(ahead)
                    window = file.read(min(_WINDOW, every))
            sample += window
            ahead += every
        ahead -= size
    packed = len(lzma.compress(bytes(sample), filters=_FILTERS)) if sample else 0
    return round(total * min(1.0, packed / len(sample))) if sample else 0
