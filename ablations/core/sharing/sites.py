"""A place that holds a store: what it has to do, and the folder of this machine as the simplest one."""

import errno
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path

from ablations.core.disk import reading
from ablations.core.disk.publishing import StoreError, publish
from ablations.core.disk.reading import Flawed

# What two stores share. Pages are made from it again, and what lies elsewhere belongs to one machine.
_SHARED = re.compile(
    r"records/([0-9a-f]{2})/\1[0-9a-f]{14}\.(json|heldout)|environments/[0-9a-f]{12}\.json|bars/[0-9a-f]{16}\.[\w.]+\.json"
)
PARTS = ("bars", "environments", "records")  # the folders of these

_HOLDS = re.compile(r"bars|environments|records(/[0-9a-f]{2})?")

Stands = Callable[[bytes], bool]


def always(content: bytes) -> bool:
    """That whatever is there is kept."""
    return True


class Site(ABC):
    """A place that holds a store.

    Attributes:
        address: What people call it.
    """

    address: str

    @abstractmethod
    def files(self) -> dict[str, int]:
        """The files that stores share: name relative to the store -> bytes. Empty if there is no store yet.

        Raises:
            StoreError: If the place cannot be reached or read.
        """

    @abstractmethod
    def read(self, names: Iterable[str]) -> dict[str, bytes | Flawed]:
        """The contents of files, or why one cannot be read; a file that is gone is left out.

        Raises:
            StoreError: If the place cannot be reached.
        """

    @abstractmethod
    def put(self, name: str, content: bytes, stands: Stands = always) -> bool:
        """Creates a file, unless one is there that is kept.

        Returns:
            Whether the file has this content now.

        Raises:
            StoreError: If it cannot be written; what was there is intact.
        """


def shared(name: str) -> bool:
    """Whether stores share a file of this name, relative to the store."""
    return _SHARED.fullmatch(name) is not None


class Folder(Site):
    """A store in a folder that this machine sees."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.address = folder, str(folder)

    def files(self) -> dict[str, int]:
        """See `Site.files`.

        Raises:
            StoreError: Also if a folder of the store is a link: what is copied would be written where it leads.
        """
        folders = [*(self.folder / part for part in PARTS), *self.folder.glob("records/*")]
        for place in folders:
            if place.is_symlink() and _HOLDS.fullmatch(place.relative_to(self.folder).as_posix()):
                message = "is a link where a folder of the store should be. Put the folder itself there."
                raise StoreError(errno.ELOOP, message, str(place))
        found = [
            path for part in PARTS for path in self.folder.glob(f"{part}/*/*" if part == "records" else f"{part}/*")
        ]
        names = {path.relative_to(self.folder).as_posix(): path for path in found}
        return {name: path.lstat().st_size for name, path in sorted(names.items()) if shared(name)}

    def read(self, names: Iterable[str]) -> dict[str, bytes | Flawed]:
        """See `Site.read`."""
        found: dict[str, bytes | Flawed] = {}
        for name in names:
            try:
                found[name] = reading.content(self.folder / name, self.folder)
            except FileNotFoundError:
                continue
            except Flawed as flaw:
                found[name] = flaw
        return found

    def put(self, name: str, content: bytes, stands: Stands = always) -> bool:
        """See `Site.put`; of several writers exactly one wins."""

        def is_kept(path: Path) -> bool:
            try:
                there = reading.content(path, self.folder)
            except FileNotFoundError:
                return False
            except Flawed:
                return True  # whether it may be replaced is for people to say
            return there == content or stands(there)

        return publish(self.folder / name, content, is_kept) or self.read([name]).get(name) == content
