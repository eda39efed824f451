"""What goes into a pack: for a grid that another machine runs, and for the results that come home from there."""

import platform
import re
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from ablations.core import provenance
from ablations.core.disk import bars, heldout, kept_weights
from ablations.core.packs.archive import Source
from ablations.core.sharing.sites import Folder
from ablations.core.sharing.sync import companions
from ablations.core.store import Records
from ablations.planning import grids, scale_files
from ablations.planning.plan import Plan
from lightning_modules import cached
from lightning_modules.config import ConfigError, Problem
from lightning_modules.files import read, read_text
from lightning_modules.places import cache, checkout, own
from lightning_modules.training.recorder import CHECKPOINT
from lightning_modules.training.weights import WEIGHTS

_PICTURES = (".gif", ".jpg", ".jpeg", ".png", ".svg")
# What trains no run of a pack: its text is prepared, and its notebook waits until the results are home.
_SPARED = {"gensim", "ipykernel", "ipython", "nbclient", "papermill", "sentencex"}
_SUMS = ("", ".sha256")  # endings of a file of the cache, and of its digest


@dataclass(frozen=True)
class Packed:
    """The content of a pack.

    Attributes:
        told: What its manifest says apart from the list of files.
        files: Name in the pack -> where the content is.
    """

    told: dict[str, Any]
    files: dict[str, Source]


def of_grid(
    plan: Plan,
    records: Records,
    prepare: Callable[[], Iterable[Path]],
    request: Sequence[str],
    wheels: Path | None = None,
) -> Packed:
    """All that a machine without corpora and network needs to make the runs of a plan.

    Args:
        plan: The plan.
        records: The store that it was made with.
        prepare: Makes the files of the cache that its runs read and names them; called once nothing else is wrong.
        request: The request to `ablations run`: the grid, the scale and what is overridden.
        wheels: A folder with wheels that the machine lacks.

    Raises:
        ConfigError: If the code differs from its commit; for a folder without wheels.
    """
    (source, commit), needs = _source(), _needs(wheels)
    place = _put(source, grids.locate(request[0]))
    named = place if request[0].endswith(grids.ENDINGS) else request[0]
    if plan.scale in scale_files.available():
        _put(source, scale_files.available()[plan.scale])
    files: dict[str, Source] = {f"cache/{path.relative_to(cache()).as_posix()}": path for path in prepare()}
    if (tag := cache() / cached.TAG).is_file():
        files[f"cache/{cached.TAG}"] = tag
    files |= {f"source/{name}": content for name, content in source.items()}
    files |= {f"source/results/{name}": path for name, path in _known(plan, records).items()}
    files |= _work(plan, records)
    files |= {f"wheels/{path.name}": path for path in _wheels(wheels)}
    versions = {name: metadata.version(name) for name in ("torch", "numpy")} | {"python": platform.python_version()}
    told = {"kind": "grid", "grid": plan.grid.name, "scale": plan.scale, "run": [named, *request[1:]]}
    return Packed({**told, "needs": needs, "made_with": versions, "commit": commit}, files)


def of_results(records: Records) -> Packed:
    """The records of a store with all that belongs to them, and checkpoints of runs without a final record."""
    names = [*Folder(records.folder).files(), heldout.LIST]
    kept = (records.folder / kept_weights.FOLDER).glob("*/*")
    names += [path.relative_to(records.folder).as_posix() for path in kept if path.name in _of_weights()]
    files: dict[str, Source] = {f"results/{name}": path for name in names if (path := records.folder / name).is_file()}
    found = {path.name: records.get(path.name) for path in records.work_folders()}
    unfinished = (run_id for run_id, record in found.items() if record is None or not record.final)
    told = {"kind": "results", "run": [], "needs": {}, "commit": provenance.code()["commit"]}
    return Packed(told, {**files, **_checkpoints(records, unfinished)})


def _known(plan: Plan, records: Records) -> dict[str, Path]:
    """What the results folder has of a plan's runs and of those that they start from."""
    folders = [part.folder for part in records.parts]
    names = {f"{bars.FOLDER}/{path.name}" for folder in folders for path in (folder / bars.FOLDER).glob("*.json")}
    family = {run.id: run for one in (*plan.runs, *plan.awaited) for run in one.lineage}
    for record in filter(None, map(records.get, family)):
        names |= {records.path(record.id).relative_to(records.folder).as_posix(), *companions(record), heldout.LIST}
    for run_id in family:
        names |= {f"{kept_weights.FOLDER}/{run_id}/{name}" for name in _of_weights()}
    found = {name: folder / name for folder in reversed(folders) for name in names if (folder / name).is_file()}
    return dict(sorted(found.items()))


def _work(plan: Plan, records: Records) -> dict[str, Source]:
    """What work folders in the cache have: weights that pending runs start from, and checkpoints of these runs."""
    behind = {run.id for one in (*plan.pending, *plan.awaited) for run in one.lineage[1:]}
    own = {run_id: records.work_folder(run_id) / WEIGHTS for run_id in sorted(behind)}
    sound = {run_id: path for run_id, path in own.items() if records.weights(run_id) == path}
    files = {
        f"runs/{run_id}/{WEIGHTS}{end}": path.with_name(WEIGHTS + end)
        for run_id, path in sound.items()
        for end in _SUMS
    }
    return {**files, **_checkpoints(records, {run.id for run in plan.pending} | behind)}


def _of_weights() -> list[str]:
    return [f"{name}{end}" for name in (kept_weights.WEIGHTS, kept_weights.TOKENIZER) for end in _SUMS]


def _checkpoints(records: Records, run_ids: Iterable[str]) -> dict[str, Source]:
    paths = {run_id: records.work_folder(run_id) / CHECKPOINT for run_id in run_ids}
    return {f"runs/{run_id}/{CHECKPOINT}": path for run_id, path in paths.items() if path.is_file()}


def _source() -> tuple[dict[str, Source], str | None]:
    """The files of the source tree, by name, and their commit: of the checkout at its commit, or of the package.

    Raises:
        ConfigError: If tracked code differs from the commit.
    """
    root, files = checkout(), dict[str, Source]()
    if root is None or (commit := provenance.git("rev-parse", "--verify", "HEAD")) is None:
        commit = provenance.archived().get("node")
        files |= _package()
    else:
        changed = provenance.git("--no-optional-locks", "status", "--porcelain", "-uno", "--", *provenance.CODE)
        if changed:
            text = f"differs from its commit: {', '.join(line[2:].strip() for line in changed.splitlines()[:3])}"
            raise ConfigError(
                [Problem(str(root), f"{text}. Commit it first, so that records name the code they have.")]
            )
        files |= _at(commit)
    if commit:
        code = provenance.fingerprint_of({name: _read(content) for name, content in files.items() if _is_code(name)})
        files[provenance.ARCHIVED] = f"node: {commit}\ncode: {code}\n".encode()
    return files, commit


def _at(commit: str) -> dict[str, Source]:
    """The tracked files of a commit but results and the pictures of documents."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "source.tar"
        if provenance.git("archive", "--format=tar", f"--output={copy}", commit) is None:
            raise ConfigError([Problem(str(checkout()), "git cannot archive its commit. See `git fsck`.")])
        with tarfile.open(copy) as tree:
            found = {member.name: tree.extractfile(member) for member in tree if member.isreg()}
            return {name: file.read() for name, file in found.items() if file and _is_source(name)}


def _read(content: Source) -> bytes:
    return content if isinstance(content, bytes) else read(content)


def _is_code(name: str) -> bool:
    return name.endswith(".py") and name.split("/")[0] in {package.name for package in provenance.PACKAGES}


def _is_source(name: str) -> bool:
    return not name.startswith("results/") and not (name.startswith("docs/") and name.endswith(_PICTURES))


def _package() -> Iterator[tuple[str, Path]]:
    """The files of both packages as they are installed, and where there is one, what describes the project."""
    for package in provenance.PACKAGES:
        for path in sorted(package.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(package.parent).as_posix(), path
    if root := checkout():
        yield "pyproject.toml", root / "pyproject.toml"
        for path in sorted((root / "notebooks").glob("*.ipynb")):
            yield f"notebooks/{path.name}", path


def _put(source: dict[str, Source], file: Path) -> str:
    """Adds the file of a grid or a scale that is not part of a source tree; returns its place there."""
    package, file = provenance.PACKAGES[0], file.resolve()
    if file.is_relative_to(package):
        place = file.relative_to(package.parent).as_posix()
    else:
        is_own = any(file.parent == folder.resolve() for name in ("grids", "scales") for folder in own(name))
        place = f"{file.parent.name}/{file.name}" if is_own else file.name
    source.setdefault(place, file)
    return place


def _wheels(folder: Path | None) -> list[Path]:
    """The wheels in a folder, if one is named.

    Raises:
        ConfigError: If it holds none.
    """
    found = sorted(folder.glob("*.whl")) if folder else []
    if folder and not found:
        raise ConfigError([Problem("--wheels", f"{folder} holds no wheels (*.whl). `pip download -d DIR` gets some.")])
    return found


def _needs(wheels: Path | None) -> dict[str, str]:
    """Package -> the versions that the project allows, of what a prepared run imports; and those of Python."""
    needs = {name: limits for name, limits in map(_requirement, _requirements()) if name not in _SPARED}
    pythons = [needs["python"]] if "python" in needs else []
    for path in _wheels(wheels):
        tags = re.findall(r"cp3(\d+)", path.stem.split("-")[-3])
        minors = sorted(map(int, tags))
        if minors:
            most = [] if path.stem.split("-")[-2] == "abi3" else [f"<3.{minors[-1] + 1}"]
            pythons += [f">=3.{minors[0]}", *most]
    return needs | {"python": ",".join(dict.fromkeys(pythons))}


def _requirements() -> list[str]:
    """What the project depends on, without extras, as pip writes it."""
    if root := checkout():
        project = tomllib.loads(read_text(root / "pyproject.toml"))["project"]
        return [f"python{project['requires-python']}", *project["dependencies"]]
    described = metadata.metadata("ablations")
    listed = [text for text in metadata.requires("ablations") or [] if "extra ==" not in text]
    return [f"python{described['Requires-Python']}", *listed]


def _requirement(text: str) -> tuple[str, str]:
    name = re.split(r"[^\w.-]", text, maxsplit=1)[0]
    limits = re.findall(r"(?:[<>=!]=|[<>])\s*[\w.]+", text.partition(";")[0])
    return name, ",".join(limits)
