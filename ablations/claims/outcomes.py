"""The words of verdicts, each in one place: outcomes, directions, sizes, and why a claim is open."""

from enum import StrEnum

from ablations.schema.claim import Claim

AS_CLAIMED, AGAINST, NOT_RESOLVED = "as claimed", "against the claim", "not resolved"  # what an interval comes to
REPLICATES, CONTRADICTS = "replicates", "contradicts"  # of a published claim
HOLDS, FAILS = "holds", "fails"  # of a hypothesis of the grid: nobody published it, so nothing replicates
NOT_COMPARABLE, BY_CONSTRUCTION, CONFOUNDED = "not comparable", "by construction", "confounded"
THREATS = (NOT_COMPARABLE, BY_CONSTRUCTION, CONFOUNDED)  # the kinds of `schema.claim.Threat`
NOT_MEASURED = "not measured"  # what a claim is called that has no outcome, because runs of a side are missing

NOT_JUDGED = "not judged"  # of a scale whose numbers mean nothing


def outcome(claim: Claim, decided: str) -> str:
    """The word for what an interval comes to: that of a threat to the claim, else of a published claim or a hypothesis.

    Args:
        decided: ``AS_CLAIMED``, ``AGAINST`` or ``NOT_RESOLVED``.
    """
    if decided == NOT_RESOLVED:
        return NOT_RESOLVED
    if claim.threat:
        return claim.threat.kind
    for_it, against_it = (REPLICATES, CONTRADICTS) if claim.claim else (HOLDS, FAILS)
    return for_it if decided == AS_CLAIMED else against_it


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
    NONE = ""  # without a margin or an interval, or where floors hide it


class Reason(StrEnum):
    """Why a claim is not resolved. Their order is that of the checks: the first that holds is named."""

    UNTESTABLE = "not testable at this scale"
    TEXT = "different held-out text"
    QUESTION = "another question"
    NO_RUN = "no run"
    UNFINISHED = "runs missing"
    LOST = "runs without a result"
    SILENT = "all outputs equal"
    ONE_SEED = "one seed"
    NO_NOISE = "no noise"
    RATE = "rate or length"
    PLATEAU = "plateau"
    FLOOR = "floor"
    POWER = "power"
    NONE = ""  # resolved

    @property
    def is_measured(self) -> bool:
        """Whether runs speak about the claim at all."""
        return self not in _UNMEASURED

    @property
    def seeds_help(self) -> bool:
        """Whether more seeds may resolve the claim, so that a second look makes them."""
        return self is Reason.POWER


_UNMEASURED = (
    Reason.UNTESTABLE, Reason.TEXT, Reason.QUESTION, Reason.NO_RUN, Reason.UNFINISHED, Reason.LOST, Reason.SILENT,
    Reason.ONE_SEED,
)  # fmt: skip
