"""Looking at results twice without fooling oneself: looks fixed beforehand, for one claim and for a family.

A grid may fix two looks, say at 4 and at 8 seeds: what is decided at the first is final, what is open is run on. Each
look tests at the same nominal level, small enough that both together err at the required rate (Pocock, Biometrika 64,
1977, 191-199). The two estimates share the first look's seeds, so they are taken as bivariate normal with correlation
sqrt(n1 / n2); each is a t test at that level (Jennison and Turnbull 2000, Group Sequential Methods, section 4.4).

A family is corrected by Holm's procedure within looks (Maurer and Bretz, Statistics in Biopharmaceutical Research 5,
2013, 311-320): what is rejected at the first look is final and leaves its share of alpha to the rest.
"""

import math
from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar, cast

import numpy as np
from scipy.special import ndtr, ndtri

from ablations.core.statistics import LEVEL

Test = TypeVar("Test", bound=Hashable)

_NODES = 200
_SMALLEST = 1e-300  # below, a normal quantile is infinite


@dataclass(frozen=True)
class Looks:
    """The numbers of seeds at which a grid is judged, fixed before it runs.

    Attributes:
        n: One or two numbers of seeds, growing.

    Raises:
        ValueError: For none, more than two, or numbers that do not grow.
    """

    n: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.n) <= 2 or list(self.n) != sorted(set(self.n)) or min(self.n) < 1:
            raise ValueError(f"looks at {list(self.n)} seeds: one or two numbers of seeds, growing, are supported")

    def reached(self, seeds: int) -> int:
        """How many looks this number of seeds has reached.

        >>> [Looks((4, 8)).reached(seeds) for seeds in (3, 4, 7, 8)]
        [0, 1, 1, 2]
        """
        return sum(seeds >= n for n in self.n)


@dataclass(frozen=True)
class Decision:
    """What the looks so far say of one claim of a family.

    Attributes:
        look: The look whose estimate is valid, from 1. It is 0 if there is none yet.
        rejected: Whether the null value is excluded; then the decision is final.
        level: Coverage of the repeated confidence interval at that look: it excludes the null value exactly if
            ``rejected``.
        p: The adjusted p value, below 1 minus the family's level exactly if ``rejected``.
    """

    look: int
    rejected: bool
    level: float
    p: float


def nominal_alpha(alpha: float, looks: Looks) -> float:
    """The level at which each look tests so that all together err at ``alpha`` (two-sided).

    >>> round(nominal_alpha(0.05, Looks((4, 8))), 4), round(nominal_alpha(0.05 / 9, Looks((4, 8))), 5)
    (0.0294, 0.00305)
    >>> nominal_alpha(0.05, Looks((5,)))
    0.05
    """
    return alpha if len(looks.n) == 1 or alpha >= 1 else _nominal(alpha, looks.n)


@cache  # a family asks for few shares
def _nominal(alpha: float, n: tuple[int, ...]) -> float:
    from scipy import optimize  # a third of a second to import

    root = optimize.brentq(lambda level: overall_alpha(level, Looks(n)) - alpha, alpha / 2, alpha, xtol=1e-15)
    return cast(float, root)  # a tuple only with full_output


def overall_alpha(nominal: float, looks: Looks) -> float:
    """The chance that any look is below ``nominal`` without an effect: the inverse of :func:`nominal_alpha`."""
    if len(looks.n) == 1 or nominal <= _SMALLEST or nominal >= 1:
        return nominal
    correlation = math.sqrt(looks.n[0] / looks.n[1])
    bound, rest = -float(ndtri(nominal / 2)), math.sqrt(1 - correlation**2)
    nodes, weights = _legendre()
    first = bound * nodes  # the first look, within its bounds; the second crosses its own
    crossed = ndtr((correlation * first - bound) / rest) + ndtr((-bound - correlation * first) / rest)
    density = np.exp(-(first**2) / 2) / math.sqrt(2 * math.pi)
    return nominal + float(bound * weights @ (density * crossed))


@cache
def _legendre() -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(_NODES)


def decided(p: Sequence[Sequence[float]], looks: Looks, level: float = LEVEL) -> list[Decision]:
    """Holm's procedure over a family at one look or two.

    At each look, step k of the m claims that are still open tests at ``nominal_alpha(alpha / (m - k + 1))``, the
    smallest p first, until one fails. A claim that fails, or comes after, has the level of the step that failed. A
    claim without a p value at a look counts there as 1; it keeps the decision of the look before.

    With one look this is Holm's test (Scandinavian Journal of Statistics 6, 1979, 65-70). An interval excludes the null
    value exactly where Holm rejects (Serlin, Journal of Experimental Education 61, 1993, 350-360). They guarantee: over
    all contrasts whose true effect is null, the chance that any interval misses it is at most alpha, and each interval
    alone covers at least ``level``. They are narrower than Bonferroni's, which guarantee joint coverage of the non-null
    effects too. The adjusted p of the second look is given what the first one decided.

    Args:
        p: For each claim its two-sided p value at each look that it has reached, at most as many as looks.
        level: Coverage of an interval alone; the family errs at 1 minus this.

    Returns:
        One decision for each claim, in the order given.
    """
    decisions = [Decision(0, False, level, 1.0)] * len(p)
    for look in range(1, len(looks.n) + 1):
        family = [place for place, decision in enumerate(decisions) if not decision.rejected]
        reached = [place for place in family if len(p[place]) >= look]
        if look > 1 and not reached:
            break
        floor = max((decision.p for decision in decisions if decision.rejected), default=0.0)
        step = _holm([p[place][look - 1] if place in reached else 1.0 for place in family], looks, level, floor)
        for place, (rejected, nominal, adjusted) in zip(family, step, strict=True):
            if look == 1 or place in reached:
                decisions[place] = Decision(look if place in reached else 0, rejected, 1 - nominal, adjusted)
    return decisions


def decided_in_families(
    p: Mapping[Test, Sequence[float]], planned: Container[Test], looks: Looks, level: float = LEVEL
) -> dict[Test, Decision]:
    """:func:`decided` for planned tests among themselves, and for post hoc ones among all.

    So nothing that is added post hoc moves a planned decision, and a post hoc test has the decision that it would have
    if all were planned: it errs at most as often as one of that family.

    Args:
        p: For each test what :func:`decided` takes.
        planned: The planned tests; the others are post hoc.
        looks, level: As there.
    """
    among_all = dict(zip(p, decided(list(p.values()), looks, level), strict=True))
    kept = {test: values for test, values in p.items() if test in planned}
    return among_all | dict(zip(kept, decided(list(kept.values()), looks, level), strict=True))


def _holm(p: Sequence[float], looks: Looks, level: float, floor: float) -> list[tuple[bool, float, float]]:
    """For each claim of one look: whether it is rejected, its nominal alpha, its adjusted p (``floor`` or more)."""
    found, nominal, stopped = [(False, 1.0, 1.0)] * len(p), 1.0, False
    for step, place in enumerate(np.argsort(p, kind="stable")):
        left = len(p) - step
        nominal = nominal if stopped else nominal_alpha((1 - level) / left, looks)
        stopped = stopped or p[place] >= nominal
        floor = max(floor, min(1.0, left * overall_alpha(p[place], looks)))
        found[place] = not stopped, nominal, floor
    return found
