"""The words of verdicts, each in one place: what an interval says of a claim, and what that bears on.

A verdict is about the runs of this page at equal tokens. Its *regime* is next to it and says what kind of result it is.
It changes no verdict.
"""

from enum import StrEnum

AS_CLAIMED, AGAINST = "as claimed", "against"
WITHIN = "within the margin"  # no difference is shown, and none beyond the margin is left
OPEN = "open"
SETTLED = (AS_CLAIMED, AGAINST)
NOT_MEASURED = "not measured"  # what a claim is called whose runs are missing
NOT_JUDGED = "not judged"  # of a scale whose numbers mean nothing


class Regime(StrEnum):
    """What kind of result a verdict is of. Of several that hold the first is named."""

    BY_CONSTRUCTION = "by construction"  # it follows from the formula
    CONFOUNDED = "confounded"  # something else that differs between the sides may explain all of it
    OTHER = "other subject"  # another quantity, protocol or model than the claim's
    PLATEAU = "plateau"  # no side of a compared pair passes the bigram baseline, or the control has not learned
    BELOW = "below counting"  # the same of the best method without a network
    SPEED = "speed"  # equal at equal multiples of the crossing
    SPEED_OR_QUALITY = "speed or quality"  # which of them is not shown
    QUALITY = "quality"  # a difference at equal multiples of the crossing too
    AS_PUBLISHED = "as published"  # none of these
    NONE = ""  # not measured

    @property
    def is_past_counting(self) -> bool:
        """Whether nothing about the models or the test keeps the result from bearing on the claim."""
        return self in (Regime.SPEED, Regime.SPEED_OR_QUALITY, Regime.QUALITY, Regime.AS_PUBLISHED)

    @property
    def is_below(self) -> bool:
        """Whether a simpler method does as well."""
        return self in (Regime.BELOW, Regime.PLATEAU)


class Direction(StrEnum):
    """Which way the difference goes, as the interval shows it."""

    POSITIVE = "positive"  # as the relation reads its sides: a is better than b
    NEGATIVE = "negative"
    OPEN = "open"


class Size(StrEnum):
    """How large the difference is against the margin, as the interval shows it; of a ratio, against the claimed one."""

    INSIDE = "inside"
    BEYOND = "beyond"
    ASTRIDE = "astride"
    NONE = ""  # without a margin or an interval


class Reason(StrEnum):
    """Why a claim has no verdict. Their order is that of the checks: the first that holds is named."""

    UNTESTABLE = "not testable at this scale"
    TEXT = "different held-out text"
    QUESTION = "another question"
    NO_RUN = "no run"
    UNFINISHED = "runs missing"
    LOST = "runs without a result"
    SILENT = "all outputs equal"
    ONE_SEED = "one seed"
    NO_NOISE = "no noise"
    POWER = "power"
    NONE = ""  # it has one

    @property
    def is_measured(self) -> bool:
        """Whether runs speak about the claim at all."""
        return self in (Reason.NO_NOISE, Reason.POWER, Reason.NONE)
