"""Shape annotations, checked while the tests run: the first calls of a function in each test, by night all.

A training calls the same functions with the same shapes at every step, and a check takes as long as a small layer.
"""

import functools
import random
import typing
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import jaxtyping
from beartype import beartype
from jaxtyping import AbstractArray, install_import_hook, jaxtyped

from tests.depth import NIGHTLY

ROOT = Path(__file__).parents[1]
_CHECKED = 2  # calls of a function in a test
_test = 0  # its number


def check(package: str) -> None:
    """Has the modules of a package that name axes check them; call it before any of them is imported.

    The others are left as they are: a checked module is slower in all its functions, and other types are pyright's.
    """
    sources = [path for path in sorted((ROOT / package).rglob("*.py")) if "jaxtyping" in path.read_text("utf-8")]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sources]
    jaxtyping.jaxtyped = where_axes_are_named  # what the hook decorates every function with
    install_import_hook(names, f"{__name__}.checked")


def where_axes_are_named(**options: Any) -> Callable:
    """`jaxtyping.jaxtyped` for what names axes; any other function stays itself.

    A wrapped one binds its signature at each call: a tenth of the suite's time went there.
    """
    wrap = jaxtyped(**options)

    def decorate(decorated: Any) -> Any:
        if isinstance(decorated, type):
            plain = decorated.__init__
            wrapped: Any = wrap(decorated)
            if not NIGHTLY and wrapped.__init__ is not plain:  # a dataclass, whose fields are checked when it is made
                wrapped.__init__ = _at_first(plain, wrapped.__init__)
            return wrapped
        if not any(map(_names_axes, decorated.__annotations__.values())):
            return decorated
        return wrap(decorated) if NIGHTLY else _at_first(decorated, wrap(decorated))

    return decorate


def next_test() -> None:
    """Tells that another test begins: its first calls are checked again."""
    global _test
    _test += 1


def _at_first(plain: Callable, checking: Callable) -> Callable:
    """A function that is checked in its first calls of each test."""
    test, calls = -1, 0

    @functools.wraps(plain)
    def called(*args: object, **kwargs: object) -> object:
        nonlocal test, calls
        if test != _test:
            test, calls = _test, 0
        calls += 1
        return (checking if calls <= _CHECKED else plain)(*args, **kwargs)

    return called


def checked(function: Callable) -> Callable:
    """The function under beartype, as far as its annotations name axes."""
    shapes = {name: hint for name, hint in function.__annotations__.items() if _names_axes(hint)}
    if not shapes:
        return function
    function.__annotations__ = shapes
    checking = beartype(function)
    return _without_draws(checking) if any(map(_is_sampled, shapes.values())) else checking


def _without_draws(checking: Callable) -> Callable:
    """The check leaves Python's generator as it was: beartype draws which entry of a collection it looks at."""

    @functools.wraps(checking)
    def checked(*args: object, **kwargs: object) -> object:
        state = random.getstate()
        try:
            return checking(*args, **kwargs)
        finally:
            random.setstate(state)

    return checked


def _is_sampled(hint: object) -> bool:
    origin = typing.get_origin(hint)
    is_collection = isinstance(origin, type) and issubclass(origin, Collection)
    return is_collection or any(map(_is_sampled, typing.get_args(hint)))


def _names_axes(hint: object) -> bool:
    if isinstance(hint, list):  # the arguments of a Callable
        return any(map(_names_axes, hint))
    array = isinstance(hint, type) and issubclass(hint, AbstractArray)
    return array or any(map(_names_axes, typing.get_args(hint)))
