"""Ridge regression in closed form on standardised features, its penalty chosen by inner folds.

One Gram matrix serves all folds: that of the other folds is the whole minus that of the fold. One eigendecomposition
of it serves all penalties.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

PENALTIES = tuple(10.0**power for power in range(-5, 2))  # per training example


@dataclass(frozen=True, eq=False)
class Features:
    """Features scaled to unit variance, with the sums that regressions need.

    Attributes:
        x: Standardised features ``[n d]``.
        mean: What was subtracted ``[d]``.
        scale: What the rest was divided by ``[d]``; 1 where a feature is constant.
    """

    x: Float[np.ndarray, "n d"]
    mean: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]

    @classmethod
    def of(cls, raw: Float[np.ndarray, "n d"]) -> "Features":
        """Standardises features by their own means and standard deviations."""
        x = raw.astype(np.float64)
        mean = x.mean(0)
        x -= mean
        scale = np.sqrt((x**2).mean(0))
        scale = np.where(scale > 1e-8 * (1 + np.abs(mean)), scale, 1.0)
        x /= scale
        return cls(x, mean, scale)

    def applied(self, raw: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m d"]:
        """Other features, by the same means and standard deviations."""
        return (raw - self.mean) / self.scale


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over some examples: of products of features, of features times targets, of both, and their number."""

    gram: Float[np.ndarray, "d d"]
    cross: Float[np.ndarray, "d k"]
    x: Float[np.ndarray, " d"]
    y: Float[np.ndarray, " k"]
    n: int

    @classmethod
    def of(cls, x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n k"]) -> "Sums":
        """The sums over these examples."""
        return cls(x.T @ x, x.T @ y, x.sum(0), y.sum(0), len(x))

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            self.gram + other.gram, self.cross + other.cross, self.x + other.x, self.y + other.y, self.n + other.n
        )

    def __sub__(self, other: "Sums") -> "Sums":
        return Sums(
            self.gram - other.gram, self.cross - other.cross, self.x - other.x, self.y - other.y, self.n - other.n
        )


class Path:
    """The solutions for every penalty, from one decomposition; the intercept bears no penalty.

    ``min |y - b - x w|^2 + penalty * n * |w|^2``
    """

    def __init__(self, sums: Sums) -> None:
        self.n, self.x, self.y = sums.n, sums.x / sums.n, sums.y / sums.n
        centred = sums.gram - np.outer(sums.x, self.x)
        self.values, self.vectors = np.linalg.eigh(centred)
        self.turned = self.vectors.T @ (sums.cross - np.outer(sums.x, self.y))

    def weights(self, penalty: float) -> tuple[Float[np.ndarray, "d k"], Float[np.ndarray, " k"]]:
        """Weights and intercepts for one penalty."""
        weights = self.vectors @ (self.turned / (np.maximum(self.values, 0) + penalty * self.n)[:, None])
        return weights, self.y - self.x @ weights

    def errors(
        self, x: Float[np.ndarray, "m d"], y: Float[np.ndarray, "m k"], penalties: Sequence[float]
    ) -> Float[np.ndarray, " p"]:
        """The summed squared error on other examples for each penalty."""
        turned, rest = (x - self.x) @ self.vectors, y - self.y
        values = np.maximum(self.values, 0)
        answers = [turned @ (self.turned / (values + penalty * self.n)[:, None]) for penalty in penalties]
        return np.array([((rest - answer) ** 2).sum() for answer in answers])


def tried(
    features: Features,
    y: Float[np.ndarray, "n k"],
    fold: Int[np.ndarray, " n"],
    penalties: Sequence[float] = PENALTIES,
) -> tuple[Float[np.ndarray, " p"], Sums]:
    """The squared error of each penalty, summed over inner folds, and the sums over all examples.

    Args:
        y: Their targets: one column a class, or one column of real numbers.
        fold: The number of each example's fold.
        penalties: The penalties, per training example.
    """
    masks = [fold == number for number in np.unique(fold)]
    parts = [Sums.of(features.x[mask], y[mask]) for mask in masks]
    whole = sum(parts[1:], parts[0])
    errors = np.zeros(len(penalties))
    for mask, part in zip(masks, parts, strict=True):
        errors += Path(whole - part).errors(features.x[mask], y[mask], penalties)
    return errors, whole


@dataclass(frozen=True, eq=False)
class Reader:
    """A fitted ridge regression.

    Attributes:
        features: Holds the means and deviations of the training examples.
        weights: Weights on standardised features ``[d k]``.
        intercept: Intercepts ``[k]``.
        penalty: The chosen penalty, per training example.
    """

    features: Features
    weights: Float[np.ndarray, "d k"]
    intercept: Float[np.ndarray, " k"]
    penalty: float

    def __call__(self, raw: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m k"]:
        """The outputs for other examples."""
        return self.features.applied(raw) @ self.weights + self.intercept


def fitted(features: Features, whole: Sums, errors: Float[np.ndarray, " p"]) -> Reader:
    """The regression on all examples with the penalty of the least error in `tried`."""
    penalty = PENALTIES[int(errors.argmin())]
    return Reader(features, *Path(whole).weights(penalty), penalty)
