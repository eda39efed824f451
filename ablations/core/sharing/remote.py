"""A store at an address, by fsspec: ``s3://bucket/folder``, ``ssh://host/folder`` and whatever else has a driver.

What a driver promises differs, and not all of it is documented. Found in the drivers' code and held by tests:

* s3fs creates a file only where there is none (``If-None-Match``); servers that do not know that overwrite. So do
  drivers that ignore ``mode="create"``. A trial at the first writing finds out, and such a place is only read.
* sshfs ignores ``mode="create"``, and its ``mv`` overwrites. There a file is written under another name, read back,
  and linked to its place by the other machine, which fails where there is one.
* sshfs checks no host key unless an option says so. fsspec's own driver for ssh never does.
* ``find`` takes an error for an empty folder, ``ls`` does not; s3fs makes missing buckets in ``makedirs``.
* No limit on time covers connecting, retries and answers together. Every question has one here.
"""

import errno
import os
import posixpath
import re
import secrets
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ablations.core.disk.publishing import StoreError
from ablations.core.disk.reading import Flawed
from ablations.core.sharing.sites import PARTS, Folder, Site, Stands, always, shared
from lightning_modules.config import ConfigError, Problem, did_you_mean

_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "ssh": "sshfs", "sftp": "sshfs", "gs": "gcsfs", "gcs": "gcsfs"}
_PACKAGES |= {"abfs": "adlfs", "az": "adlfs"}
_OVER_SSH = ("ssh", "sftp")
_OBJECTS = frozenset(_PACKAGES) - {*_OVER_SSH}  # stores of objects: no folders, and a file appears whole
_CHECKED = ("s3", "s3a")  # the server compares what arrives with the sender's checksum before it publishes
_AT_ONCE = 32  # files requested together, within one limit on time
_TRIES = 3
_MAY = "Ask its owner for permission, or give other credentials."


class Remote(Site):
    """A store at an address of fsspec.

    Args:
        url: The address.
        seconds: How long to wait for each answer.

    Raises:
        ConfigError: If the address cannot be understood, or a package is missing.
        StoreError: If nobody answers.
    """

    def __init__(self, url: str, seconds: float) -> None:
        self.address, self.seconds = re.sub(r"(?<=://)([^@/:]*):[^@/]*@", r"\1:***@", url), seconds
        self.protocol = url.partition("://")[0]
        self.fs, root = self._ask("open it", lambda: _opened(url, self.protocol, seconds))
        self.root = root.rstrip("/")
        self._is_tried = False

    def files(self) -> dict[str, int]:
        """See `Site.files`."""

        def found() -> dict[str, int]:
            try:
                self.fs.ls(self.root, detail=False)  # raises what `find` swallows
                parts = [self.fs.find(f"{self.root}/{part}", detail=True) for part in PARTS]
            except FileNotFoundError:
                return {}
            return {path[len(self.root) + 1 :]: about["size"] or 0 for part in parts for path, about in part.items()}

        return {name: size for name, size in sorted(self._ask("list it", found).items()) if shared(name)}

    def read(self, names: Iterable[str]) -> dict[str, bytes | Flawed]:
        """See `Site.read`."""
        paths = {self._path(name): name for name in names}
        contents: dict[str, bytes | Flawed] = {}
        for batch in _batches(list(paths)):
            found = self._ask("read it", lambda batch=batch: self.fs.cat(batch, on_error="return"))
            for path, content in found.items():
                if isinstance(content, bytes):
                    contents[paths[path]] = content
                elif not isinstance(content, FileNotFoundError):
                    contents[paths[path]] = Flawed("unreadable", f"cannot be read: {content}. Mend its permissions.")
        return contents

    def put(self, name: str, content: bytes, stands: Stands = always) -> bool:
        """See `Site.put`.

        Creating is atomic as far as the driver's is. Replacing an attempt is not: between looking and writing another
        site may publish; what it published is then still in that site's own store, and its next sync names a conflict.
        """
        path = self._path(name)
        if not self._is_tried:
            self._try()
        for _ in range(_TRIES):
            created = self._create(path, content)
            if created and self.protocol in _CHECKED:
                return True
            there = self.read([name]).get(name)
            if there == content:
                return True
            if created:
                self._ask("remove a file", lambda: self.fs.rm_file(path))
                raise StoreError(errno.EIO, f"{name} came with other bytes and was removed. Try again.", self.address)
            if isinstance(there, Flawed) or (there is not None and stands(there)):
                return False
            if there is not None:
                self._ask("replace a file", lambda: self.fs.rm_file(path))
        raise StoreError(errno.EBUSY, f"{name} is changed by others all the time. Try again later.", self.address)

    def _try(self) -> None:
        """Finds out whether the place creates files only where there is none.

        Raises:
            StoreError: If it overwrites what is there.
        """
        path = self._path(f"records/.trial-{secrets.token_hex(8)}")
        first, again = self._create(path, b"1"), self._create(path, b"2")
        self._ask("remove a file", lambda: self.fs.rm_file(path))
        if not first or again:
            message = "it overwrites files that it must not, so records could be lost."
            raise StoreError(
                errno.ENOTSUP, f"{message} Read it with --pull-only, and write to another server.", self.address
            )
        self._is_tried = True

    def _create(self, path: str, content: bytes) -> bool:
        """Whether this call created the file; False if there is one."""

        def create() -> bool:
            if self.protocol not in _OBJECTS:
                self.fs.makedirs(posixpath.dirname(path), exist_ok=True)
            try:
                self.fs.pipe_file(path, content, mode="create")
            except FileExistsError:
                return False
            except OSError:
                if self.fs.exists(path):  # drivers name the refusal in many ways
                    return False
                raise
            return True

        return self._ask("write to it", create)

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def _ask(self, what: str, call: Callable[[], Any]) -> Any:
        """The answer of the place, within the limit on time; every error names the address."""
        answers: list[Any] = []

        def work() -> None:
            try:
                answers.append((call(), None))
            except Exception as error:
                answers.append((None, error))

        asking = threading.Thread(target=work, name=f"ask {self.address}", daemon=True)  # it may hang for ever
        asking.start()
        asking.join(self.seconds)
        if not answers:
            message = f"no answer within {self.seconds:g} s. Check address and network, or raise --timeout."
            raise StoreError(errno.ETIMEDOUT, message, self.address)
        answer, error = answers[0]
        if error is None:
            return answer
        if isinstance(error, (ConfigError, StoreError)):
            raise error
        raise _failed(error, what, self.address) from error


class OverSsh(Remote):
    """A store on another machine, which links files to their places itself."""

    def _create(self, path: str, content: bytes) -> bool:
        own = posixpath.join(posixpath.dirname(path), f".{posixpath.basename(path)}.{secrets.token_hex(4)}.tmp")

        def create() -> bool:
            try:
                self.fs.pipe_file(own, content)
                if self.fs.cat_file(own) != content:
                    raise OSError(errno.EIO, "what arrived has other bytes")
                done = self.fs.execute(f"ln -- {shlex.quote(own)} {shlex.quote(path)}", check=False)
                if done.exit_status and not self.fs.exists(path):
                    raise OSError(errno.EIO, str(done.stderr).strip() or "the other machine cannot link files")
                return not done.exit_status
            finally:
                self.fs.rm_file(own)

        return self._ask("write to it", create)


def site(url: str, seconds: float) -> Site:
    """The store at an address: a folder of this machine, or a `Remote`.

    Raises:
        ConfigError: Also for a folder in a place that is not there, such as a disk that is not mounted.
    """
    protocol, separator, rest = url.partition("://")
    if separator and protocol != "file":
        if any(letter in url for letter in "*?["):
            raise ConfigError([Problem("URL", f"{url} holds one of * ? [, which are patterns to drivers. Rename it.")])
        return (OverSsh if protocol in _OVER_SSH else Remote)(url, seconds)
    folder = Path(os.path.abspath(os.path.expanduser(rest if separator else url)))
    if not folder.parent.is_dir():
        raise ConfigError([Problem("URL", f"there is no folder {folder.parent} for the store {folder.name}. Make it.")])
    return Folder(folder)


def _batches(paths: list[str]) -> Iterator[list[str]]:
    return (paths[first : first + _AT_ONCE] for first in range(0, len(paths), _AT_ONCE))


def _opened(url: str, protocol: str, seconds: float) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    import fsspec
    from fsspec.core import url_to_fs

    package = _PACKAGES.get(protocol, "")
    try:
        kind = fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        needed = f"`pip install {package}`" if package else str(error)
        raise ConfigError([Problem("URL", f"'{protocol}://' needs a package that is missing: {needed}")]) from None
    except ValueError:
        near = did_you_mean(protocol, {*_PACKAGES, *fsspec.available_protocols()})
        raise ConfigError([Problem("URL", f"there is no protocol '{protocol}'.{near}")]) from None
    options: dict[str, Any] = {"skip_instance_cache": True}
    if package == "sshfs":
        if not kind.__module__.startswith("sshfs"):
            message = f"'{protocol}://' needs `pip install sshfs`: the driver that is installed checks no host keys"
            raise ConfigError([Problem("URL", message)])
        options |= {"known_hosts": (), "timeout": seconds}  # () is asyncssh's own default: the user's known hosts
    if package == "s3fs":
        waits = {"connect_timeout": seconds, "read_timeout": seconds, "retries": {"max_attempts": 2}}
        options |= {"use_listings_cache": False, "config_kwargs": waits}
        options["max_concurrency"] = 1  # of parts of a file; with more it asks for the size of each file first
    return url_to_fs(url, **options)


def _failed(error: Exception, what: str, address: str) -> StoreError:
    said = " ".join((str(error) or type(error).__name__).split())
    if isinstance(error, PermissionError):
        return StoreError(errno.EACCES, f"no permission to {what} ({said}). {_MAY}", address)
    if isinstance(error, FileNotFoundError):
        return StoreError(errno.ENOENT, f"could not {what}: there is no such place ({said}). Make it first.", address)
    code = error.errno if isinstance(error, OSError) and error.errno else errno.EIO
    advice = "Check address, network and credentials, and try again."
    return StoreError(code, f"could not {what} ({type(error).__name__}: {said}). {advice}", address)
