"""The verdict on a claim: its test, its measurements, its decision."""

from dataclasses import dataclass, field, replace

from ablations.claims.alignment import Aligned
from ablations.claims.contrasts import Computing
from ablations.claims.outcomes import NOT_JUDGED, NOT_MEASURED, Direction, Reason, Regime, Size
from ablations.core.estimates import Estimate
from ablations.core.statistics import Interval
from ablations.measurements.trunks import WORD as CONTINUED
from ablations.schema.claim import Claim
from ablations.schema.metrics import EXACT


@dataclass(frozen=True)
class Verdict:
    """One claim and its verdict. Effects are in the metric's unit; positive means a is better than b.

    Attributes:
        outcome: ``as claimed``, ``against``, ``within the margin`` or ``open``: what direction and size come to.
        regime: What kind of result that is.
        direction: Whether the interval that decides excludes 0, and on which side; a positive one is as claimed.
        size: Where that interval lies against the margin.
        reason: Why the claim is open; `Reason.NONE` if it is not.
        notes: The reason in words, and what else to know: threats, floors, runs left out; each a sentence.
        sides: The names of the sides for people; later ones leave out what all share.
        margin: The largest difference that counts as equal; None if the claim has none.
        raw: The 95 % interval of the difference, or of the relation's own number (the ratio, the smallest step, the
            slope, the difference of differences or of spreads); ``adjusted``: the interval that decides.
        look: The look whose runs speak, from 1; ``looks``: the numbers of seeds at the grid's looks.
        n: The number of runs of the side that has fewest, at that look.
        seed_error, example_error: The standard error of the effect over new runs, and over new held-out examples; None
            where the scores of examples are not known.
        p: Two-sided p (of the two one-sided tests for equality); ``adjusted_p``: corrected for looks and claims.
        detectable: The smallest true effect with 80 % power at the level of ``adjusted``.
        pools: Within which groups the noise of runs is pooled, as a sentence.
        family: The number of distinct tests in the correction.
        test: Which of them it is, from 0; None if it is no test.
        published: The printed values of the sides as a phrase, in the paper's own metric; never mixed with ours.
        proxy: How the paper's metric differs from ours, and our own split, if the data have one.
        runs: The run ids of each side, by seed.
        tested: The estimates of ``adjusted``: one, or one for each step of an ordering.
        paired: Whether the sides are compared within trunks, models or seeds.
        computing: The cost of the runs behind the verdict, without trunks.
        continued: Whether it is about continued pretraining, another question than pretraining from random weights.
        trunks: The cost of the trunks that its runs continue, which other verdicts share.
        floors: For each side the method without a network that it is no better than; empty if it is better than all.
        unlearned: What the positive control has not learned, in words; empty if it has, or there is none.
        aligned: What is left at equal multiples of the crossing; None for what compares no losses with curves.
        sentence: The verdict as one sentence for people, by `verdict_text`.
    """

    claim: Claim
    outcome: str
    regime: Regime
    direction: Direction
    size: Size
    reason: Reason
    notes: tuple[str, ...]
    sides: tuple[str, ...]
    metric: str
    unit: str
    margin: float | None
    raw: Interval
    adjusted: Interval
    look: int
    looks: tuple[int, ...]
    n: int
    seed_error: float | None
    example_error: float | None
    p: float | None
    adjusted_p: float | None
    detectable: float | None
    pools: str
    family: int
    published: str
    proxy: str
    runs: tuple[tuple[str, ...], ...]
    computing: Computing
    test: int | None = None
    continued: bool = False
    trunks: Computing = field(default_factory=Computing)
    floors: tuple[str, ...] = ()
    unlearned: str = ""
    aligned: Aligned | None = None
    tested: tuple[Estimate, ...] = ()
    paired: bool = False
    sentence: str = ""

    @property
    def marks(self) -> tuple[str, ...]:
        """What a reader has to know of the claim wherever it is listed."""
        return (*[CONTINUED] * self.continued, *["post hoc"] * self.claim.post_hoc)

    @property
    def a(self) -> str:
        """The first side."""
        return self.sides[0]

    @property
    def b(self) -> str:
        """The second side, or all but the first."""
        return "; ".join(self.sides[1:])

    @property
    def remarks(self) -> str:
        """The notes in one line."""
        return "; ".join(self.notes)

    @property
    def effect(self) -> float | None:
        """The advantage of a over b, or the relation's own number; None without data."""
        return self.raw.mean

    @property
    def is_measured(self) -> bool:
        """Whether runs speak about the claim: at least two a side, or one where the metric has no noise."""
        return bool(self.n) and self.reason.is_measured

    @property
    def standing(self) -> str:
        """The outcome; without enough runs, that the claim is not measured."""
        return self.outcome if self.is_measured else NOT_MEASURED

    def unjudged(self) -> "Verdict":
        """The same numbers without an outcome: at a scale whose numbers mean nothing."""
        return replace(self, outcome=NOT_JUDGED, regime=Regime.NONE) if self.is_measured else self

    @property
    def is_exact(self) -> bool:
        """Whether the metric has no noise."""
        return self.claim.metric in EXACT
