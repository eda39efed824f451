"""Simulated pairs of arms that differ in speed alone, or in quality alone: how often is each said of them?

A curve falls as those of the records do: above the bar by ``-(steep / bend) (1 - exp(-bend x))`` nats, where ``x`` is
the logarithm of the tokens over those of the crossing. In the last sixth of a training, where the learning rate goes to
0, it flattens. It is measured at twelve points. Runs of an arm differ by a stretch, an offset, and noise at each point,
as large as in the records.

*Speed*: one arm's curve is the other's, stretched in time. *Quality*: it lies a constant below. Both are scaled so that
the arms differ by ``effect`` nats at the end. The classes are those of ``claims.alignment``. Simpler rules, and a
bootstrap over runs, are compared with them.
"""

import numpy as np
from scipy import stats

from ablations.core.crossing import EARLIER, aligned, is_quality, is_speed, left_by_offset, nearest
from ablations.core.statistics import LEVEL
from benchmarks.simulation.simulation import GRIDS, SEEDS, Row, binomial_error, conditions, contrasts

POINTS = 12
X = np.log(np.arange(1, POINTS + 1) / POINTS)  # logarithms of tokens, as shares of a training
EARLY = np.exp(X) <= EARLIER + 1e-9  # the points before the last sixth
FORMS = {"bending": (0.75, 0.4), "nearly straight": (0.65, 0.25)}  # nats an e-fold at the crossing, and how it bends
FLAT = np.array([0.0] * (POINTS - 2) + [0.012, 0.033])  # nats by which the end of a schedule lies above the form
NOISE = (0.03, 0.015, 0.01)  # standard deviations: of the logarithm of a stretch, of an offset and of a point, nats
MULTIPLES = (1.6, 3.2)  # of its crossing that the slower arm reaches
EFFECTS = (0.05, 0.1, 0.2)  # nats at equal tokens
ENDS = ("not flat", "flat")
TRUTHS = ("speed", "quality")
MARGIN = 0.02  # nats
_RESAMPLED, _TIMES = 1_000, 400  # grids and resamples of the bootstrap, which is slow


def form(x: np.ndarray, steep: float, bend: float) -> np.ndarray:
    """A curve over the bar at logarithms of multiples of the crossing."""
    return -(steep / bend) * (1 - np.exp(-bend * x))


def _place(loss: float, steep: float, bend: float) -> float:
    """The logarithm of the multiple at which a curve has a loss over the bar."""
    return float(-np.log1p(loss * bend / steep) / bend)


def arms(
    draws: np.random.Generator,
    truth: str,
    kind: str,
    multiple: float,
    effect: float,
    shape: tuple[int, int],
    flat: bool,
) -> np.ndarray:
    """The curves of both arms, the better first ``[grids, 2, seeds, points]``, over the bar.

    Args:
        draws: The random numbers.
        truth: One of `TRUTHS`.
        kind: One of `FORMS`.
        multiple: Of its crossing that the worse arm reaches, without noise.
        effect: By how much the better arm is below it at the end.
        shape: Grids and seeds.
        flat: Whether curves flatten at the end.
    """
    steep, bend = FORMS[kind]
    end = np.log(multiple)
    final = float(form(end, steep, bend))
    ahead = _place(final - effect, steep, bend) - end if truth == "speed" else 0.0
    below = effect if truth == "quality" else 0.0
    stretch, offset, point = NOISE
    lots = [(draws.normal(0, stretch, (*shape, 1)), draws.normal(0, offset, (*shape, 1)),
             draws.normal(0, point, (*shape, POINTS))) for _ in range(2)]  # fmt: skip
    better, worse = (
        form(X + end + lead - moved, steep, bend) - lower + higher + noise + flat * FLAT
        for (moved, higher, noise), lead, lower in zip(lots, (ahead, 0.0), (below, 0.0), strict=True)
    )
    return np.stack([better, worse], axis=1)


def error_rates(grids: int = GRIDS // 2) -> list[Row]:
    """How often each class is said, by what is true.

    ``quality`` and ``speed`` are the classes. ``quality by the end`` is the interval at the largest multiple alone,
    without that a sixth earlier; ``quality by bootstrap`` the same of percentiles, where no end is flat and the effect
    is largest. ``speed by size`` is the band alone, without what an offset would leave.
    """
    kinds = [
        (truth, kind, flat, multiple, effect)
        for truth in TRUTHS for kind in FORMS for flat in (True, False) for multiple in MULTIPLES for effect in EFFECTS
    ]  # fmt: skip
    rows: list[Row] = []
    for (truth, kind, flat, multiple, effect), seeds, draws in conditions("alignment", kinds, SEEDS):
        curves = arms(draws, truth, kind, multiple, effect, (grids, seeds), flat)
        ends = curves[..., -1].mean(axis=-1)
        found, left = ends[:, 1] - ends[:, 0], _left(curves, ends)
        low, high, middle = _interval(X, curves)
        early = _interval(X[EARLY], curves[..., EARLY])
        by_end = is_quality(low, high, found)
        by_size = ~by_end & is_speed(low, high, found, np.inf, MARGIN)
        quality = by_end & is_quality(early[0], early[1], found)
        speed = ~by_end & is_speed(low, high, found, left, MARGIN)
        resampled = truth == "speed" and not flat and effect == EFFECTS[-1]
        rows.append({
            "truth": truth, "form": kind, "end": ENDS[flat], "multiple": multiple, "effect": effect, "seeds": seeds,
            "grids": grids, "aligned": float(np.nanmean(middle)), "left by an offset": float(np.nanmean(left)),
            "quality": float(quality.mean()), "speed": float(speed.mean()),
            "standard error": binomial_error(float(quality.mean()), grids),
            "quality by the end": float(by_end.mean()), "speed by size": float(by_size.mean()),
            "quality by bootstrap": _by_bootstrap(draws, curves[:_RESAMPLED]) if resampled else None,
        })  # fmt: skip
    return rows


def _interval(x: np.ndarray, curves: np.ndarray, level: float = LEVEL) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ends and middle of the interval of the aligned effect ``[grids]``; NaN where some run has no crossing."""
    values = aligned(x, curves, 0.0, axes=(-2, -1))
    difference, error, df = (part[:, 0] for part in contrasts(values))
    half = stats.t.ppf((1 + level) / 2, df) * error
    return difference - half, difference + half, difference


def _left(curves: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """What a constant offset of the size of the effect would leave ``[grids]``, as verdicts have it."""
    weights, effect = np.array([-1.0, 1.0]), ends[:, 1] - ends[:, 0]
    forms = [left_by_offset(X, curves[:, side], ends - ends[:, [side]], weights, 0.0) for side in range(2)]
    return nearest(np.array(forms), effect)


def _by_bootstrap(draws: np.random.Generator, curves: np.ndarray) -> float:
    """How often 95 % percentiles of the aligned effect lie above 0, of runs drawn again from each arm."""
    again = np.stack([_resampled(draws, pair) for pair in curves])
    return float((np.nanquantile(again, (1 - LEVEL) / 2, axis=1) > 0).mean())


def _resampled(draws: np.random.Generator, pair: np.ndarray) -> np.ndarray:
    """The aligned effects of both arms' runs ``[2, seeds, points]``, drawn again with replacement ``[_TIMES]``."""
    seeds = pair.shape[1]
    drawn = draws.integers(0, seeds, (_TIMES, 2, seeds))
    again = np.stack([pair[arm][drawn[:, arm]] for arm in range(2)], axis=1)
    means = aligned(X, again, 0.0, axes=(-2, -1)).mean(axis=-1)
    return means[:, 1] - means[:, 0]
