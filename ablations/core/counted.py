"""How far a loop is that may take a while: whoever waits for it can watch, and it need not know of them."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
Report = Callable[[str, int, int], None]
_watcher: ContextVar[Report | None] = ContextVar("watcher", default=None)


def counted(items: Collection[T], what: str) -> Iterator[T]:
    """Items one by one, each reported to who is watching.

    Args:
        what: What is done with them, such as "planning cells".
    """
    report = _watcher.get()
    for number, item in enumerate(items):
        if report:
            report(what, number, len(items))
        yield item


@contextmanager
def watched(report: Report) -> Iterator[None]:
    """Calls ``report(what, done, all)`` as the loops meanwhile go on."""
    token = _watcher.set(report)
    try:
        yield
    finally:
        _watcher.reset(token)
