"""Simulated fine-tunings that answer the same examples: do intervals keep their promises?

A claim compares two arms. Their seed effects are as alike as ``correlation`` says, and the sums by seed and example
have a part of examples and a rest. What a table of them shows is its mean and three mean squares, so normal tables are
drawn as these four. Tables of right and wrong answers are drawn whole, as a check that nothing hangs on the normal
distribution. Verdicts compare arms of one pretraining in pairs, and others as separate draws. Two other ways are
compared with these.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import chdtri, stdtr, stdtrit

from ablations.core.looks import Looks
from ablations.core.moderation import CONFIDENCE
from ablations.core.statistics import LEVEL
from benchmarks.simulation.simulation import GRIDS, SEEDS, Row, binomial_error, conditions, rejected

EXAMPLES = (277, 872, 1_821)  # dev examples of RTE and SST-2, and both sets of SST-2
CORRELATIONS = (0.0, 0.5, 0.9, 0.97)
SPREADS = {"none": 0.0, "large": 0.03}  # standard deviation of an arm's accuracy over seeds; SST-2 has .015
OF_EXAMPLES = {"little": 0.02, "much": 0.1}  # variance over examples of a difference; SST-2 has .02
FAMILY = 14
_REST = 0.15  # variance of a difference that neither seed nor example explains, as SST-2 has it
_AT_ONCE = 400_000  # answers that are drawn together


class Tables(NamedTuple):
    """What tables of differences by seed and example show. Arrays have any leading dimensions.

    Attributes:
        arms: The mean of each run of both arms ``[..., 2, seeds]``; of the first minus the second come the rest.
        examples: The mean square of examples over seeds times examples: the variance of the mean that they show.
        rest: The same of the rest.
        count: The number of examples.
    """

    arms: np.ndarray
    examples: np.ndarray
    rest: np.ndarray
    count: int

    @property
    def sums(self) -> np.ndarray:
        """The difference of the arms of each seed ``[..., seeds]``."""
        return self.arms[..., 0, :] - self.arms[..., 1, :]

    @property
    def seeds(self) -> np.ndarray:
        """The mean square of seeds over seeds times examples."""
        return self.sums.var(axis=-1, ddof=1) / self.sums.shape[-1]


Contrasts = tuple[np.ndarray, np.ndarray, np.ndarray]


def crossed(of: Tables) -> Contrasts:
    """The first arm minus the second as ``estimates.blocked`` does it: value, standard error, degrees of freedom."""
    return _cautious(of, of.seeds, of.sums.shape[-1] - 1.0)


def _cautious(of: Tables, seeds: np.ndarray, df: float) -> Contrasts:
    seeds, examples = np.maximum(seeds, of.rest), np.maximum(of.examples - of.rest, 0)
    share = 1 / (1 + examples / (seeds * df / chdtri(df, CONFIDENCE)))
    freedom = 1 / (share**2 / df + (1 - share) ** 2 / (of.count - 1))
    return of.sums.mean(axis=-1), np.sqrt(seeds + examples), freedom


def satterthwaite(of: Tables) -> Contrasts:
    """The same error with the degrees of freedom of Satterthwaite's formula for the mean squares that it is made of."""
    df, seeds, examples = of.sums.shape[-1] - 1.0, np.maximum(of.seeds, of.rest), np.maximum(of.examples, of.rest)
    total, many = seeds + examples - of.rest, df * (of.count - 1)
    known = (
        np.where(of.seeds > of.rest, seeds**2 / df, 0)
        + np.where(of.examples > of.rest, examples**2 / (of.count - 1), 0)
        + np.where((of.seeds > of.rest) == (of.examples > of.rest), of.rest**2 / many, 0)
    )
    return of.sums.mean(axis=-1), np.sqrt(total), total**2 / known


def seeds_alone(of: Tables) -> Contrasts:
    """Student's paired test, without the noise of examples."""
    return of.sums.mean(axis=-1), np.sqrt(of.seeds), np.full(of.seeds.shape, of.sums.shape[-1] - 1.0)


def separate_draws(of: Tables) -> Contrasts:
    """The same of arms of different pretrainings, as ``estimates.linear`` does it with one variance for both."""
    seeds = of.arms.shape[-1]
    return _cautious(of, of.arms.var(axis=-1, ddof=1).sum(axis=-1) / seeds, 2 * (seeds - 1.0))


METHODS: Mapping[str, Callable[[Tables], Contrasts]] = {
    "seeds and examples": crossed,
    "Satterthwaite's formula": satterthwaite,
    "seeds alone": seeds_alone,
    "separate draws": separate_draws,
}


def normal(draws: np.random.Generator, shape: tuple[int, ...], seeds: int, count: int, kind: "Kind") -> Tables:
    """Tables ``[*shape]`` without any true difference, of normal parts."""
    arms = kind.of_seeds(draws, (*shape, 2, seeds)) + draws.normal(0, math.sqrt(_REST / 2 / count), (*shape, 2, seeds))
    arms[..., 0, :] += draws.normal(0, math.sqrt(kind.of_examples / count), (*shape, 1))  # the same for all seeds
    drawn = [draws.chisquare(df, shape) / df for df in (count - 1, (count - 1) * (seeds - 1))]
    squares = seeds * kind.of_examples + _REST, _REST
    examples, rest = (square * one / (seeds * count) for square, one in zip(squares, drawn, strict=True))
    return Tables(arms, examples, rest, count)


def answers(draws: np.random.Generator, tables: int, seeds: int, count: int, kind: "Kind") -> Tables:
    """Tables ``[tables]`` of right and wrong answers of two equally good arms.

    The logit of the chance of a right answer adds up the example's difficulty (standard deviation 1.5), what it is for
    an arm, and what its seed is for the arm; at the mean difficulty a logit is about six times an accuracy.
    """
    found = []
    for size in _portions(tables, 2 * seeds * count):
        hard, of_arm = 1.5, 4.5 * math.sqrt(kind.of_examples / 2)
        logit = draws.normal(1.4, hard, (size, 1, 1, count)) + draws.normal(0, of_arm, (size, 2, 1, count))
        logit = logit + 6.5 * kind.of_seeds(draws, (size, 2, seeds))[..., None]
        chance = 1 / (1 + np.exp(-logit.astype(np.float32)))
        found.append(told((draws.random(chance.shape, np.float32) < chance).astype(np.float32)))
    arms, examples, rest = (
        np.concatenate(parts).astype(float) for parts in zip(*(one[:3] for one in found), strict=True)
    )
    return Tables(arms, examples, rest, count)


def _portions(total: int, answers_each: int) -> Iterator[int]:
    size = max(1, _AT_ONCE // answers_each)
    for start in range(0, total, size):
        yield min(size, total - start)


def told(scores: np.ndarray) -> Tables:
    """What the scores of two arms show ``[..., 2, seeds, examples]``."""
    table = scores[..., 0, :, :] - scores[..., 1, :, :]
    seeds, count = table.shape[-2:]
    left = table - table.mean(axis=-1, keepdims=True)
    common = left.mean(axis=-2, keepdims=True)
    examples = (common**2).sum(axis=(-2, -1)) / (count - 1) / count
    rest = ((left - common) ** 2).sum(axis=(-2, -1)) / ((count - 1) * (seeds - 1)) / (seeds * count)
    return Tables(scores.mean(axis=-1), examples, rest, count)


class Kind(NamedTuple):
    """What two arms are: how alike their seeds, how much seeds and examples matter."""

    correlation: float
    spread: str
    examples: str

    @property
    def of_examples(self) -> float:
        """The variance over examples of their difference."""
        return OF_EXAMPLES[self.examples]

    def of_seeds(self, draws: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """The effects of seeds ``[..., 2, seeds]``."""
        common = draws.normal(size=(*shape[:-2], 1, shape[-1])) * math.sqrt(self.correlation)
        return SPREADS[self.spread] * (common + draws.normal(size=shape) * math.sqrt(1 - self.correlation))


KINDS = [
    Kind(correlation, spread, examples)
    for examples in OF_EXAMPLES
    for spread in SPREADS
    for correlation in (CORRELATIONS if SPREADS[spread] else CORRELATIONS[:1])  # without seeds nothing correlates
]


def in_pairs(grids: int = GRIDS) -> list[Row]:
    """How often Holm's procedure over 14 claims errs, and how often 95 % intervals of one cover.

    The 14 claims of a normal family are separate tables. Of right and wrong answers there are as many tables as grids,
    and no families. ``width`` is the median width of an interval, in points of accuracy.
    """
    rows: list[Row] = []
    for (kind, count), seeds, draws in conditions("pairs", [(k, n) for k in KINDS for n in EXAMPLES], SEEDS):
        drawn = {
            "normal": normal(draws, (grids, FAMILY), seeds, count, kind),
            "right or wrong": answers(draws, grids, seeds, count, kind),
        }
        for scores, tables in drawn.items():
            for method, contrasts in METHODS.items():
                value, error, df = contrasts(tables)
                with np.errstate(invalid="ignore", divide="ignore"):  # a few tables of answers have no spread
                    p = 2 * stdtr(df, -np.abs(value) / error)
                errs = None
                if value.ndim > 1:
                    errs = float((rejected(p[..., None], Looks((seeds,))) > 0).any(axis=1).mean())
                    df, error = df[:, 0], error[:, 0]
                half = -stdtrit(df, (1 - LEVEL) / 2) * error
                rows.append({
                    "scores": scores, "seeds": seeds, "examples": count, "seed variance": kind.spread,
                    "correlation": kind.correlation if SPREADS[kind.spread] else None,
                    "example variance": kind.examples, "method": method, "grids": grids, "errs": errs,
                    "standard error": None if errs is None else binomial_error(errs, grids),
                    "coverage": float(1 - (p <= 1 - LEVEL).mean()), "width": float(np.median(200 * half)),
                })  # fmt: skip
    return rows
