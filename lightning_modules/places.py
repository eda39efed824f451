"""Folders: where results and the user's own files lie, the cache, the data sets. What is read elsewhere is noted.

A *study* is a folder with ``ablations.toml``: it holds the user's grids, scales, data, notebooks and results, wherever
the package is. Outside of one a checkout holds results and grids. For an installed package, which is read-only, the
working directory does, and the user's cache folder has the cache.
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
STUDY = "ablations.toml"


def study() -> Path | None:
    """The folder of the user's study, the working directory or one above; None outside of a study."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / STUDY).is_file()), None)


def project() -> Path:
    """The folder of the results: the study, the checkout, or else the working directory."""
    return study() or checkout() or Path.cwd()


def own(name: str) -> list[Path]:
    """The user's folder of this name, in the study or the working directory; in a bare checkout its own serve."""
    return [] if project() == checkout() else [project() / name]


def results(named: str | Path | None = None) -> Path:
    """A results folder by name, relative to the working directory; by default ``results`` of `project`."""
    place = os.path.expanduser(named) if named else project() / "results"  # unlike pathlib's, this takes any text
    return readable(os.path.abspath(place), "--results-dir")


def behind(results: Path) -> list[Path]:
    """A results folder and the published ones behind it, whose runs count there too: of unpublished results, and of a
    study those of the checkout.
    """
    below = [results, results.parent] if is_unpublished(results) else [results]
    inside, clone = study(), checkout()
    return [*below, clone / "results"] if inside and clone and below[-1] == inside / "results" else below


def is_unpublished(results: Path) -> bool:
    """Whether a results folder is that of unpublished results, which no index names."""
    return results.name == UNPUBLISHED


def cache() -> Path:
    """The folder of token stores, tokenizers and work folders of runs, all of which can be rebuilt.

    It is ``ABLATIONS_CACHE``, or ``.cache`` in the study or the checkout, or else the user's cache folder.
    """
    named, root = os.environ.get("ABLATIONS_CACHE"), study() or checkout()
    path = named or (root / ".cache" if root else user_cache_path("ablations", appauthor=False))
    return readable(os.path.realpath(os.path.expanduser(path)), "ABLATIONS_CACHE")  # unlike pathlib's, for any text


def data_home() -> Path | None:
    """The folder ``ABLATIONS_DATA`` with data sets in their official formats; None if it is not set."""
    path = os.environ.get("ABLATIONS_DATA")
    return readable(os.path.realpath(os.path.expanduser(path)), "ABLATIONS_DATA") if path else None


def data_homes() -> list[Path]:
    """The folders with data sets: ``data`` of the study, then `data_home`."""
    inside, home = study(), data_home()
    return [*([inside / "data"] if inside else []), *([home] if home else [])]


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
