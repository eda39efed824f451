"""Simulated grids whose arms continue from common trunks: do contrasts within trunks keep their promises?

A run is the sum of its trunk, which all arms of a seed share, and its own noise. Two other ways to compare arms are
simulated with the one that verdicts use. One takes residuals of cells and trunks together, moderated over cells as
elsewhere. The other takes runs as separate draws.
"""

from collections.abc import Callable, Mapping

import numpy as np
from scipy import stats

from ablations.core.estimates import LESS
from ablations.core.statistics import LEVEL
from benchmarks.simulation.simulation import (
    CELLS,
    FAMILIES,
    GRIDS,
    LOOKS,
    Row,
    binomial_error,
    conditions,
    moderated,
    rejected,
    runs,
)
from benchmarks.simulation.simulation import contrasts as unpaired

ARMS = (3, 5)  # the control included
ICC = (0.5, 0.9)  # share of the trunk in the variance of a quiet arm's run

Contrasts = tuple[np.ndarray, np.ndarray, np.ndarray]


def within(values: np.ndarray) -> Contrasts:
    """Each arm minus the first within each trunk, as ``estimates.blocked`` does it; see `simulation.contrasts`."""
    differences, seeds = values[..., 1:, :] - values[..., :1, :], values.shape[-1]
    error = np.sqrt(differences.var(axis=-1, ddof=1) / seeds)
    return differences.mean(axis=-1), error, np.full(error.shape, seeds - 1.0)


def two_way(values: np.ndarray) -> Contrasts:
    """The same differences, their noise from the residuals of arms and trunks, moderated over arms."""
    arms, seeds = values.shape[-2:]
    left = values - values.mean(axis=-2, keepdims=True)
    df = np.full(arms, (seeds - 1) * (arms - 1) / arms)
    variances, freedom = moderated(left.var(axis=-1, ddof=1) * arms / (arms - 1), df)
    parts, means = variances / seeds, values.mean(axis=-1)
    total = parts[..., 1:] + parts[..., :1]
    known = parts[..., 1:] ** 2 / freedom[..., 1:] + parts[..., :1] ** 2 / freedom[..., :1]
    least = np.minimum(freedom[..., 1:], freedom[..., :1])
    freedom = np.minimum(np.maximum(least, total**2 / known - LESS), df.sum())
    return means[..., 1:] - means[..., :1], np.sqrt(total), freedom


METHODS: Mapping[str, Callable[[np.ndarray], Contrasts]] = {
    "within trunks": within,
    "two-way residuals": two_way,
    "separate draws": unpaired,
}


def arms_of_trunks(draws: np.random.Generator, grids: int, arms: int, kind: str, icc: float) -> np.ndarray:
    """Runs ``[grids, arms, seeds]`` without any true difference, as many seeds as at the last look."""
    trunks = draws.normal(size=(grids, 1, LOOKS.n[-1])) * np.sqrt(icc / (1 - icc))
    return runs(draws, grids, arms, LOOKS.n[-1], kind) + trunks


def in_blocks(grids: int = 2 * GRIDS) -> list[Row]:
    """How often two looks at a family of contrasts among arms err, and how often intervals cover.

    A family has as many metrics as it needs, each with its own noise and all contrasts with the control. ``coverage``
    is the share over both looks and all contrasts of 95 % intervals, ``lowest`` and ``highest`` that of a single arm.
    """
    rows: list[Row] = []
    kinds = [(arms, icc, kind) for arms in ARMS for icc in ICC for kind in CELLS]
    for (arms, icc, kind), size, draws in conditions("blocks", kinds, FAMILIES):
        metrics = -(-size // (arms - 1))
        values = arms_of_trunks(draws, grids * metrics, arms, kind, icc)
        for method, contrasts in METHODS.items():
            found = [contrasts(values[..., :n]) for n in LOOKS.n]
            p = [2 * stats.t.sf(np.abs(value) / error, df) for value, error, df in found]
            of_family = np.stack(p, axis=-1).reshape(grids, -1, len(LOOKS.n))[:, :size]
            share = float((rejected(of_family) > 0).any(axis=1).mean())
            covers = np.stack([one > 1 - LEVEL for one in p])
            of_arms = covers.mean(axis=1)
            rows.append({
                "arms": arms, "icc": icc, "noisier cells": kind, "family": size, "method": method, "grids": grids,
                "errs": share, "standard error": binomial_error(share, grids), "coverage": float(covers.mean()),
                "lowest": float(of_arms.min()), "highest": float(of_arms.max()),
            })  # fmt: skip
    return rows
