"""Variances of cells with few seeds, moderated: each is shrunk towards what its group has in common.

Empirical Bayes as in Smyth (Statistical Applications in Genetics and Molecular Biology 3, 2004, article 3): the true
variances of a group are taken as draws from a scaled inverse chi-squared distribution with scale ``s0`` squared and
``d0`` degrees of freedom, which are estimated from the logarithms of the sample variances. A cell's own variance with
``d`` degrees of freedom then counts ``d`` times, the common one ``d0`` times. Cells that vary alike share nearly
everything, cells that do not share little. No cell leaves its group because of its variance.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from scipy.special import digamma, polygamma

Cell = TypeVar("Cell", bound=Hashable)

_FLOOR = 1e-5  # of the median variance of the group, as in limma: a logarithm needs a variance above 0
_ROUNDING = 1e-12  # values that differ by less, relative to the largest, are equal


@dataclass(frozen=True)
class Variance:
    """An estimated variance and how well it is known.

    Attributes:
        value: In the squared unit of the metric.
        df: Degrees of freedom; infinite if the variance is known.
        most: The most degrees of freedom that a sum of such variances may claim: those of all samples that they were
            estimated from. Infinite where each variance comes from its own sample.
    """

    value: float
    df: float
    most: float = np.inf


@dataclass(frozen=True)
class Group(Generic[Cell]):
    """The moderated variances of one group of cells.

    Attributes:
        variances: Of each cell; empty if no cell has two values that differ.
        prior: What a cell without a variance of its own gets; None if there is none.
        prior_df: Degrees of freedom that the prior counts; infinite where the cells vary as if they had one variance.
        df: Degrees of freedom of all samples of the group.
        still: Cells with two values or more, all equal. Their variance was raised to a floor to estimate the prior.
    """

    variances: Mapping[Cell, Variance] = field(default_factory=dict)
    prior: float | None = None
    prior_df: float = 0.0
    df: float = 0.0
    still: tuple[Cell, ...] = ()


def moderated(samples: Mapping[Cell, Sequence[float]]) -> Group[Cell]:
    """The variance of one run of each cell of a declared group.

    Args:
        samples: The values of each cell, one for each seed (or the differences of each block). A cell with fewer than
            two values has no variance of its own and gets that of the group.

    >>> group = moderated({"a": [1.0, 1.2, 1.1], "b": [3.0, 3.3, 3.1], "c": [2.0]})
    >>> {cell: (round(variance.value, 4), variance.df) for cell, variance in group.variances.items()}
    {'a': (0.0167, 4.0), 'b': (0.0167, 4.0), 'c': (0.0167, 4.0)}
    """
    own = {cell: own_variance(values) for cell, values in samples.items() if len(values) > 1}
    still = tuple(cell for cell, variance in own.items() if variance.value == 0)
    total = float(sum(variance.df for variance in own.values()))
    if len(still) == len(own):
        return Group(df=total, still=still)
    values = np.array([own[cell].value if cell in own else 0.0 for cell in samples])
    df = np.array([own[cell].df if cell in own else 0.0 for cell in samples])
    scale, prior_df = (float(part) for part in prior(values, df))
    shrunk, its_df = shrink(values, df, np.float64(scale), np.float64(prior_df))
    variances = {
        cell: Variance(float(value), float(freedom), total)
        for cell, value, freedom in zip(samples, shrunk, its_df, strict=True)
    }
    return Group(variances, scale, prior_df, total, still)


def own_variance(values: Sequence[float]) -> Variance:
    """The sample variance (n - 1) of two values or more; exactly 0 if they differ only by rounding."""
    spread = float(np.std(values, ddof=1))
    is_rounding = spread <= _ROUNDING * max(map(abs, values))
    return Variance(0.0 if is_rounding else spread**2, len(values) - 1)


def prior(variances: np.ndarray, df: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The common variance and its degrees of freedom (Smyth 2004, section 6.2; Phipson and others 2016).

    Args:
        variances: Sample variances ``[..., cells]``; at least one of a group is above 0.
        df: Their degrees of freedom ``[cells]``; a cell with 0 has no variance and does not count.

    Returns:
        Two arrays ``[...]``. The degrees of freedom are infinite where the logarithms of the variances differ by no
        more than chance; the common variance is then the pooled one.
    """
    own = df > 0
    variances, df = variances[..., own], df[own]
    pooled = (variances * df).sum(axis=-1) / df.sum()
    if len(df) < 2:
        return pooled, np.full(pooled.shape, np.inf)
    logs = np.log(np.maximum(variances, _floor(variances))) - digamma(df / 2) + np.log(df / 2)
    beyond_chance = logs.var(axis=-1, ddof=1) - polygamma(1, df / 2).mean()
    varies = beyond_chance > 0
    prior_df = np.where(varies, 2 * inverse_trigamma(np.where(varies, beyond_chance, 1.0)), np.inf)
    finite = np.where(varies, prior_df, 1.0)
    common = np.exp(logs.mean(axis=-1) + digamma(finite / 2) - np.log(finite / 2))
    return np.where(varies, common, pooled), prior_df


def _floor(variances: np.ndarray) -> np.ndarray:
    median = np.median(variances, axis=-1, keepdims=True)
    return _FLOOR * np.where(median > 0, median, variances.mean(axis=-1, keepdims=True))


def shrink(
    variances: np.ndarray, df: np.ndarray, common: np.ndarray, prior_df: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The moderated variances and their degrees of freedom ``[..., cells]``, none above that of the whole group.

    Args:
        variances: Sample variances ``[..., cells]``.
        df: Their degrees of freedom ``[cells]``, 0 for a cell without a variance.
        common: The common variance ``[...]``.
        prior_df: Its degrees of freedom ``[...]``.
    """
    common, prior_df = common[..., None], prior_df[..., None]
    finite = np.where(np.isinf(prior_df), 1.0, prior_df)
    both = (df * variances + finite * common) / (df + finite)
    return np.where(np.isinf(prior_df), common, both), np.minimum(df + prior_df, df.sum())


def inverse_trigamma(value: np.ndarray) -> np.ndarray:
    """X with trigamma(x) = ``value`` above 0, by Newton's method on 1 / trigamma (Smyth 2004, appendix)."""
    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = polygamma(1, x)
        step = trigamma * (1 - trigamma / value) / polygamma(2, x)
        x = x + step
        if np.all(-step < 1e-12 * x):
            break
    return x
