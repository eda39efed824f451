"""Unpacks what `ablations pack` wrote: ``python unpack.py FILE [FILE.02 ...] --into DIR``. Needs Python 3.10 alone.

A pack is a tar archive in xz. There is one way to write it: the manifest, then its files in order, without times or
owners. So each byte around the files is known beforehand, and a pack with another one is refused. Nothing appears at
DIR before all sums are right.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import lzma
import operator
import os
import platform
import re
import secrets
import shlex
import shutil
import stat
import struct
import sys
import unicodedata
from importlib import metadata
from pathlib import Path

FORMAT, MANIFEST, BLOCK, LARGEST_MANIFEST, MEMORY, CHUNK = 1, "manifest.json", 512, 64 << 20, 128 << 20, 1 << 20
PARTS = {"grid": {"cache", "runs", "source", "wheels"}, "results": {"results", "runs"}}  # kind -> its folders
KINDS = {b"1": "a hard link", b"2": "a link", b"3": "a device", b"4": "a device", b"5": "a folder", b"6": "a pipe"}
COMPARED = {">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt}
COMPARED |= {"<": operator.lt}
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


class Unfit(Exception):
    """A pack that is not unpacked: damaged, hostile, or for other versions."""


class _Stream:
    """The archive within the parts of a pack. No more of it is decompressed than is needed."""

    def __init__(self, parts: list[Path]) -> None:
        self.names, self.raw = ", ".join(part.name for part in parts), _bytes(parts)
        self.xz = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MEMORY)

    def read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            more = next(self.raw, b"") if self.xz.needs_input and not self.xz.eof else b""
            if self.xz.eof or (self.xz.needs_input and not more):
                raise Unfit(f"{self.names}: ends too early. It is cut short, or a further part is missing.")
            try:
                found += self.xz.decompress(more, size - len(found))
            except (lzma.LZMAError, EOFError) as error:
                raise Unfit(f"{self.names}: is damaged, or no pack ({error}). Copy it again.") from None
        return bytes(found)

    def end(self) -> None:
        try:
            self.read(1)
        except Unfit:
            if self.xz.eof and not self.xz.unused_data and not next(self.raw, b""):
                return
            raise Unfit(f"{self.names}: is damaged at its end, or more follows it. Copy it again.") from None
        raise Unfit(f"{self.names}: holds more than it announces")


def _bytes(parts):
    for part in parts:
        with open(part, "rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk


def ordered(files: list[Path]) -> list[Path]:
    """The parts of a pack in order. One name that is no file represents its parts, ``NAME.01`` and so on."""
    if len(files) == 1 and not files[0].exists():
        found = files[0].parent.glob("*") if files[0].parent.is_dir() else ()
        files = [path for path in found if re.fullmatch(re.escape(files[0].name) + r"\.\d{2,4}", path.name)] or files
    for path in files:
        if not path.exists() or not stat.S_ISREG(path.stat().st_mode):
            raise Unfit(f"{path}: there is no such file")
    numbers = {int(path.suffix[1:]): path for path in files if re.fullmatch(r"\.\d{2,4}", path.suffix)}
    if len(files) == 1 and not numbers:
        return files
    if len(numbers) < len(files) or len({path.stem for path in files}) > 1:
        raise Unfit(
            f"{', '.join(path.name for path in files)}: are not the parts of one pack. Name FILE.01, FILE.02 ..."
        )
    if missing := sorted(set(range(1, max(numbers) + 1)) - set(numbers)):
        raise Unfit(f"{files[0].stem}: part {missing[0]:02d} is missing. Copy it too.")
    return [numbers[number] for number in sorted(numbers)]


def header(name: str, size: int) -> bytes:
    """The header of a plain file in a tar archive (POSIX.1-1988, ustar): mode 644, no time, no owner."""
    raw, cut = name.encode(), -1
    if len(raw) > 100:  # the beginning goes into a field of its own
        cut = raw.find(b"/", len(raw) - 101)
    first, last = raw[: max(cut, 0)], raw[cut + 1 :]
    if len(last) > 100 or len(first) > 155 or size >= 8**11:
        raise Unfit(f"{name}: its name is too long for a pack, or it is larger than 8 GiB")
    none, octal = b"0000000", b"%011o"
    fields = [last, b"0000644", none, none, octal % size, octal % 0, b" " * 8, b"0", b"", b"ustar", b"00", b"", b""]
    made = struct.pack("100s8s8s8s12s12s8s1s100s6s2s32s32s8s8s155s12x", *fields, none, none, first)
    return made[:148] + b"%06o\0 " % sum(made) + made[156:]


def padding(size: int) -> bytes:
    """What fills the last block of a file."""
    return bytes(-size % BLOCK)


def check_names(names: list[str], folders: set[str]) -> None:
    """Refuses names that lead elsewhere, and names that some file system cannot hold or takes for another one."""
    seen: dict[str, tuple[str, bool]] = {}
    for name in names:
        parts = name.split("/")
        for part in parts:
            odd = part in ("", ".", "..") or part[-1] in " ." or re.search(r'[<>:"|?*\\]', part)
            if odd or not part.isprintable() or RESERVED.fullmatch(part) or part != unicodedata.normalize("NFC", part):
                raise Unfit(f"{name!r}: no file of a pack may have this name")
        if parts[0] not in folders or len(parts) < 2 or len(name) > 250:
            raise Unfit(f"{name[:250]!r}: is too long, or lies in none of {', '.join(sorted(folders))}")
        for depth in range(1, len(parts) + 1):
            path, is_file = "/".join(parts[:depth]), depth == len(parts)
            alike = unicodedata.normalize("NFC", path.casefold())
            other, was_file = seen.get(alike, (path, False))
            if other != path:
                raise Unfit(f"{name!r}: differs from {other!r} by case alone")
            if was_file or (is_file and alike in seen):
                raise Unfit(f"{name!r}: is there twice, or is a file and a folder")
            seen[alike] = path, is_file


def read_manifest(stream: _Stream) -> dict:
    """The manifest at the beginning of an archive, with everything in it checked but the sums."""
    first = stream.read(BLOCK)
    digits = first[124:135]
    size = int(digits, 8) if re.fullmatch(rb"[0-7]{11}", digits) else 0
    if not 0 < size <= LARGEST_MANIFEST or first != header(MANIFEST, size):
        raise Unfit(f"{stream.names}: does not begin with the manifest of a pack")
    raw = stream.read(size + -size % BLOCK)
    try:
        told = json.loads(raw[:size])
        if told["format"] != FORMAT:
            raise Unfit(f"{stream.names}: has format {told['format']!r}, and this unpack.py reads {FORMAT}")
        files, words = told["files"], [*told["run"], *told["needs"], *told["needs"].values()]
        is_sound = all(
            type(name) is str and type(length) is int and length >= 0 and re.fullmatch("[0-9a-f]{64}", digest)
            for name, length, digest in files
        )
        is_sound = is_sound and told["bytes"] == sum(length for _, length, _ in files) and raw[size:] == padding(size)
        is_sound = is_sound and told["kind"] in PARTS and all(word.isprintable() for word in words)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        is_sound = False
    if not is_sound:
        raise Unfit(f"{stream.names}: its manifest is damaged, or is none")
    check_names([name for name, _, _ in files], PARTS[told["kind"]])
    return told


def kind(files: list[Path]) -> str:
    """Of what kind a pack is: ``grid`` or ``results``."""
    return read_manifest(_Stream(ordered(files)))["kind"]


def unfitting(told: dict) -> list[str]:
    """What the manifest demands and neither this Python nor a wheel of the pack has, a line each."""
    wheels = [name.split("/")[-1].split("-") for name, _, _ in told["files"] if name.startswith("wheels/")]
    brought = {re.sub(r"[-_.]+", "-", parts[0]).lower(): parts[1] for parts in wheels if len(parts) > 1}
    problems = []
    for name, allowed in sorted(told["needs"].items()):
        found = platform.python_version() if name == "python" else brought.get(re.sub(r"[-_.]+", "-", name).lower())
        if found is None:
            with contextlib.suppress(metadata.PackageNotFoundError, ValueError):
                found = metadata.version(name)
        limits = re.findall(r"(>=|<=|==|!=|>|<)\s*([^,\s]+)", allowed)
        if found is None or not all(COMPARED[sign](_release(found), _release(limit)) for sign, limit in limits):
            problems.append(f"{name} {found or 'is missing'}: the pack needs {name} {allowed or 'of any version'}")
    return problems


def _release(version: str) -> tuple[int, ...]:
    numbers = re.findall(r"^\d+(?:\.\d+)*", version) or [""]
    return tuple(int(number) for number in re.sub(r"(\.0+)+$", "", numbers[0]).split(".") if number)


def lay_out(files: list[Path], into: Path) -> dict:
    """Unpacks a pack at a folder that is new or empty, and returns the manifest; after an error nothing is there."""
    stream = _Stream(ordered(files))
    told = read_manifest(stream)
    into = Path(os.path.realpath(into))
    if problems := unfitting(told):
        raise Unfit("\n".join(problems))
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise Unfit(f"{into}: is there already. Name a new folder.")
    into.parent.mkdir(parents=True, exist_ok=True)
    if told["bytes"] > (free := shutil.disk_usage(into.parent).free):
        raise Unfit(f"{into}: the pack has {told['bytes']:,} bytes, and {free:,} are free there")
    with _hidden(into) as folder:
        for name, size, digest in told["files"]:
            _check_header(stream.read(BLOCK), name, size)
            target = folder / _place(name, told["kind"], into)
            target.parent.mkdir(parents=True, exist_ok=True)
            sums, left = hashlib.sha256(), size
            with open(target, "xb") as file:
                while left:
                    chunk = stream.read(min(CHUNK, left))
                    sums.update(chunk)
                    left -= file.write(chunk)
            if sums.hexdigest() != digest or stream.read(-size % BLOCK) != padding(size):
                raise Unfit(f"{name}: is not as it was packed. Copy the pack again.")
        if stream.read(2 * BLOCK) != bytes(2 * BLOCK):
            raise Unfit(f"{stream.names}: holds files that it does not announce")
        stream.end()
        os.rename(folder, into)
    return told


def _check_header(found: bytes, name: str, size: int) -> None:
    if found != header(name, size):
        kind, other = KINDS.get(found[156:157], ""), found[:100].rstrip(b"\0").decode(errors="replace")
        what = f"{other!r} is {kind}" if kind else f"{other!r} is there, of another size, place or kind"
        raise Unfit(f"{name}: is announced, and {what}" if any(found) else f"{name}: is announced, and missing")


def _place(name: str, kind: str, into: Path) -> str:
    """The place of a file; checkpoints of a grid's runs go where the cache keeps those of the results folder there."""
    if kind == "results" or not name.startswith("runs/"):
        return name
    results = json.dumps(unicodedata.normalize("NFC", str(into / "source" / "results")), ensure_ascii=False)
    return f"cache/runs/{hashlib.sha256(results.encode()).hexdigest()[:8]}/{name[len('runs/') :]}"


@contextlib.contextmanager
def _hidden(into: Path):
    """A folder next to another one, removed at the end. What killed processes left there is removed first."""
    for left in into.parent.glob(f".{into.name}.*.unpacking"):
        with contextlib.suppress(OSError), _held(left):
            shutil.rmtree(left)
    folder = into.with_name(f".{into.name}.{secrets.token_hex(4)}.unpacking")
    folder.mkdir()
    try:
        with _held(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _held(folder: Path):
    """Holds the lock of a folder, which the kernel frees when its holder dies."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def next_steps(told: dict, files: list[Path], into: Path) -> list[str]:
    """The lines to run next."""
    if told["kind"] == "results":
        return [f"ablations unpack {' '.join(shlex.quote(str(path)) for path in files)}"]
    place, lines = shlex.quote(os.path.realpath(into)), []
    if any(name.startswith("wheels/") for name, _, _ in told["files"]):
        lines = [f"python -m pip install --no-index --find-links {place}/wheels --no-deps {place}/wheels/*.whl"]
    lines += [f"export ABLATIONS_CACHE={place}/cache", f"cd {place}/source"]
    return [*lines, f"python -m ablations run {shlex.join(told['run'])} --no-notebook --for 8m"]


def main() -> None:
    """What ``python unpack.py`` does."""
    asked = argparse.ArgumentParser(description="Unpacks what `ablations pack` wrote, and says what to run next.")
    asked.add_argument("files", nargs="+", type=Path, metavar="FILE", help="the pack, or all of its parts")
    asked.add_argument("--into", required=True, type=Path, metavar="DIR", help="a new folder")
    given = asked.parse_args()
    try:
        print("\n".join(next_steps(lay_out(given.files, given.into), given.files, given.into)))
    except (Unfit, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
