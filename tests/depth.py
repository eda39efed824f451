"""How deep tests go where there is no end of cases: `make test` tries few, `make nightly` many, and others each night.

Of lists of cases that go through the same code, `make test` tries `some`, and of products of lists those that are
`crossed`: the same ones each time. `make nightly` tries all.

``ABLATIONS_NIGHTLY`` is the seed of a night, which pytest prints; with the same seed the same cases are tried again.
"""

import itertools
import os
import random
from collections.abc import Collection, Iterable
from typing import Any

NIGHTLY = "ABLATIONS_NIGHTLY" in os.environ
SEED = int(os.environ.get("ABLATIONS_NIGHTLY", 0))


def depth(few: int, many: int) -> int:
    """How many cases are tried."""
    return many if NIGHTLY else few


def cases(few: int, many: int) -> range:
    """Seeds of so many cases."""
    return range(SEED, SEED + depth(few, many))


def some(values: Iterable[Any], few: int) -> list[Any]:
    """As many cases of a list, evenly spread from the first to the last; by night all."""
    listed = list(values)
    if NIGHTLY or few >= len(listed):
        return listed
    return [listed[round(n * (len(listed) - 1) / max(1, few - 1))] for n in range(few)]


def crossed(*lists: Collection[Any]) -> list[tuple[Any, ...]]:
    """Every value of every list in some combination, each list in turn; by night all combinations."""
    if NIGHTLY:
        return list(itertools.product(*lists))
    turns = [itertools.cycle(values) for values in lists]
    return [tuple(map(next, turns)) for _ in range(max(map(len, lists)))]


def moments(count: int, few: int, many: int) -> list[int]:
    """Some of the steps from 1 to a count, in order."""
    return sorted(random.Random(SEED).sample(range(1, count + 1), depth(few, many)))
