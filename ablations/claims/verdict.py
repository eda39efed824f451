"""The verdict on a claim: what was asked, what was measured, how it was decided."""

from dataclasses import dataclass

from ablations.claims.contrasts import Computing
from ablations.core.statistics import Interval
from ablations.measurements.example_scores import Resampled
from ablations.schema.claim import Claim


@dataclass(frozen=True)
class Verdict:
    """One claim and the measured answer. Effects are in the metric's unit; positive means a is better than b.

    Attributes:
        outcome: ``replicates``, ``contradicts`` or ``not resolved``.
        reason: Why nothing was decided, or what else to know; empty where the interval says it all.
        sides: The sides for people, later ones without what all share.
        raw: The 95 % interval of the paired difference, or of what the relation has in its place (the ratio, the
            smallest step, the slope, the difference of differences or of spreads); ``adjusted``: the one that decides.
        p: Two-sided, of the paired t test (of the two one-sided tests for near-equality); ``adjusted_p``: Holm's.
        rank_p: Of the signed-rank test; None below six pairs.
        detectable: The smallest true effect that would have been seen with 80 % power at the adjusted level.
        family: The number of distinct tests that Holm's correction counted.
        published: The printed values of the sides as a sentence, in the paper's own metric; never mixed with ours.
        proxy: How the paper's metric and ours differ, and our data, where they are an own split.
        runs: The run ids of each seed, in the order of the sides.
        computing: What the runs behind the verdict took.
        sentence: The verdict for people, one sentence, by `verdict_text`.
        resampled: Bootstrap intervals, not adjusted: information, they decide nothing; None where there are not two
            sides.
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
        """The second side; where there are more, all but the first."""
        return "; ".join(self.sides[1:])

    @property
    def effect(self) -> float | None:
        """How much better a is than b, or what the relation has in its place; None without data."""
        return self.raw.mean

    @property
    def n(self) -> int:
        """Seeds that all sides have."""
        return self.raw.n
