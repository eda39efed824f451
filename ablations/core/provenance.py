"""The provenance of a record: code, machine, packages, times. Stored with the numbers, never part of an identity."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from functools import cache as cached
from importlib import metadata
from pathlib import Path
from typing import Any

import lightning_modules
from ablations.core.disk import environments, locks
from ablations.core.machine import gpus
from ablations.core.store import check_inside, write
from lightning_modules.places import checkout

PACKAGES = (Path(__file__).parents[1], Path(lightning_modules.__file__).parent)  # folders of all our code
TOLD = "ABLATIONS_CODE"  # the variable with the answer of `code`, as JSON
CODE = ("lightning_modules", "ablations", "pyproject.toml")  # results change while a grid runs; they are not code
THEN = " then "  # between the device classes of a run that was resumed on another one: a class of its own


def now() -> str:
    """The current time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def git(*arguments: str) -> str | None:
    """What git says of the checkout; None without git or a checkout, and if it fails."""
    root = checkout()  # an installed package may lie in a repository of something else
    if root is None or shutil.which("git") is None:
        return None
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@cached
def code() -> dict[str, Any]:
    """The commit, and whether tracked or untracked code differs from it; both None without git or a checkout.

    They are as this process finds them first, since it runs the code of that moment. A copy of a launcher's code on
    another machine says what the launcher said of it in ``ABLATIONS_CODE``.
    """
    if checkout() is None and (told := os.environ.get(TOLD)):
        return json.loads(told)
    status = git("--no-optional-locks", "status", "--porcelain", "--", *CODE)
    return {"commit": git("rev-parse", "--verify", "HEAD"), "dirty": None if status is None else bool(status)}


@cached
def fingerprint() -> str:
    """The `digest` of the code that this process runs, whatever its files hold later."""
    return digest()


def digest() -> str:
    """Sixteen hexadecimal digits of the Python code of both packages, as their files are now.

    Grids, tables and texts are no part of it: a run carries its settings and the fingerprints of its texts.
    """
    paths = [(path, path.relative_to(package.parent)) for package in PACKAGES for path in package.rglob("*.py")]
    found = hashlib.sha256()
    for path, name in sorted(paths, key=lambda pair: pair[1]):
        found.update(f"{name.as_posix()}\0".encode() + path.read_bytes())
    return found.hexdigest()[:16]


def device_class(here: bool = True) -> str:
    """``cpu``, or the name of the CUDA device. Runs of different classes are never paired.

    Args:
        here: Whether this process computes and may ask CUDA; a launcher asks ``nvidia-smi``.
    """
    from torch import cuda

    if not here:
        return next(iter(gpus().values()), "cpu")
    return cuda.get_device_name() if cuda.is_available() else "cpu"


@cached
def packages() -> tuple[str, ...]:
    """Name and version of every installed package; cached, because reading them takes longer than a small run."""
    distributions = (package.metadata for package in metadata.distributions())
    return tuple(sorted({f"{about['Name']}=={about['Version']}" for about in distributions if about["Name"]}))


def environment(results: Path) -> str:
    """Writes the list of installed packages to the results folder, once unless it is damaged, and returns its name.

    Returns:
        Twelve hexadecimal digits: ``results/environments/<these>.json``.
    """
    content = json.dumps(
        {"python": platform.python_version(), "platform": platform.platform(terse=True), "packages": packages()},
        indent=1,
    )
    name = environments.digest(content)
    path = results / environments.file(name)
    check_inside(path.parent, results)
    with locks.named(results, "environments"):
        if not environments.is_sound(results, name):
            write(path, content.encode() + b"\n")
    return name


def describe(results: Path, started: str, attempts: int, here: bool = True) -> dict[str, Any]:
    """The provenance in a record.

    Args:
        started: When this attempt began, from `now`.
        here: Whether this process computed the run.
    """
    import torch

    return {
        **code(),
        "code": fingerprint(),
        "device": device_class(here),
        "threads": torch.get_num_threads(),
        environments.ENTRY: environment(results),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lightning": metadata.version("pytorch-lightning"),
        "started": started,
        "finished": now(),
        "attempts": attempts,
    }
