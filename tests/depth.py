"""How deep tests go where there is no end of cases: `make test` tries few, `make nightly` many, and others each night.

``ABLATIONS_NIGHTLY`` is the seed of a night, which pytest prints; with the same seed the same cases are tried again.
"""

import os
import random

NIGHTLY = "ABLATIONS_NIGHTLY" in os.environ
SEED = int(os.environ.get("ABLATIONS_NIGHTLY", 0))


def depth(few: int, many: int) -> int:
    """How many cases are tried."""
    return many if NIGHTLY else few


def cases(few: int, many: int) -> range:
    """Seeds of so many cases."""
    return range(SEED, SEED + depth(few, many))


def moments(count: int, few: int, many: int) -> list[int]:
    """Some of the steps from 1 to a count, in order."""
    return sorted(random.Random(SEED).sample(range(1, count + 1), depth(few, many)))
