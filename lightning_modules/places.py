"""Folders: where results and the user's own files lie, the cache, the data sets. What is read elsewhere is noted.

A checkout holds all of it. An installed package is read-only: there, results and the user's own grids, scales and
notebooks lie in the working directory, and the cache in the user's cache folder.
"""

import functools
import os
import tomllib
from pathlib import Path

from platformdirs import user_cache_path

from lightning_modules.problems import ConfigError, Problem


@functools.cache
def checkout() -> Path | None:
    """The root of the checkout that this code lies in; None if it was installed, from a wheel for example."""
    root = Path(__file__).resolve().parent.parent
    try:
        described = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    # other projects leave a pyproject.toml in site-packages
    return root if described.get("project", {}).get("name") == "ablations" else None


UNPUBLISHED = "unpublished"  # below the results: what trials and grids of one's own leave


def project() -> Path:
    """The folder of the results: the checkout, or the working directory if there is none."""
    return checkout() or Path.cwd()


def own(name: str) -> list[Path]:
    """The user's folder of this name in the working directory; in a checkout none, for its own folders serve."""
    return [] if checkout() else [Path.cwd() / name]


def results(named: str | Path | None = None) -> Path:
    """A results folder by name, relative to the working directory; by default ``results`` of `project`."""
    place = os.path.expanduser(named) if named else project() / "results"  # unlike pathlib's, this takes any text
    return readable(os.path.abspath(place), "--results-dir")


def behind(results: Path) -> list[Path]:
    """A results folder and, if it is that of unpublished results, the published ones, whose runs count there too."""
    return [results, results.parent] if is_unpublished(results) else [results]


def is_unpublished(results: Path) -> bool:
    """Whether a results folder is that of unpublished results, which no index names."""
    return results.name == UNPUBLISHED


def cache() -> Path:
    """The folder of token stores, tokenizers and work folders of runs, all of which can be rebuilt.

    It is ``ABLATIONS_CACHE``, or ``.cache`` in the checkout, or the user's cache folder if there is no checkout.
    """
    named, root = os.environ.get("ABLATIONS_CACHE"), checkout()
    path = named or (root / ".cache" if root else user_cache_path("ablations", appauthor=False))
    return readable(os.path.realpath(os.path.expanduser(path)), "ABLATIONS_CACHE")  # unlike pathlib's, for any text


def data_home() -> Path | None:
    """The folder ``ABLATIONS_DATA`` with data sets in their official formats; None if it is not set."""
    path = os.environ.get("ABLATIONS_DATA")
    return readable(os.path.realpath(os.path.expanduser(path)), "ABLATIONS_DATA") if path else None


def readable(path: str, source: str) -> Path:
    """A path whose name is text in UTF-8, as digests, pages and JSON need it.

    Args:
        source: The variable or the option that names it.

    Raises:
        ConfigError: If it is none.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode(errors="backslashreplace")
        message = f"the name '{shown}' has bytes that are no UTF-8. Rename the folder or name another one."
        raise ConfigError([Problem(source, message)]) from None
    return Path(path)


def unusable_data_home() -> str:
    """Why no data set is found in ``ABLATIONS_DATA``; empty if it names a folder."""
    home = data_home()
    if home is None:
        return "ABLATIONS_DATA is not set"
    return "" if home.is_dir() else f"ABLATIONS_DATA names {home}, which is no folder"


_elsewhere: set[str] = set()


def note_elsewhere(name: str) -> None:
    """Notes that what this process computes follows from something that lies in none of these folders.

    Args:
        name: A corpus, a task, or a data set of the hub.
    """
    _elsewhere.add(name)


def noted_elsewhere() -> frozenset[str]:
    """All that `note_elsewhere` has noted in this process."""
    return frozenset(_elsewhere)
