"""Checks intervals and corrections on simulated grids whose truth is known.

All functions take many simulated grids at once; tests hold them equal to those that verdicts use. Every condition draws
from its own stream, so the numbers depend only on the settings.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy import stats

from ablations.core.resampling import percentile_t, resampled_means
from ablations.core.statistics import LEVEL, paired_power

SEEDS = (3, 5, 10)
FAMILIES = (1, 3, 7, 20)
EFFECTS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)  # in standard deviations of the difference
GRIDS = 2_000
EXAMPLES = 300
_REPLICATES = 2_000
_SIGMA = 0.75  # of the logarithm

RUNS = {"runs much alike": 0.15, "runs differ": 0.6}

Row = dict[str, Any]
Edges = tuple[np.ndarray, np.ndarray]

# noise of paired differences: mean 0 and standard deviation 1
NOISE: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": lambda draws, shape: draws.normal(size=shape),
    "heavy-tailed": lambda draws, shape: draws.standard_t(3, size=shape) / math.sqrt(3),
    "skewed": lambda draws, shape: (
        (draws.lognormal(0, _SIGMA, size=shape) - math.exp(_SIGMA**2 / 2))
        / math.sqrt(math.expm1(_SIGMA**2) * math.exp(_SIGMA**2))
    ),
}
NOISE_NAMES = {
    "normal": "normal",
    "heavy-tailed": "heavy-tailed (t, 3 degrees of freedom)",
    "skewed": "skewed (lognormal)",
}


def t_intervals(values: np.ndarray, level: float | np.ndarray = LEVEL) -> Edges:
    """The ends of ``statistics.mean_interval`` for samples ``[..., n]``; ``level`` may differ between samples."""
    n, mean = values.shape[-1], values.mean(axis=-1)
    half = stats.t.ppf((1 + np.asarray(level)) / 2, n - 1) * _spread(values) / math.sqrt(n)
    return mean - half, mean + half


def t_p_values(values: np.ndarray) -> np.ndarray:
    """The two-sided p of ``statistics.Contrast`` for differences ``[..., n]`` that are not all equal."""
    n = values.shape[-1]
    return 2 * stats.t.sf(np.abs(values.mean(axis=-1)) * math.sqrt(n) / _spread(values), n - 1)


def _spread(values: np.ndarray) -> np.ndarray:
    sd = values.std(axis=-1, ddof=1)
    return np.where(sd <= 1e-12 * np.abs(values).max(axis=-1), 0.0, sd)


def holm_levels(p: np.ndarray, level: float = LEVEL) -> np.ndarray:
    """``statistics.holm_levels`` for families ``[..., tests]``."""
    size = p.shape[-1]
    order = np.argsort(p, axis=-1, kind="stable")
    at_step = (1 - level) / (size - np.arange(size))
    failed = np.take_along_axis(p, order, axis=-1) >= at_step
    first = np.where(failed.any(axis=-1), failed.argmax(axis=-1), size - 1)
    alphas = at_step[np.minimum(np.arange(size), first[..., None])]
    in_order = np.empty_like(alphas)
    np.put_along_axis(in_order, order, alphas, axis=-1)
    return 1 - in_order


def coverage(grids: int = GRIDS) -> list[Row]:
    """How often 95 % intervals over seeds cover the true mean difference, by noise, number of seeds and method.

    ``width`` is the median width in standard deviations of a difference. If any interval is unbounded there is no
    coverage: an unbounded interval covers everything.
    """
    rows: list[Row] = []
    for noise, seeds, draws in _conditions("coverage", NOISE):
        values = NOISE[noise](draws, (grids, seeds))
        methods = {
            "t": t_intervals(values),
            "percentile-t bootstrap": percentile_t(values, LEVEL, _REPLICATES),
            "BCa bootstrap": bca(values, draws),
        }
        rows += [
            {"noise": NOISE_NAMES[noise], "seeds": seeds, "method": method} | _covered(edges)
            for method, edges in methods.items()
        ]
    return rows


def bca(values: np.ndarray, draws: np.random.Generator, level: float = LEVEL) -> Edges:
    """SciPy's BCa bootstrap intervals of the mean for samples ``[samples, n]``, for comparison."""
    ends = [
        stats.bootstrap(
            (part,), np.mean, axis=-1, confidence_level=level, n_resamples=_REPLICATES, method="BCa", rng=draws
        ).confidence_interval
        for part in np.array_split(values, -(-len(values) // 100))
    ]
    return np.concatenate([end.low for end in ends]), np.concatenate([end.high for end in ends])


def _joined(parts: Sequence[Edges]) -> Edges:
    low, high = zip(*parts, strict=True)
    return np.concatenate(low), np.concatenate(high)


def _covered(edges: Edges, truth: float = 0.0) -> Row:
    low, high = edges
    bounded = np.isfinite(low) & np.isfinite(high)
    share = float(np.mean((low <= truth) & (truth <= high)))
    return {
        "grids": len(low),
        "bounded": float(bounded.mean()),
        "coverage": share if bounded.all() else None,
        "standard error": _error(share, len(low)) if bounded.all() else None,
        "width": float(np.median(high - low)) if bounded.all() else None,
    }


def _error(share: float, trials: int) -> float:
    """Standard error of a simulated share."""
    return math.sqrt(share * (1 - share) / trials)


def coverage_of_examples(grids: int = GRIDS // 2, examples: int = EXAMPLES) -> list[Row]:
    """How often intervals cover the true difference over new seeds and new examples, which is 0.

    The logit of the chance of a right answer is the sum of three normal effects: the example's difficulty (standard
    deviation 1.5), the variant on that example (0.7), and the variant's run (0.15 or 0.6).
    """
    rows: list[Row] = []
    for kind, seeds, draws in _conditions("examples", RUNS):
        parts = [_of_answers(draws, (part.size, seeds, examples), RUNS[kind]) for part in _split(grids, 100)]
        methods = {method: _joined([part[method] for part in parts]) for method in parts[0]}
        rows += [
            {"noise": f"{examples} answers, {kind}", "seeds": seeds, "method": method} | _covered(edges)
            for method, edges in methods.items()
        ]
    return rows


def _of_answers(draws: np.random.Generator, shape: tuple[int, int, int], differ: float) -> dict[str, Edges]:
    """Intervals of the difference of two equally good variants, from answers ``[grids, seeds, examples]``."""
    grids, seeds, examples = shape
    difficulty, right = draws.normal(0.4, 1.5, size=(grids, 1, examples)), []
    for _ in "ab":
        logit = difficulty + draws.normal(0, 0.7, size=(grids, 1, examples))
        chance = 1 / (1 + np.exp(-logit - draws.normal(0, differ, size=(grids, seeds, 1))))
        right.append((draws.random(shape) < chance).astype(float))
    differences = right[0] - right[1]
    low, high = np.quantile(resampled_means(differences, 1_000), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=-1)
    return {"t over seeds": t_intervals(differences.mean(axis=-1)), "seeds and examples": (low, high)}


def _split(count: int, most: int) -> list[np.ndarray]:
    return np.array_split(np.arange(count), -(-count // most))


FAMILY_KINDS = ("separate contrasts", "one baseline shared", "one baseline shared, every other effect real")


def family_wise_error(grids: int = 10 * GRIDS) -> list[Row]:
    """How often any interval of a family misses its true null value, with Holm's levels and without correction.

    Real effects are three standard deviations of a difference; only contrasts without an effect count.
    """
    rows: list[Row] = []
    for kind, seeds, draws in _conditions("families", FAMILY_KINDS):
        for size in FAMILIES:
            values = draws.normal(size=(grids, size, seeds))
            if kind != FAMILY_KINDS[0]:
                values = (values - draws.normal(size=(grids, 1, seeds))) / math.sqrt(2)
            is_real = (np.arange(size) % 2 == 1) & (kind == FAMILY_KINDS[2])
            values += 3.0 * is_real[:, None]
            adjusted = _misses(values, holm_levels(t_p_values(values)))[:, ~is_real].any(axis=1).mean()
            uncorrected = _misses(values, LEVEL)[:, ~is_real].any(axis=1).mean()
            shares = {"Holm": adjusted, "standard error": _error(adjusted, grids), "uncorrected": uncorrected}
            about: Row = {"contrasts": kind, "family": size, "seeds": seeds, "grids": grids}
            rows.append(about | {name: float(share) for name, share in shares.items()})
    return rows


def _misses(values: np.ndarray, level: float | np.ndarray) -> np.ndarray:
    """Which intervals exclude 0."""
    low, high = t_intervals(values, level)
    return (low > 0) | (high < 0)


def power(grids: int = GRIDS) -> list[Row]:
    """How often a true effect is detected, beside the power of ``statistics.paired_power``."""
    rows: list[Row] = []
    for _, seeds, draws in _conditions("power", ("power",)):
        for effect in EFFECTS:
            detected = float(_misses(draws.normal(effect, 1.0, size=(grids, seeds)), LEVEL).mean())
            formula = paired_power(effect, 1.0, seeds)
            row: Row = {"effect": effect, "seeds": seeds, "grids": grids, "simulated": detected, "formula": formula}
            rows.append(row | {"standard error": _error(formula, grids)})
    return rows


def _conditions(study: str, kinds: Iterable[str]) -> Iterator[tuple[str, int, np.random.Generator]]:
    """Every kind with every number of seeds, and its own stream of random numbers."""
    for place, kind in enumerate(kinds):
        for seeds in SEEDS:
            yield kind, seeds, np.random.default_rng([*study.encode(), place, seeds])
