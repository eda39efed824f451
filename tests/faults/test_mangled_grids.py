"""Grid files mangled at random: each is read, or refused with problems that name a file and a line."""

import copy
import random
import re

import pytest
import yaml

from ablations.planning import grids
from lightning_modules.config import ConfigError
from tests.depth import cases
from tests.faults.test_malformed_grids import GOOD
from tests.faults.test_malformed_variants import RICH

JUNK = [None, 0, -1, 3.5, True, "", "x", "a.b", [], [1], ["x", None], {}, {"a": 1}, {"a": {"b": [1]}}, [[]], [{}],
        "roberta_base", 1e300, "objectives.mlm.masking.rate"]  # fmt: skip


def places(value, path=()):
    if path:
        yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def mangle(data, chance):
    """Puts junk in one place, or leaves the place out, or misspells its key, or repeats it."""
    *path, last = chance.choice(list(places(data)))
    for key in path:
        data = data[key]
    way = chance.random()
    if way < 0.45:
        data[last] = copy.deepcopy(chance.choice(JUNK))
    elif way < 0.6:
        del data[last]
    elif isinstance(data, dict):
        data[last[:-1] + chance.choice("abz")] = data.pop(last)
    else:
        data.append(copy.deepcopy(data[last]))


@pytest.mark.parametrize("seed", cases(15, 1000))
def test_mangled(tmp_path, seed):
    chance = random.Random(seed)
    data = yaml.safe_load(chance.choice([RICH, GOOD]))
    for _ in range(chance.choice([1, 2, 3, 5, 8])):
        mangle(data, chance)
    (tmp_path / "g.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    problems = []
    try:
        grids.read(tmp_path / "g.yaml")
    except ConfigError as error:
        problems = error.problems
    assert all(re.match(r"g\.yaml:\d+: ", str(problem)) for problem in problems)


def test_an_axis_of_systems_that_are_no_names_is_refused(tmp_path):
    (tmp_path / "g.yaml").write_text(GOOD.replace("axes:\n", "axes:\n  system: [{a: 1}, roberta_base]\n"))
    with pytest.raises(ConfigError, match=r"g\.yaml:5: axes\.system\.0: there is no system"):
        grids.read(tmp_path / "g.yaml")
