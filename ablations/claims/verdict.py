"""The verdict on a claim: its test, its measurements, its decision."""

from dataclasses import dataclass

from ablations.claims.contrasts import Computing
from ablations.core.statistics import Interval
from ablations.measurements.example_scores import Resampled
from ablations.schema.claim import Claim


@dataclass(frozen=True)
class Verdict:
    """One claim and its verdict. Effects are in the metric's unit; positive means a is better than b.

    Attributes:
        outcome: ``replicates``, ``contradicts`` or ``not resolved``.
        reason: Why the claim is not decided, or further remarks; empty if the interval suffices.
        sides: The names of the sides for people; later ones leave out what all share.
        raw: The 95 % interval of the paired difference, or of the relation's own number (the ratio, the smallest step,
            the slope, the difference of differences or of spreads); ``adjusted``: the interval that decides.
        p: Two-sided p of the paired t test (of the two one-sided tests for near-equality); ``adjusted_p``: Holm's.
        rank_p: p of the signed-rank test; None below six pairs.
        detectable: The smallest true effect with 80 % power at the adjusted level.
        family: The number of distinct tests in Holm's correction.
        published: The printed values of the sides as a phrase, in the paper's own metric; never mixed with ours.
        proxy: How the paper's metric differs from ours, and our own split, if the data have one.
        runs: The run ids of each seed, in the order of the sides.
        computing: The cost of the runs behind the verdict.
        sentence: The verdict as one sentence for people, by `verdict_text`.
        resampled: Bootstrap intervals, not adjusted; they decide nothing. None unless there are two sides.
    """

    claim: Claim
    outcome: str
    reason: str
    sides: tuple[str, ...]
    metric: str
    unit: str
    raw: Interval
    adjusted: Interval
    p: float | None
    adjusted_p: float | None
    rank_p: float | None
    detectable: float | None
    family: int
    published: str
    proxy: str
    runs: tuple[tuple[str, ...], ...]
    computing: Computing
    resampled: Resampled | None
    sentence: str = ""

    @property
    def a(self) -> str:
        """The first side."""
        return self.sides[0]

    @property
    def b(self) -> str:
        """The second side, or all but the first."""
        return "; ".join(self.sides[1:])

    @property
    def effect(self) -> float | None:
        """The advantage of a over b, or the relation's own number; None without data."""
        return self.raw.mean

    @property
    def n(self) -> int:
        """The number of seeds that all sides have."""
        return self.raw.n
