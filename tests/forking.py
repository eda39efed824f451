"""Processes that are forks of this one, in which all is imported: a new interpreter imports torch for seconds."""

import os
import signal
import sys
from collections.abc import Callable, Sequence


def forked(work: Callable[[], object], closed: Callable[[int], bool] = lambda number: False) -> int:
    """A new child at work, whose exit code is as that of a program; some of its descriptors are closed."""
    child = os.fork()
    if child:
        return child
    code: object = 1
    try:
        nothing = os.open(os.devnull, os.O_RDWR)  # not closed: objects that are left would later close others' numbers
        for number in filter(closed, map(int, os.listdir("/dev/fd"))):
            if number != nothing:
                os.dup2(nothing, number, inheritable=False)
        code = work() or 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException as error:
        sys.stderr.write(f"{error!r}\n")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def without_exec(spawn: Callable[..., int]) -> Callable[..., int]:
    """Forks the fork servers and ranks that multiprocessing starts as interpreters with a command."""

    def spawned(path: str, arguments: Sequence[str | bytes], passed: Sequence[int]) -> int:
        words = list(map(os.fsdecode, arguments))
        command = words[(at := words.index("-c") + 1)]
        if "resource_tracker" in command:
            return spawn(path, arguments, passed)

        def work() -> None:
            for number in signal.Signals:
                if callable(signal.getsignal(number)):
                    signal.signal(number, signal.SIG_DFL)  # as a new program has it
            sys.argv = ["-c", *words[at + 1 :]]
            exec(command, {})

        return forked(work, lambda number: number > 2 and number not in passed)

    return spawned
