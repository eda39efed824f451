"""Starting, watching and killing launchers."""

import signal
import subprocess
import time

import psutil

from ablations.core.store import Records

COUNTED = ("id", "kind", "config", "outcome", "detail", "metrics", "curve")  # what a rerun must reproduce exactly


def wait_for(process: subprocess.Popen, word: str | tuple[str, ...]) -> list[str]:
    """Reads lines until one starts with ``word``; everything read is in the failure's message."""
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if line.startswith(word):
            return lines
    raise AssertionError(f"no {word!r} in:\n" + "\n".join(lines))


def family(pid: int) -> list[psutil.Process]:
    """All processes below one, at this moment."""
    return psutil.Process(pid).children(recursive=True)


def gone(processes: list[psutil.Process], seconds: float = 15.0) -> list[psutil.Process]:
    """Those that are still there after some seconds: a fork server takes its time to unload torch on a busy machine."""
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return [process for process in alive if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def kill(process: subprocess.Popen) -> list[psutil.Process]:
    """Kills a launcher as the kernel would, and returns the processes it leaves behind."""
    below = family(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return gone(below)


def contents(records: Records) -> dict[str, dict]:
    """What each record says apart from time and place, with the costs that are counted rather than measured."""
    said = {}
    for record in records.all():
        data = record.to_dict()
        costs = {name: record.cost.get(name) for name in ("tokens", "flops", "parameters")}
        said[record.id] = {name: data[name] for name in COUNTED} | {"costs": costs}
    return said


def attempts(records: Records) -> dict[str, list[str]]:
    """The logs' own account of each run: what became of its attempts, in order."""
    told = {}
    for folder in records.work_folders():
        log = folder / "log.txt"  # absent when a kill came between the folder and its first line
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        told[folder.name] = [
            line.split(" ", 4)[4].partition(". ")[0] for line in lines if f"run {folder.name} attempt" in line
        ]
    return told


def until(condition, seconds: float = 30.0) -> None:
    """Waits for something to become true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
