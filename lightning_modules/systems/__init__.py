"""One short page a paper, each a value. Whatever is listed here can be a grid's base."""

from ..system import System
from .mask15 import MASK15_LARGE
from .roberta import ROBERTA_BASE, ROBERTA_LARGE

SYSTEMS: dict[str, System] = {
    "roberta_base": ROBERTA_BASE,
    "roberta_large": ROBERTA_LARGE,
    "mask15_large": MASK15_LARGE,
}

__all__ = ["MASK15_LARGE", "ROBERTA_BASE", "ROBERTA_LARGE", "SYSTEMS"]
