"""Signals that end an execution: Ctrl-C, SIGTERM of `kill` and schedulers, SIGHUP of a terminal that is closed.

The first lets the active runs write their checkpoints, a second ends at once. Exit codes are 128 + the signal's number,
as shells report them. The end of the time that an execution has is a signal too. And the end of the process that
started this one.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from types import FrameType
from typing import NoReturn

from ablations.running.exit_codes import INTERRUPTED

ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
before_leaving: list[Callable[[], object]] = []  # what a process does that ends because its parent has
BELL = [getattr(signal, name) for name in ("SIGALRM",) if hasattr(signal, name)]  # Windows has none


class TimeUp(SystemExit):
    """The time that an execution was given is over."""


@contextmanager
def limited(until: float | None) -> Iterator[None]:
    """Raises `TimeUp` at a moment of the monotonic clock, wherever the main thread is then; never without a moment."""
    if until is None or not BELL or threading.current_thread() is not threading.main_thread():
        yield
        return
    over: list[bool] = []

    def ring(number: int, _: object) -> None:
        if not over:
            raise TimeUp(0)

    bell, usual = BELL[0], signal.signal(BELL[0], ring)
    seconds = max(0.0, until - time.monotonic())
    timer = threading.Timer(seconds, signal.pthread_kill, (threading.main_thread().ident, bell))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        over.append(True)
        timer.cancel()
        timer.join()  # a signal after its handler has gone would end this process
        signal.signal(bell, usual)


@contextmanager
def ending() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP raise `SystemExit`, as Ctrl-C raises `KeyboardInterrupt`, with a word on standard error.

    A signal that is ignored, as SIGHUP under ``nohup``, or that the caller handles, is left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def end(number: int, _: object) -> NoReturn:
        received.append(number)
        raise SystemExit(128 + number)

    ours = [number for number in ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    except SystemExit:
        with contextlib.suppress(OSError):  # the terminal may be gone
            for number in received[:1]:
                print(f"ended by {signal.Signals(number).name}. Run the command again to continue.", file=sys.stderr)
        raise
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


class Interruption:
    """Whether a signal has requested the end.

    Attributes:
        usual: What each signal usually does.
        number: The signal that came; None until there is one.
    """

    def __init__(self, usual: dict[int, Callable[[int, FrameType | None], object]]) -> None:
        self.usual = usual
        self.number: int | None = None

    def __call__(self, number: int, _: object) -> None:
        """Receives a signal, and lets the next one do what it usually does."""
        self.number = number
        self.restore()

    def restore(self) -> None:
        """Gives the signals their usual handlers back."""
        for number, handler in self.usual.items():
            signal.signal(number, handler)

    def is_set(self) -> bool:
        """Whether a signal has come."""
        return self.number is not None

    def raise_again(self) -> NoReturn:
        """Lets the signal do what it usually does; if that ends nothing, raises `KeyboardInterrupt`."""
        if self.number is not None:
            self.usual[self.number](self.number, None)
        raise KeyboardInterrupt


@contextmanager
def patient() -> Iterator[Interruption]:
    """Keeps the first signal that would raise an exception, so that the current step ends and a checkpoint is written.

    The next one acts as usual.
    """
    if threading.current_thread() is not threading.main_thread():
        yield Interruption({})
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, *ENDING, *BELL)}
    interruption = Interruption({number: handler for number, handler in handlers.items() if callable(handler)})
    for number in interruption.usual:
        signal.signal(number, interruption)
    try:
        yield interruption
    finally:
        interruption.restore()


def follow_parent() -> None:
    """Ends this process when the one that started it has ended, for whatever reason."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def follow() -> None:
        wait([parent.sentinel])
        for call in before_leaving:
            call()
        os._exit(INTERRUPTED)

    threading.Thread(target=follow, name="follow the parent", daemon=True).start()
