"""A grid with one mistake, and what is said of it: its place and its words, not its sentences."""

import functools
import gc
import re
import time
from typing import NamedTuple

import pytest

from ablations.planning import grids
from lightning_modules.config import ConfigError


@functools.cache
def _import_all():
    """Reads a grid once in a process: what that imports is no part of the time that a mistake takes."""
    grids.read("masking_ratio")


def complaints(folder, good, change):
    """What reading a grid says, line by line, after one change of its text; it takes less than a second."""
    old, new = change
    assert good.count(old) >= 1
    file = folder / "g.yaml"
    file.write_text(good.replace(old, new, 1))
    _import_all()
    gc.disable()  # a process of many tests holds millions of objects, whose collection takes a second
    try:
        began = time.process_time()
        with pytest.raises(ConfigError) as raised:
            grids.read(file)
        took = time.process_time() - began
    finally:
        gc.enable()
    assert took < 1
    return str(raised.value).splitlines()


def is_one_complaint(said):
    """Whether it is a single complaint that names the file, whatever its words."""
    return len(said) == 1 and said[0].startswith("g.yaml:")


class Said(NamedTuple):
    """What a complaint must hold, whatever the sentence around it: where it points, words, the nearest spelling."""

    where: str
    words: tuple[str, ...]
    near: str

    def fits(self, line):
        where = f"{self.where}: "
        words = [*self.words, *([f"'{self.near}'?"] if self.near else [])]
        rest = line.removeprefix(where)
        return rest != line and all(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", rest) for word in words)


def says(where, *words, near=""):
    """The complaint at ``file:line: path`` that names some words and, where it is a slip, what was meant."""
    return Said(where, words, near)


def assert_complaints(said, expected):
    """That as many complaints were made as expected, and each is the one expected."""
    assert len(said) == len(expected), said
    for line, one in zip(said, expected, strict=True):
        assert one.fits(line), f"{line!r} is not {one}"
