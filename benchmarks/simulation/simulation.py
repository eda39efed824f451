"""Checks the intervals and corrections of verdicts on simulated grids whose truth is known.

All functions take many simulated grids at once; tests hold them equal to those that verdicts use. A grid is a baseline
and its variants, whose runs are independent: measured runs of one seed are no more alike than others. Claims compare
each variant with the baseline. Every condition draws from its own stream, so the numbers depend only on the settings.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
from scipy import stats

from ablations.core import power as formulas
from ablations.core.estimates import LESS, Estimate, linear
from ablations.core.examples import example_variance, run_variance
from ablations.core.looks import Looks, nominal_alpha
from ablations.core.moderation import moderated as group
from ablations.core.moderation import prior, shrink
from ablations.core.statistics import LEVEL

SEEDS = (3, 4, 8)
LOOKS = Looks((4, 8))
FAMILIES = (1, 5, 9)
VARIANTS = 7  # of the grids whose coverage is measured
EFFECTS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)  # in standard deviations of a run
GRIDS = 4_000
_SIGMA = 0.75  # of the logarithm
_RARE, _FAR = 0.2, 10.0  # the share of a bimodal cell's runs that fail, and by how much

Row = dict[str, Any]
Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
Variances = tuple[np.ndarray, np.ndarray]


def own(variances: np.ndarray, df: np.ndarray) -> Variances:
    """Each cell's own variance: Welch's test, with fewer degrees of freedom."""
    return variances, np.broadcast_to(df, variances.shape)


def moderated(variances: np.ndarray, df: np.ndarray) -> Variances:
    """``moderation.moderated`` for groups ``[..., cells]``."""
    return shrink(variances, df, *prior(variances, df))


def pooled(variances: np.ndarray, df: np.ndarray) -> Variances:
    """One variance for all cells."""
    common = (variances * df).sum(axis=-1, keepdims=True) / df.sum()
    return np.broadcast_to(common, variances.shape), np.full(variances.shape, df.sum())


METHODS: Mapping[str, Callable[[np.ndarray, np.ndarray], Variances]] = {
    "moderated": moderated,
    "own variances": own,
    "one pooled variance": pooled,
}


def contrasts(values: np.ndarray, method: str = "moderated") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each variant minus the baseline, as ``estimates.linear`` does it.

    Args:
        values: Runs ``[grids, cells, seeds]``, the baseline first, as many seeds in each cell.
        method: One of `METHODS`.

    Returns:
        The differences of means, their standard errors and degrees of freedom ``[grids, variants]``.
    """
    seeds, df = values.shape[-1], np.full(values.shape[-2], values.shape[-1] - 1.0)
    variances, freedom = METHODS[method](values.var(axis=-1, ddof=1), df)
    parts, means = variances / seeds, values.mean(axis=-1)
    total = parts[..., 1:] + parts[..., :1]
    known = parts[..., 1:] ** 2 / freedom[..., 1:] + parts[..., :1] ** 2 / freedom[..., :1]
    least = np.minimum(freedom[..., 1:], freedom[..., :1])
    most = np.inf if method == "own variances" else df.sum()
    freedom = np.minimum(np.maximum(least, total**2 / known - LESS), most)
    return means[..., 1:] - means[..., :1], np.sqrt(total), freedom


def p_values(values: np.ndarray, method: str = "moderated") -> np.ndarray:
    """The two-sided p of each variant's difference from the baseline ``[grids, variants]``."""
    difference, error, df = contrasts(values, method)
    return 2 * stats.t.sf(np.abs(difference) / error, df)


def rejected(p: np.ndarray, looks: Looks = LOOKS, level: float = LEVEL) -> np.ndarray:
    """The look at which ``looks.decided`` rejects each claim of families ``[grids, claims, looks]``, from 1; else 0."""
    when, size = np.zeros(p.shape[:2], dtype=int), p.shape[1]
    alphas = np.array([nominal_alpha((1 - level) / left, looks) for left in range(size, 0, -1)])
    for look in range(p.shape[2]):
        waiting = np.where(when > 0, -1.0, p[:, :, look])  # what is decided comes first, and frees its share
        order = np.argsort(waiting, axis=1, kind="stable")
        passes = np.logical_and.accumulate(np.take_along_axis(waiting, order, axis=1) < alphas, axis=1)
        found = np.empty_like(passes)
        np.put_along_axis(found, order, passes, axis=1)
        when[found & (when == 0)] = look + 1
    return when


def at_looks(values: np.ndarray, method: str = "moderated", looks: Looks = LOOKS) -> np.ndarray:
    """The p values of each variant at each look ``[grids, variants, looks]``."""
    return np.stack([p_values(values[..., :n], method) for n in looks.n], axis=-1)


# --- what is drawn: runs with mean 0


def _normal(draws: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return draws.normal(size=shape)


NOISE: dict[str, Draw] = {  # of a run: mean 0 and standard deviation 1
    "normal": _normal,
    "heavy-tailed": lambda draws, shape: draws.standard_t(3, size=shape) / math.sqrt(3),
    "skewed": lambda draws, shape: (
        (draws.lognormal(0, _SIGMA, size=shape) - math.exp(_SIGMA**2 / 2))
        / math.sqrt(math.expm1(_SIGMA**2) * math.exp(_SIGMA**2))
    ),
}


def ratios(kind: str, cells: int, ratio: float) -> np.ndarray:
    """The variances of cells ``[cells]``, 1 and ``ratio``, the baseline first."""
    variances = np.ones(cells)
    noisy = {"baseline": slice(0, 1), "one variant": slice(1, 2), "half": slice(cells - cells // 2, cells)}
    variances[noisy[kind]] = ratio
    return variances


CELLS: dict[str, tuple[str, float]] = {  # which cells are noisier than the others, and by how much
    "all alike": ("baseline", 1.0),
    "half of the cells, 4 times": ("half", 4.0),
    "half of the cells, 9 times": ("half", 9.0),
    "one variant, 4 times": ("one variant", 4.0),
    "one variant, 9 times": ("one variant", 9.0),
    "the baseline, 4 times": ("baseline", 4.0),
    "the baseline, 9 times": ("baseline", 9.0),
}
BIMODAL = "one other variant fails in a fifth of its runs"


def runs(draws: np.random.Generator, grids: int, cells: int, seeds: int, kind: str = "all alike") -> np.ndarray:
    """Runs ``[grids, cells, seeds]`` of cells without any true difference; `BIMODAL` is the last cell."""
    values = draws.normal(size=(grids, cells, seeds))
    if kind == BIMODAL:
        values[:, -1] += _FAR * ((draws.random((grids, seeds)) < _RARE) - _RARE)
        return values
    return values * np.sqrt(ratios(*_of(kind, cells)))[:, None]


def _of(kind: str, cells: int) -> tuple[str, int, float]:
    which, ratio = CELLS[kind]
    return which, cells, ratio


# --- what the simulation computes


def coverage(grids: int = GRIDS) -> list[Row]:
    """How often 95 % intervals of a variant's difference from the baseline cover the truth.

    ``coverage`` is the share over the contrasts of a grid of eight cells, ``lowest`` and ``highest`` that of a single
    contrast. ``width`` is the median width in standard deviations of a quiet cell's run.
    """
    rows: list[Row] = []
    kinds = [(kind, "normal") for kind in CELLS] + [("all alike", noise) for noise in NOISE if noise != "normal"]
    for (kind, noise), seeds, draws in conditions("coverage", kinds, SEEDS):
        shape = (grids, VARIANTS + 1, seeds)
        values = runs(draws, *shape, kind=kind) if noise == "normal" else NOISE[noise](draws, shape)
        for method in METHODS:
            difference, error, df = contrasts(values, method)
            half = stats.t.ppf((1 + LEVEL) / 2, df) * error
            covers = np.abs(difference) <= half
            shares = covers.mean(axis=0)
            rows.append({
                "noisier cells": kind, "noise": noise, "seeds": seeds, "method": method, "grids": grids,
                "coverage": float(covers.mean()), "standard error": _spread(covers.mean(axis=1)),
                "lowest": float(shares.min()), "highest": float(shares.max()), "width": float(np.median(2 * half)),
            })  # fmt: skip
    return rows


ANSWERS = {"runs much alike": 0.1, "runs differ": 0.6}
_QUESTIONS, _DOCUMENTS = 300, 100


def coverage_of_examples(grids: int = GRIDS // 4) -> list[Row]:
    """How often intervals cover the true difference over new runs and new questions, which is 0.

    300 questions in 100 documents are the same for all runs. The logit of the chance of a right answer adds up normal
    effects: the question's difficulty (standard deviation 1.5), the variant on the document and on the question (0.35
    each), and the run (0.1 or 0.6). Without the noise of examples an interval knows new runs only.
    """
    rows: list[Row] = []
    for kind, seeds, draws in conditions("examples", list(ANSWERS), SEEDS):
        ends: dict[str, list[tuple[float, float]]] = {"seeds": [], "seeds and examples": []}
        for _ in range(grids):
            for method, estimate in _of_answers(draws, seeds, ANSWERS[kind]).items():
                interval = estimate.interval()
                ends[method].append((cast(float, interval.low), cast(float, interval.high)))
        for method, edges in ends.items():
            low, high = np.array(edges).T
            share = float(np.mean((low <= 0) & (high >= 0)))
            rows.append({
                "answers": kind, "seeds": seeds, "method": method, "grids": grids, "coverage": share,
                "standard error": binomial_error(share, grids), "width": float(np.median(high - low)),
            })  # fmt: skip
    return rows


def _of_answers(draws: np.random.Generator, seeds: int, differ: float) -> dict[str, Estimate]:
    """The difference of two equally good variants in accuracy, without and with the noise of examples."""
    documents = np.repeat(np.arange(_DOCUMENTS), _QUESTIONS // _DOCUMENTS)
    logit = draws.normal(0.4, 1.5, _QUESTIONS) + draws.normal(0, 0.35, (2, 1, _DOCUMENTS))[..., documents]
    logit = logit + draws.normal(0, 0.35, (2, 1, _QUESTIONS)) + draws.normal(0, differ, (2, seeds, 1))
    right = (draws.random((2, seeds, _QUESTIONS)) < 1 / (1 + np.exp(-logit))).astype(float)
    scores = dict(zip("ab", right.mean(axis=2).tolist(), strict=True))
    of_runs = sum(run_variance(side, documents) for side in right)
    examples = example_variance(right[0].mean(axis=0) - right[1].mean(axis=0), documents, runs=of_runs)
    terms, noise = (("a", 1.0), ("b", -1.0)), group(scores).variances
    return {
        "seeds": linear(terms, scores, noise),
        "seeds and examples": linear(terms, scores, noise, examples),
    }


def _spread(values: np.ndarray) -> float:
    """Standard error of a mean over grids."""
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def binomial_error(share: float, trials: int) -> float:
    """Standard error of a simulated share."""
    return math.sqrt(share * (1 - share) / trials)


def family_wise_error(grids: int = 3 * GRIDS) -> list[Row]:
    """How often two looks at a family find an effect where there is none.

    Each method's share of grids with a false finding, by Holm's procedure within looks; ``uncorrected`` is that of
    moderated tests at 5 % at each look. Where every other effect is real, it is four standard deviations of a run, and
    only the others count. A bimodal cell's own claim is not counted: no test of means can know a failure that it has
    not seen (``own claim`` says how often it errs).
    """
    rows: list[Row] = []
    for kind, size, draws in conditions("families", [*CELLS, BIMODAL], FAMILIES):
        for effects in ("none", "every other one") if size > 1 else ("none",):
            extra = kind == BIMODAL and size == 1  # next to the only claim, a cell without one
            values = runs(draws, grids, size + 1 + extra, LOOKS.n[-1], kind)
            is_real = np.arange(size + extra) % 2 == 1 if effects != "none" else np.zeros(size + extra, dtype=bool)
            values[:, 1:] += 4.0 * is_real[:, None]
            last = size - (kind == BIMODAL and not extra)  # the claims that count
            row: Row = {"noisier cells": kind, "family": size, "real effects": effects, "grids": grids}
            for method in METHODS:
                p = at_looks(values, method)[:, :size]
                found = rejected(p) > 0
                row[method] = float(found[:, :last][:, ~is_real[:last]].any(axis=1).mean())
                if method == "moderated":
                    row["standard error"] = binomial_error(row[method], grids)
                    low = np.any(p < 1 - LEVEL, axis=2)[:, :last]
                    row["uncorrected"] = float(low[:, ~is_real[:last]].any(axis=1).mean())
                    row["own claim"] = float(found[:, last].mean()) if last < size and not is_real[last] else None
            rows.append(row)
    return rows


def power(grids: int = GRIDS) -> list[Row]:
    """How often one true effect in a grid is found by each look, and what the formula of a plan says of the first.

    ``seeds`` is the mean number that the claim takes. The formula takes the standard error and the degrees of freedom
    of the typical grid, as a plan does from its pilot.
    """
    rows: list[Row] = []
    for _, size, draws in conditions("power", [""], FAMILIES):
        level = 1 - nominal_alpha((1 - LEVEL) / size, LOOKS)
        values = runs(draws, grids, size + 1, LOOKS.n[-1])
        for effect in EFFECTS:
            moved = values.copy()
            moved[:, 1] += effect
            for method in METHODS:
                when = rejected(at_looks(moved, method))[:, 0]
                first = float((when == 1).mean())
                error, df = (float(np.median(part)) for part in contrasts(values[..., : LOOKS.n[0]], method)[1:])
                rows.append({
                    "effect": effect, "family": size, "method": method, "grids": grids, "first look": first,
                    "standard error": binomial_error(first, grids), "formula": formulas.power(effect, error, df, level),
                    "both looks": float((when > 0).mean()),
                    "seeds": LOOKS.n[0] + (LOOKS.n[1] - LOOKS.n[0]) * (1 - first),
                })  # fmt: skip
    return rows


def conditions(
    study: str, kinds: Sequence[Any], numbers: Sequence[int]
) -> Iterator[tuple[Any, int, np.random.Generator]]:
    """Every kind with every number, and its own stream of random numbers."""
    for place, kind in enumerate(kinds):
        for number in numbers:
            yield kind, number, np.random.default_rng([*study.encode(), place, number])
