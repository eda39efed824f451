"""Packs: whole or not at all, equal bytes for equal content, and nothing of a hostile one on the disk."""

import hashlib
import json
import lzma
import os
import platform
import subprocess
import sys
import tarfile
import unicodedata

import pytest

from ablations.core.packs import archive, unpack
from ablations.core.packs.unpack import BLOCK, Unfit, header, padding
from ablations.core.store import Records
from lightning_modules import cached
from lightning_modules.config import ConfigError

FILES = {
    "cache/stores/ids.bin": bytes(range(256)) * 900,
    "runs/0123456789abcdef/last.ckpt": b"weights and moments",
    "source/ablations/__main__.py": b"print('a run')\n",
    "source/empty.txt": b"",
    f"source/{'deep/' * 20}{'n' * 80}.py": b"1\n",
    "wheels/own_package-1.2.3-py3-none-any.whl": b"PK",
}
TOLD = {"kind": "grid", "run": ["masking_ratio", "--scale", "lease"], "needs": {}, "commit": "0" * 40}


@pytest.fixture
def packed(tmp_path):
    """Writes a pack of files and returns its parts."""

    def write(files=FILES, split=None, name="away/pack.tar.xz", **told):
        return archive.write(tmp_path / name, TOLD | told, files, split)

    return write


def tree(folder):
    """Every path below a folder, with the content of files."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def files(folder):
    return {name: content for name, content in tree(folder).items() if content is not None}


def test_a_pack_comes_back_bit_for_bit(packed, tmp_path):
    (path,) = packed()
    told = unpack.lay_out([path], tmp_path / "there")
    results = str((tmp_path / "there").resolve() / "source" / "results")
    work = Records(results).work_folder("0123456789abcdef").relative_to(cached.cache()).as_posix()
    expected = {name.replace("runs/0123456789abcdef", f"cache/{work}"): content for name, content in FILES.items()}
    assert files(tmp_path / "there") == expected
    assert told["run"] == TOLD["run"]
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def test_any_tar_reads_a_pack_and_finds_the_manifest_first(packed):
    with tarfile.open(packed()[0]) as tar:
        names = tar.getnames()
        assert names == ["manifest.json", *sorted(FILES)]
        assert all(tar.extractfile(name).read() == content for name, content in FILES.items())
        listed = json.load(tar.extractfile("manifest.json"))
    assert listed["bytes"] == sum(map(len, FILES.values()))
    assert {name: digest for name, _, digest in listed["files"]} == {
        name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()
    }


def test_equal_content_has_equal_bytes(packed, tmp_path):
    own = {}
    for name, content in reversed(FILES.items()):
        own[name] = tmp_path / name.replace("/", "-")
        own[name].write_bytes(content)
        os.utime(own[name], (1, 1))
        own[name].chmod(0o700)
    (first,), (second,) = packed(), packed(own, name="again/other.tar.xz")
    assert first.read_bytes() == second.read_bytes()


def test_parts_are_no_larger_than_asked_and_come_back_in_any_order(packed, tmp_path):
    parts = packed(FILES | {"cache/noise": os.urandom(9_000)}, split=2_000)
    assert [part.suffix for part in parts] == [f".{number:02d}" for number in range(1, len(parts) + 1)]
    assert len(parts) > 4
    assert max(part.stat().st_size for part in parts) == 2_000
    unpack.lay_out(parts[::-1], tmp_path / "named")
    unpack.lay_out([parts[0].with_suffix("")], tmp_path / "found")  # by the name of the whole
    assert tree(tmp_path / "named" / "source") == tree(tmp_path / "found" / "source")
    for given, said in ((parts[1:], "part 01"), (parts[:2] + parts[3:], "part 03"), (parts[:-1], "further part")):
        with pytest.raises(Unfit, match=said):
            unpack.lay_out(given, tmp_path / "partly")
    assert not (tmp_path / "partly").exists()


def test_parts_of_two_packs_do_not_mix(packed, tmp_path):
    noise = {"cache/noise": os.urandom(9_000)}
    one, two = packed(noise, 2_000), packed({"cache/noise": os.urandom(9_000)}, 2_000, name="b/pack.tar.xz")
    with pytest.raises(Unfit, match=r"damaged|not as it was"):
        unpack.lay_out([one[0], *two[1:]], tmp_path / "there")
    two[1].rename(two[1].with_name("other.02"))
    with pytest.raises(Unfit, match="the parts of one pack"):
        unpack.lay_out([one[0], two[1].with_name("other.02")], tmp_path / "there")


def test_what_is_there_stays(packed, tmp_path):
    (path,) = packed()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="is there already"):
        packed({"cache/other": b"1"})
    with pytest.raises(ConfigError, match="is there already"):
        packed({"cache/other": b"1"}, split=1000)
    assert path.read_bytes() == before
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "unpack.py").write_text("mine")
    with pytest.raises(ConfigError, match=r"unpack\.py is there already"):
        packed(name="own/pack.tar.xz")
    assert tree(tmp_path / "own") == {"unpack.py": b"mine"}
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.txt").write_text("mine")
    with pytest.raises(Unfit, match="is there already"):
        unpack.lay_out([path], tmp_path / "there")
    assert tree(tmp_path / "there") == {"mine.txt": b"mine"}


def test_a_file_that_changes_meanwhile_leaves_no_pack(packed, tmp_path, monkeypatch):
    growing = tmp_path / "growing"
    growing.write_bytes(b"a")
    summed = archive._summed

    def then_grow(source):
        found = summed(source)
        growing.write_bytes(b"ab")
        return found

    monkeypatch.setattr(archive, "_summed", then_grow)
    with pytest.raises(OSError, match="has changed"):
        packed({"cache/growing": growing})
    assert list((tmp_path / "away").iterdir()) == []


def test_killed_in_the_middle_it_is_as_if_never_begun(packed, tmp_path):
    (path,), there = packed(), tmp_path / "there"
    program = f"""
import os, pathlib, sys
sys.path.insert(0, {str(path.parent)!r})
import unpack
unpack.os.rename = lambda *names: os._exit(9)
unpack.lay_out([pathlib.Path({str(path)!r})], pathlib.Path({str(there)!r}))
"""
    assert subprocess.run([sys.executable, "-S", "-c", program]).returncode == 9
    assert not there.exists()
    assert len(list(tmp_path.glob(".there.*"))) == 1
    unpack.lay_out([path], there)
    assert list(tmp_path.glob(".there.*")) == []
    assert (there / "source" / "ablations" / "__main__.py").exists()


def test_the_script_needs_neither_the_package_nor_any_other(packed, tmp_path):
    packed()
    command = [sys.executable, "-S", "-I", "unpack.py", "pack.tar.xz", "--into", str(tmp_path / "a b")]
    done = subprocess.run(command, cwd=tmp_path / "away", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    install, cache, folder, run = done.stdout.splitlines()
    place = f"'{tmp_path / 'a b'}'"
    assert "--no-index" in install
    assert f"{place}/wheels/*.whl" in install
    assert (cache, folder) == (f"export ABLATIONS_CACHE={place}/cache", f"cd {place}/source")
    assert run.startswith("python -m ablations run masking_ratio --scale lease ")
    again = subprocess.run(command, cwd=tmp_path / "away", capture_output=True, text=True)
    assert (again.returncode, again.stdout, len(again.stderr.splitlines())) == (1, "", 1)


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        ({"numpy": ">=2.0,<2.0.1"}, "numpy"),
        ({"torch": ">=99.1"}, "torch"),
        ({"python": "<3.9"}, f"python {platform.python_version()}"),
        ({"no-such-package": ""}, "no-such-package is missing"),
        ({"own_package": ">=1.3"}, "own_package 1.2.3"),  # of the wheel
        ({"python": ">=3.12345"}, "python"),
    ],
)
def test_versions_that_do_not_fit_are_refused_by_name(packed, tmp_path, needs, said):
    (path,) = packed(needs={"python": ">=3.10"} | needs)
    with pytest.raises(Unfit) as refused:
        unpack.lay_out([path], tmp_path / "there")
    (line,) = str(refused.value).splitlines()
    assert line.startswith(said)
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize(
    "needs",
    [
        {"torch": ">=2.0"},
        {"own-package": ">=1.2,<1.3"},
        {"own_package": "==1.2.3"},
        {"python": "!=3.10"},
        {"numpy": ""},
    ],
)
def test_versions_that_fit_are_taken(packed, tmp_path, needs):
    unpack.lay_out(packed(needs=needs), tmp_path / "there")


SMALL = {"cache/a": b"aa", "cache/b": b"bbb"}


def raw(content=SMALL, members=None, tail=bytes(2 * BLOCK), **told):
    """The archive of a pack, not compressed, in which anything may be wrong."""
    listed = [[name, len(held), hashlib.sha256(held).hexdigest()] for name, held in content.items()]
    manifest = {"format": unpack.FORMAT, **TOLD, "files": listed, "bytes": sum(map(len, content.values()))} | told
    first = json.dumps(manifest).encode()
    members = members or [member(name, held) for name, held in content.items()]
    return b"".join([header("manifest.json", len(first)), first, padding(len(first)), *members, tail])


def member(name, content, size=None):
    return header(name, len(content) if size is None else size) + content + padding(len(content))


def special(kind, name="cache/a", **more):
    info = tarfile.TarInfo(name)
    info.type = kind
    for field, value in more.items():
        setattr(info, field, value)
    return info.tobuf(tarfile.GNU_FORMAT)


def named(*names):
    return lambda: lzma.compress(raw(dict.fromkeys(names, b"1")))


def instead(first):
    return lambda: lzma.compress(raw(members=[first, member("cache/b", b"bbb")]))


def told(**changes):
    return lambda: lzma.compress(raw(**changes))


LISTED = ["cache/a", 2, hashlib.sha256(b"aa").hexdigest()]


def hidden_in_padding():
    archived = bytearray(raw())
    archived[archived.index(header("cache/a", 2)) - 1] = 1
    return bytes(archived)


def altered(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


HOSTILE = {
    "absolute": lambda: lzma.compress(raw({"cache/a": b"1"}).replace(b'"cache/a"', b'"/ache/a"')),
    "parent": named("cache/../../outside"),
    "parent at the beginning": lambda: lzma.compress(raw({"cache/a": b"1"}).replace(b'"cache/a"', b'"../he/a"')),
    "dot": named("cache/./a"),
    "empty part": named("cache//a"),
    "another folder": named("etc/passwd"),
    "the folder itself": named("cache"),
    "backslash": named("cache/..\\outside"),
    "drive": named("cache/C:/outside"),
    "reserved": named("cache/AUX.txt"),
    "space at the end": named("cache/a "),
    "dot at the end": named("cache/a./b"),
    "control characters": named("cache/a\x1b[2J"),
    "surrogate": lambda: lzma.compress(raw().replace(b'"cache/a"', b'"\\ud800x"')),
    "right to left": named("cache/a\u202efdp.exe"),
    "case": named("cache/a", "cache/A"),
    "case of folders": named("cache/A/x", "cache/a/y"),
    "case beyond ASCII": named("cache/straße", "cache/STRASSE"),
    "normalisation": named(unicodedata.normalize("NFD", "cache/é")),
    "file and folder": named("cache/a", "cache/a/b"),
    "folder and file": named("cache/a/b", "cache/a"),
    "twice": told(files=[LISTED] * 2, bytes=4, members=[member("cache/a", b"aa")] * 2),
    "link": instead(special(tarfile.SYMTYPE, linkname="/etc/passwd")),
    "hard link": instead(special(tarfile.LNKTYPE, linkname="/etc/passwd")),
    "character device": instead(special(tarfile.CHRTYPE, devmajor=1, devminor=5)),
    "block device": instead(special(tarfile.BLKTYPE)),
    "pipe": instead(special(tarfile.FIFOTYPE)),
    "folder": instead(special(tarfile.DIRTYPE)),
    "sparse": instead(special(tarfile.GNUTYPE_SPARSE, size=2) + b"aa" + padding(2)),
    "extended header": instead(special(tarfile.XHDTYPE, size=20) + b"20 path=/etc/passwd\n" + padding(20)),
    "long name": instead(special(tarfile.GNUTYPE_LONGNAME, size=12) + b"/etc/passwd\0" + padding(12)),
    "executable": instead(special(tarfile.REGTYPE, size=2, mode=0o4755) + b"aa" + padding(2)),
    "unannounced": lambda: lzma.compress(raw(tail=member("cache/c", b"c") + bytes(2 * BLOCK))),
    "missing": lambda: lzma.compress(raw(members=[member("cache/a", b"aa")])),
    "another order": lambda: lzma.compress(raw(members=[member("cache/b", b"bbb"), member("cache/a", b"aa")])),
    "another name": instead(member("cache/z", b"aa")),
    "larger": instead(member("cache/a", b"a" * 3)),
    "smaller": instead(member("cache/a", b"a")),
    "larger than its header": instead(member("cache/a", b"a" * 600, size=2)),
    "another content": instead(member("cache/a", b"ab")),
    "hidden in the padding": instead(header("cache/a", 2) + b"aa" + b"x" * (BLOCK - 2)),
    "hidden in the manifest's padding": lambda: lzma.compress(hidden_in_padding()),
    "bomb": lambda: lzma.compress(raw(tail=bytes(64 << 20))),
    "announces less": told(bytes=4),
    "announces more than a disk": told(files=[["cache/a", 1 << 62, "0" * 64]], bytes=1 << 62),
    "more than eight gigabytes": told(files=[["cache/a", 8**11, "0" * 64]], bytes=8**11),
    "negative": told(files=[["cache/a", -5, "0" * 64]], bytes=-5),
    "another format": told(format=2),
    "no format": told(format=None),
    "another kind": told(kind="anything"),
    "a line to run": told(run=["grid\nrm -rf ~"]),
    "needs that are none": told(needs=["torch"]),
    "no list": told(files="cache/a"),
    "no names": told(files=[[["cache/a"], 2, "0" * 64]], bytes=2),
    "nested": lambda: lzma.compress(member("manifest.json", b"[" * 100_000)),
    "no manifest": lambda: lzma.compress(member("cache/a", b"aa") + bytes(2 * BLOCK)),
    "endless manifest": lambda: lzma.compress(header("manifest.json", 8**10)),
    "no JSON": lambda: lzma.compress(member("manifest.json", b"\xff\xfe")),
    "empty": lambda: b"",
    "no archive": lambda: b"a text",
    "another compression": lambda: lzma.compress(raw(), lzma.FORMAT_ALONE),
    "nothing in it": lambda: lzma.compress(b""),
    "cut short": lambda: lzma.compress(raw())[:-40],
    "cut in the archive": lambda: lzma.compress(raw()[:-BLOCK]),
    "more behind it": lambda: lzma.compress(raw()) + b"more",
    "another stream behind it": lambda: lzma.compress(raw()) + lzma.compress(b"more"),
    "altered": lambda: altered(lzma.compress(raw())),
}


@pytest.mark.parametrize("spoilt", HOSTILE)
def test_a_hostile_pack_writes_nothing(tmp_path, spoilt):
    path = tmp_path / "pack.tar.xz"
    path.write_bytes(HOSTILE[spoilt]())
    before = tree(tmp_path)
    with pytest.raises(Unfit) as refused:
        unpack.lay_out([path], tmp_path / "in" / "there")
    assert len(str(refused.value)) < 600
    assert {name for name in tree(tmp_path) if name != "in"} == {*before}


def test_the_same_pack_without_a_flaw_is_taken(tmp_path):
    (tmp_path / "pack.tar.xz").write_bytes(lzma.compress(raw()))
    unpack.lay_out([tmp_path / "pack.tar.xz"], tmp_path / "there")
    assert files(tmp_path / "there") == SMALL


@pytest.mark.parametrize("kind", ["folder", "pipe", "missing"])
def test_what_is_no_file_is_no_part(packed, tmp_path, kind):
    odd = tmp_path / "odd.tar.xz"
    {"folder": odd.mkdir, "pipe": lambda: os.mkfifo(odd), "missing": lambda: None}[kind]()
    with pytest.raises(Unfit, match="no such file"):
        unpack.lay_out([odd], tmp_path / "there")


@pytest.mark.parametrize("name", ["cache/AUX.txt", f"source/{'n' * 300}", "elsewhere/a"])
def test_what_would_be_refused_is_not_packed(packed, tmp_path, name):
    with pytest.raises(ConfigError):
        packed({name: b"1"})
    assert not (tmp_path / "away").exists() or not list((tmp_path / "away").iterdir())


def test_the_table_counts_files_and_estimates_what_they_take():
    noise, more, rows = os.urandom(300_000), os.urandom(300_000), {}
    for row in archive.table({"cache/noise": noise, "cache/more": more, "source/zeros": bytes(3_000_000)}):
        rows[row.part] = row
    assert (rows["cache"].files, rows["cache"].size, rows["all"].size) == (2, 600_000, 3_600_000)
    assert 550_000 < rows["cache"].packed <= 600_000
    assert rows["source"].packed < 30_000
