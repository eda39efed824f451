"""What a command says, kept in the cache while nothing that it follows from changes.

Plans and pages follow from files and from the machine. All of it is in the key of what is kept:

* the command with its arguments, and the working directory;
* both packages, Python, and what is installed, by version (`checked.code`);
* all files of grids, scales and checkpoints, by content;
* the results folder with records and pages, by content; weights, by version;
* the weights of its runs in the cache, and every file below ``ABLATIONS_DATA``, by version;
* the processors, GPUs, variables and matplotlib's settings of this machine.

So a page that was edited or deleted is made again, as is one whose record changed. Nothing is kept of what came with a
warning, of what follows from a text or a task that lies elsewhere, or where any of this changed meanwhile. A command
that writes what it reads is therefore kept once it has changed nothing.
"""

import hashlib
import itertools
import json
import os
import platform
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ablations.core import machine
from ablations.core.strict_yaml import state
from ablations.planning import checked, grids, scales
from lightning_modules import cached, checkpoints
from lightning_modules.config import ConfigError
from lightning_modules.files import read, version
from lightning_modules.places import UNPUBLISHED, cache, data_home, noted_elsewhere

_VARIABLES = ("ABLATIONS_", "CUDA_", "HF_", "HOME", "LANG", "LC_", "MATPLOTLIB", "MPL", "PYTHON", "TZ", "XDG_")
_WEIGHTS = ".safetensors"
_MOST_DATA = 20_000  # files of data sets; to look at more takes longer than what is spared


class _Untold(Exception):
    """What a command follows from cannot be determined."""


def said(command: str, request: Mapping[str, Any], results: Path, make: Callable[[], list[str]]) -> list[str]:
    """What a command says: what it said before, if nothing has changed, else what it makes.

    Args:
        request: All its arguments, as JSON takes them.
        make: Computes the pieces of what it says, and may write to the results folder.
    """
    place = hashlib.sha256(json.dumps([command, request, str(results)]).encode()).hexdigest()[:16]
    path = cache() / "shown" / f"{command}-{place}.json"
    key = _key(command, request, results)
    if key and (found := cached.recalled(path, key)) is not None:
        return found
    with _noting_warnings() as warned:
        pieces = make()
    if key and not (warned or noted_elsewhere()) and _key(command, request, results) == key:
        cached.remember(path, key, pieces)
    return pieces


@contextmanager
def _noting_warnings() -> Iterator[list[object]]:
    """Notes the project's warnings, which are shown as usual, each as if it were the first of its kind."""
    noted: list[object] = []
    with warnings.catch_warnings():
        show = warnings.showwarning

        def noting(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
            noted.extend([message] if category.__module__.startswith("ablations.") else [])
            show(message, category, *place, **more)

        warnings.showwarning = noting
        yield noted


def _key(command: str, request: Mapping[str, Any], results: Path) -> str:
    """Identifies all that a command follows from. It is empty if that cannot be determined."""
    try:
        said = [command, request, os.getcwd(), checked.code(), *_machine(), *_questions(request, results)]
        digest = hashlib.sha256(json.dumps(said).encode())
        for entry in itertools.chain(_held(results), _weights(results), _data()):
            digest.update(json.dumps(entry).encode())
    except (_Untold, OSError, ValueError, ConfigError):  # which the command reports, if it matters to it
        return ""
    return digest.hexdigest()


def _machine() -> Iterator[Any]:
    yield platform.node(), platform.machine(), machine.cores(), machine.listed()
    yield sorted((name, value) for name, value in os.environ.items() if name.startswith(_VARIABLES))
    home = Path(os.path.expanduser("~"))
    named = (os.environ.get("MATPLOTLIBRC"), os.environ.get("MPLCONFIGDIR"))  # a file or a folder, and a folder
    usual = (Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config", "matplotlib"), home / ".matplotlib")
    folders = (Path(), *map(Path, filter(None, named)), *usual)
    files = [file for folder in folders for file in (folder, folder / "matplotlibrc") if file.is_file()]
    yield [[str(file), *version(file)] for file in files]


def _questions(request: Mapping[str, Any], results: Path) -> Iterator[Any]:
    """The files of grids and scales: all that have a name, the one that is requested, and those of pages."""
    files = [*grids.available().values(), *scales.available().values()]
    named = str(request.get("grid"))
    asked = [Path(named)] if named.endswith(grids.ENDINGS) else []
    for path in sorted(results.glob(f"*/*/{grids.REQUEST}")):
        try:
            told = json.loads(read(path)).get("grid")
        except (ValueError, AttributeError, RecursionError):
            raise _Untold from None
        asked += [Path(os.path.normpath(results / told))] if str(told).endswith(grids.ENDINGS) else []
    yield [[str(file), state(file)] for file in (*files, *asked, *filter(Path.exists, checkpoints.files()))]
    yield [[name, row.place.is_dir()] for name, row in checkpoints.known().items()]


def _held(folder: Path) -> Iterator[list[Any]]:
    """What a folder holds, by content, weights by version; hidden files are locks, or are being written."""
    for place, folders, files in os.walk(folder, onerror=_fail) if folder.exists() else ():
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield [place, [os.readlink(path) for name in folders if os.path.islink(path := os.path.join(place, name))]]
        for name in sorted(files):
            if not name.startswith("."):
                path = Path(place, name)
                content = version(path) if path.suffix == _WEIGHTS else hashlib.sha256(read(path)).hexdigest()
                yield [str(path), content]


def _fail(error: OSError) -> None:
    raise error


def _weights(results: Path) -> Iterator[list[Any]]:
    """The weights of runs in the cache, without which a run is trained again."""
    for folder in (results, results / UNPUBLISHED):
        for path in sorted(cached.work_home(folder).glob(f"*/*{_WEIGHTS}*")):
            yield [str(path), version(path)]


def _data() -> Iterator[list[Any]]:
    """The files of data sets, behind links too."""
    home, known = data_home(), 0
    for place, folders, files in os.walk(home, onerror=_fail, followlinks=True) if home else ():
        folders.sort()
        known += 1 + len(files)
        if known > _MOST_DATA:  # or a link leads back
            raise _Untold
        yield [place, [[name, version(Path(place, name))] for name in sorted(files)]]
