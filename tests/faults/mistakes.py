"""A grid with one mistake, and what is said of it."""

import time

import pytest

from ablations.planning import grids
from lightning_modules.config import ConfigError


def complaints(folder, good, change):
    """What reading a grid says, line by line, after one change of its text; it takes less than a second."""
    old, new = change
    assert good.count(old) >= 1
    file = folder / "g.yaml"
    file.write_text(good.replace(old, new, 1))
    began = time.process_time()
    with pytest.raises(ConfigError) as raised:
        grids.read(file)
    assert time.process_time() - began < 1
    return str(raised.value).splitlines()


def is_one_complaint(said):
    """Whether it is a single complaint that names the file, whatever its words."""
    return len(said) == 1 and said[0].startswith("g.yaml:")
