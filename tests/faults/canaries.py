"""Calls every command in a home full of somebody's files, as the user of the test, and as an ordinary one if that is
root; all in one process, in which everything is imported already.

The home and what else is not named to the commands must stay as it is: names, kinds, contents, modes, times.
"""

import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
import traceback
from collections.abc import Iterator
from multiprocessing import util
from pathlib import Path

from tests.depth import NIGHTLY
from tests.forking import without_exec

NOBODY = 65534  # user and group of the ordinary user
NAMED = ("given/cache", "given/results", "given/other", "given/out", "given/temporary", "home/project/grids")
# Below, words in capitals stand for paths of a world; UNWRITABLE is one that its user cannot write.
RUN_IT = ["run", "GRID", "--scale", "smoke", "--no-notebook", "--executor", "inline"]
COMMANDS = {  # command -> its calls
    "run": [RUN_IT, [*RUN_IT[:-1], "local"], [*RUN_IT, "--results-dir", "UNWRITABLE/new"]],
    "plan": [["plan", "GRID", "--scale", "smoke"]],
    "list": [["list"]],
    "check": [["check", "masking_ratio"], ["check", "UNWRITABLE/grid.yaml"]],
    "tables": [["tables"]],
    "verify": [["verify"], ["verify", "--results-dir", "UNWRITABLE"]],
    "show": [["show", "RUN"], ["show", "GRID", "--scale", "smoke"], ["show", "RUN", "--results-dir", "UNWRITABLE"]],
    "logs": [["logs", "RUN"]],
    "systems": [["systems"]],
    "diff": [["diff", "roberta_base", "roberta_large"]],
    "init": [["init", "OUT/study"], ["init", "UNWRITABLE/study"]],
    "new": [["new", "depths", "--axis", "model.num_layers=1,2"]],
    "claims": [["claims"]],
    "export": [["export", "RUN", "OUT/exported"], ["export", "RUN", "UNWRITABLE/exported"]],
    "finetune": [
        ["finetune", "--from", "OUT/exported", "--task", "rte", "--output", "OUT/evaluated"],
        ["finetune", "--from", "OUT/exported", "--task", "rte", "--output", "UNWRITABLE/evaluated"],
    ],
    "figures": [
        ["figures", "GRID", "--scale", "smoke", "--to", "OUT/pictures"],
        ["figures", "GRID", "--scale", "smoke", "--to", "UNWRITABLE/pictures"],
    ],
    "ask": [["ask", "RUN", "The [MASK] sees."], ["ask", "RUN", "--score", "--file", "lecture"]],
    "evaluate": [["evaluate", "RUN", "--task", "lambada"]],
    "published": [["published", "albert.t4"]],
    "params": [["params", "roberta_base"]],
    "benchmark inference": [["benchmark", "inference", "GRID", "--scale", "smoke", "--device", "cpu"]],
    "knobs": [["knobs", "alibi"]],
    "compare": [["compare", "GRID", "--scale", "smoke", "--equal", "tokens"]],
    "sync": [
        ["sync", "RESULTS", "--results-dir", "OTHER"],
        ["sync", "RESULTS", "--results-dir", "UNWRITABLE/store"],
        ["sync", "UNWRITABLE"],
    ],
    "keep": [["keep", "RUN"]],
    "status": [["status"]],
    "stop": [["stop"]],
    "data": [["data"]],
    "data add": [["data", "add", "RESULTS/reviews.csv"]],
    "data add-checkpoint": [["data", "add-checkpoint", "RESULTS"]],
    "data formats": [["data", "formats", "--scale", "unknown"]],
    "data verify": [["data", "verify", "rte"]],
    "tokenizer stats": [["tokenizer", "stats", "GRID", "--scale", "smoke"]],
    "campaign": [["campaign", "--file", "QUEUE"], ["campaign", "--file", "UNWRITABLE/grid.yaml"]],
    "campaign run": [
        ["campaign", "run", "--file", "QUEUE"],
        ["campaign", "run", "--file", "QUEUE", "--results-dir", "UNWRITABLE/new"],
    ],
    "clean": [["clean"], ["clean", "--all"]],
}
HOME_AS_CACHE = [  # with the home itself as ABLATIONS_CACHE
    ["clean"], ["clean", "--all", "--yes"], RUN_IT, ["plan", "GRID", "--scale", "smoke"],
    ["sync", "RESULTS", "--results-dir", "OTHER"], ["tokenizer", "stats", "GRID", "--scale", "smoke"], ["keep", "RUN"],
]  # fmt: skip


def build(world: Path) -> None:
    """Somebody's home, with names that the cache and the store use too, and the folders that commands are given."""
    from ablations.planning import grids
    from tests import tiny

    own = ("home/.ssh", "home/.hidden", "home/project/results", "unwritable/records/ab")
    for folder in (*NAMED, "given/data", "given/grids", *own):
        (world / folder).mkdir(parents=True)
    home = world / "home"
    for name in (
        "notes.txt", ".profile", ".ssh/id", ".hidden/kept", "runs/Nov26_21-23-37_host/events", "stores/index.json",
        "stores/0123456789abcdef01234567/meta.json", "runs/0123abcd/0123456789abcdef/last.ckpt", "tokenizers/mine.json",
        "records/ab/0123456789abcdef.json", "project/results/mine.csv", "project/run.json", "project/mine.yaml",
    ):  # fmt: skip
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"kept: {name}")
    (home / ".ssh/id").chmod(0o400)
    (home / ".hidden").chmod(0o500)
    (home / "to the cache").symlink_to(world / "given/cache")
    (home / "to nothing").symlink_to("nothing")
    cache = world / "given/cache"
    (cache / "features").symlink_to(home / "stores")
    (cache / "pieces").mkdir()
    (cache / "pieces/0123456789abcdef01234567.npz").symlink_to(home / "notes.txt")
    (cache / "stores").mkdir()
    (cache / "stores/0123456789abcdef01234567").symlink_to(home / "runs")
    (cache / "CACHEDIR.TAG").symlink_to(home / "notes.txt")
    (world / "given/out/evaluated").symlink_to(home)
    grid = tiny.grid(world / "given/data", rates="[0.15]", steps=2, seeds=1)
    (world / "given/data/queue.yaml").write_text(f"rows:\n  - {{grid: {grid}, scale: smoke, reason: none}}\n")
    for name in ("masking_ratio", "sentence_objective", "zero_shot"):
        shutil.copy(grids.FOLDER / f"{name}.yaml", world / "given/grids")
    (world / "unwritable/grid.yaml").write_text("question: none")
    (world / "unwritable/grid.yaml").chmod(0)
    (world / "unwritable/records/ab/ab00000000000000.json").write_text("{}")
    (world / "unwritable/records/ab").chmod(0)


def snapshot(folder: Path) -> dict[str, list]:
    """Every path but what lies in the named folders -> kind and mode, size, time, content."""
    found = {}
    for place, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(place, name)
            state = path.lstat()
            content = ""
            if path.is_symlink():
                content = os.readlink(path)
            elif stat.S_ISREG(state.st_mode) and os.access(path, os.R_OK):
                content = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(folder))] = [oct(state.st_mode), state.st_size, state.st_mtime_ns, content]
            if path.relative_to(folder).as_posix().partition("/")[2] in NAMED:  # after the name of the world
                del found[str(path.relative_to(folder))]
                if name in folders:
                    folders.remove(name)
    return found


def called(world: Path, unwritable: str) -> Iterator[dict]:
    """What each call came to."""
    from typer.testing import CliRunner

    from ablations.commands.cli import app
    from ablations.core.store import Records
    from ablations.planning import grids
    from lightning_modules import places

    places.checkout = lambda: None  # as where the package is installed: nothing of the user's lies in it
    if not NIGHTLY:
        grids.FOLDER = world / "given/grids"  # of a few; which of them there are moves no file
    os.chdir(world / "home/project")
    given, results = world / "given", Records(world / "given/results")
    os.environ |= {
        "HOME": str(world / "home"), "TMPDIR": str(given / "temporary"), "ABLATIONS_CACHE": str(given / "cache"),
        "ABLATIONS_DATA": str(given / "data"),
    }  # fmt: skip
    tempfile.tempdir = None
    paths = {"GRID": str(given / "data/tiny.yaml"), "OUT": str(given / "out"), "OTHER": str(given / "other")}
    paths |= {"RESULTS": str(results.folder)}
    paths |= {"UNWRITABLE": unwritable, "QUEUE": str(given / "data/queue.yaml")}

    def call(words: list[str]) -> dict:
        run = next((path.stem for path in results.files()), "0")
        options = ["--results-dir", str(results.folder)] if "--results-dir" not in words and takes(words) else []
        filled = ["/".join(({**paths, "RUN": run}).get(part, part) for part in word.split("/")) for word in words]
        done = CliRunner().invoke(app, filled + options)
        failed = done.exception is not None and not isinstance(done.exception, SystemExit)
        told = "".join(traceback.format_exception(done.exception)) if failed else done.output
        return {"words": words, "code": done.exit_code, "failed": failed, "output": told, "path": unwritable}

    def takes(words: list[str]) -> bool:
        import typer

        command = typer.main.get_command(app)
        for word in words:
            command = getattr(command, "commands", {}).get(word, command)
        return any("--results-dir" in parameter.opts for parameter in command.params)

    # The cache has the mark of nobody, which is a link into the home, as have its parts.
    yield call(RUN_IT) | {"refused": True}
    for name in ("CACHEDIR.TAG", "features", "pieces", "stores"):
        os.rename(given / "cache" / name, given / "temporary" / name)
    yield call(RUN_IT)
    for name in ("features", "pieces", "stores/0123456789abcdef01234567"):
        os.rename(given / "temporary" / name, given / "cache" / name)
    work = results.work_folder(results.files()[0].stem)
    for name, rows in COMMANDS.items():
        if name == "clean":
            with results.lock(work.name):
                yield call(["clean", "--all"]) | {"kept": (work / "weights.safetensors").exists()}
        for words in rows:
            yield call(words)
    yield call(RUN_IT)
    os.environ["ABLATIONS_CACHE"] = str(world / "home")
    for words in HOME_AS_CACHE:
        yield call(words) | {"refused": words[0] in ("run", "plan") or "--all" in words}


def as_ordinary_user(world: Path, report: Path) -> None:
    """Calls everything in a fork of this process that gave up its rights; writes what came of it.

    Nothing is written where that user may not read this checkout.
    """
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            if not os.access(__file__, os.R_OK):
                os._exit(0)
            report.write_text(json.dumps(list(called(world, str(world / "unwritable")))))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if status:
        sys.exit(1)


def own(folder: Path, user: int) -> None:
    """Gives all of a folder to a user, but for what is not to be written."""
    for place, folders, files in os.walk(folder):
        if "unwritable" in folders:
            folders.remove("unwritable")
        for path in (place, *(os.path.join(place, name) for name in [*folders, *files])):
            os.chown(path, user, user, follow_symlinks=False)


def main(folder: Path) -> None:
    """Writes ``before.json``, ``after.json`` and a report for each user beside the worlds."""
    util.spawnv_passfds = without_exec(util.spawnv_passfds)
    is_root = os.geteuid() == 0
    users = ["root", "ordinary"] if is_root and NIGHTLY else ["ordinary"]
    worlds = folder / "worlds"
    for user in users:
        build(worlds / user)
    if is_root:
        own(worlds / "ordinary", NOBODY)
        os.chmod(worlds / "ordinary/unwritable", 0o755)
    else:
        os.chmod(worlds / "ordinary/unwritable", 0o555)
    (folder / "before.json").write_text(json.dumps(snapshot(worlds)))
    if is_root:
        if "root" in users:
            (folder / "root.json").write_text(json.dumps(list(called(worlds / "root", "/proc/unwritable"))))
        as_ordinary_user(worlds / "ordinary", report := worlds / "ordinary/given/temporary/report.json")
        if report.exists():
            report.rename(folder / "ordinary.json")
    else:
        told = json.dumps(list(called(worlds / "ordinary", str(worlds / "ordinary/unwritable"))))
        (folder / "ordinary.json").write_text(told)
    (folder / "after.json").write_text(json.dumps(snapshot(worlds)))
