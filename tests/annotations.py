"""Shape annotations, checked at every call while the tests run."""

import typing
from collections.abc import Callable
from pathlib import Path

from beartype import beartype
from jaxtyping import AbstractArray, install_import_hook

ROOT = Path(__file__).parents[1]


def check(package: str) -> None:
    """Has the modules of a package that name axes check them; call it before any of them is imported.

    The others are left as they are: a checked module is slower in all its functions, and other types are pyright's.
    """
    sources = [path for path in sorted((ROOT / package).rglob("*.py")) if "jaxtyping" in path.read_text("utf-8")]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sources]
    install_import_hook(names, f"{__name__}.checked")


def checked(function: Callable) -> Callable:
    """The function under beartype, as far as its annotations name axes."""
    shapes = {name: hint for name, hint in function.__annotations__.items() if _names_axes(hint)}
    if not shapes:
        return function
    function.__annotations__ = shapes
    return beartype(function)


def _names_axes(hint: object) -> bool:
    if isinstance(hint, list):  # the arguments of a Callable
        return any(map(_names_axes, hint))
    array = isinstance(hint, type) and issubclass(hint, AbstractArray)
    return array or any(map(_names_axes, typing.get_args(hint)))
