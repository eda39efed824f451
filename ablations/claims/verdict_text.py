"""Verdicts as whole sentences: the outcome, the effect and its interval."""

from collections.abc import Sequence
from decimal import Decimal

from ablations.claims.margins import PUBLISHED, source
from ablations.claims.outcomes import AGAINST, AS_CLAIMED, OPEN, SETTLED, Direction, Size
from ablations.claims.verdict import Verdict
from ablations.core.formatting import capital, difference_text, fixed, places, range_text, split_unit
from ablations.core.statistics import POWER, Interval
from ablations.literature.published_values import printed_difference
from ablations.schema.claim import Claim


def published(claim: Claim) -> str:
    """``MNLI 84.5 against 84.2 %, +0.3``: the printed values of the sides in the paper's own metric."""
    values = [value for _, value in sorted(claim.published.items())]
    if len(values) < 2 or len(values) != max(2, len(claim.asked)):
        return ""
    metric, unit = split_unit(claim.published_metric)
    after = f" {unit}" if unit else ""
    if claim.relation == "interaction":
        a, b, c, d = values
        difference = (Decimal(str(a)) - Decimal(str(b))) - (Decimal(str(c)) - Decimal(str(d)))
        pairs = f"{printed_difference(a, b)} ({a} against {b}) and {printed_difference(c, d)} ({c} against {d})"
        return f"{metric} {pairs}{after}, {difference:+} between them".strip()
    if claim.relation == "trend":
        return f"{metric} from {', '.join(map(str, values[:0:-1]))} to {values[0]}{after}".strip()
    if len(values) > 2:
        return f"{metric} {', '.join(map(str, values))}{after}".strip()
    a, b = values
    return f"{metric} {a} against {b}{after}, {printed_difference(a, b)}".strip()


def families_text(verdicts: Sequence[Verdict]) -> str:
    """``the 9 planned tests (for post hoc claims over all 13)``: what the claims of a grid are corrected for."""
    planned, every = min(verdict.family for verdict in verdicts), max(verdict.family for verdict in verdicts)
    if planned in (0, every):
        return "the one test" if every == 1 else f"the {every} distinct tests" if every else ""
    return f"the {planned} planned test{'s' * (planned > 1)} (for post hoc claims over all {every})"


def amount(verdict: Verdict) -> str:
    """The effect with its unadjusted interval: ``+0.21 [0.15, 0.27]``, or of a ratio ``0.97 [0.95, 0.99]``."""
    text = difference_text(verdict.raw)
    return text.removeprefix("+") if verdict.claim.relation == "ratio" else text


def sentence(verdict: Verdict) -> str:
    """The verdict for people: outcome and effect, and as sentences after it the rest that there is to know."""
    after = f" (published: {verdict.published})" if verdict.published else ""
    found, unit = finding(verdict), _unit(verdict)
    if not found:
        return _joined(f"{verdict.standing}: {verdict.reason}{after}", verdict.notes)
    kind = f" ({verdict.regime})" if verdict.regime else ""
    first = f"{verdict.standing}{kind}: at this scale {found}, n = {verdict.n}{_size(verdict, unit)}{after}"
    return _joined(first, [*_aligned(verdict), *_why(verdict, unit)])


def _joined(first: str, more: Sequence[str]) -> str:
    return ". ".join([first, *map(capital, more)])


def _aligned(verdict: Verdict) -> list[str]:
    """``at equal multiples of the crossing: -0.01 nats [-0.04, 0.02], speed``, with the sign of the effect before."""
    if verdict.aligned is None or verdict.aligned.interval is None:
        return []
    turns = (verdict.effect or 0.0) < 0 and verdict.claim.relation not in _SIGNED
    interval = _turned(verdict.aligned.interval) if turns else verdict.aligned.interval
    if interval.mean is None or interval.half is None:
        return []
    value = f"{fixed(interval.mean, places(interval.half, interval.mean))}{_unit(verdict)} {range_text(interval)}"
    return [f"at equal multiples of the crossing: {value}, {verdict.aligned.kind}"]


def finding(verdict: Verdict) -> str:
    """``A is better than B in loss by 0.2 nats [0.1, 0.3]``: the effect with the interval that decides, or nothing."""
    by = effect_text(verdict)
    return _TEXTS[verdict.claim.relation](verdict, verdict.effect or 0.0, by, _unit(verdict)) if by else ""


def effect_text(verdict: Verdict) -> str:
    """``0.2 nats [0.1, 0.3]``: the size of the effect with the interval that decides, or nothing."""
    interval, effect = verdict.adjusted, verdict.effect
    if effect is None or interval.low is None or interval.high is None:
        return ""
    size = f"{fixed(abs(effect), places(interval.half, effect))}{_unit(verdict)}"
    around = range_text(interval if effect >= 0 or verdict.claim.relation in _SIGNED else _turned(interval))
    return f"{size} {around}"


def _unit(verdict: Verdict) -> str:
    return f" {verdict.unit}" if verdict.unit else ""


def excluded(verdict: Verdict) -> str:
    """``excludes more than 0.02 nats``: the largest difference, either way, that the interval leaves; or nothing."""
    low, high = verdict.adjusted.low, verdict.adjusted.high
    if low is None or high is None or verdict.claim.relation == "ratio":
        return ""
    most = max(abs(low), abs(high))
    return f"excludes more than {fixed(most, places(verdict.adjusted.half, most))}{_unit(verdict)}"


def direction_text(verdict: Verdict) -> str:
    """``a better``, ``b better``, ``as claimed``, ``reversed`` or ``open``; empty without an interval."""
    if verdict.adjusted.low is None:
        return ""
    pair = ("a better", "b better") if len(verdict.sides) == 2 else ("as claimed", "reversed")
    return {Direction.POSITIVE: pair[0], Direction.NEGATIVE: pair[1]}.get(verdict.direction, "open")


def size_text(verdict: Verdict) -> str:
    """``beyond 0.02 nats``, ``inside published 0.3``: the size against the margin or the published effect; or empty."""
    bound = verdict.claim.ratio if verdict.claim.relation == "ratio" else verdict.margin
    if not verdict.size or bound is None:
        return ""
    unit = "" if verdict.claim.relation == "ratio" else verdict.unit
    of = "published " if source(verdict.claim) == PUBLISHED else ""
    return f"{verdict.size} {of}{bound:.3g} {unit}".strip()


def _equal(verdict: Verdict, effect: float, by: str, unit: str) -> str:
    if verdict.outcome != AS_CLAIMED:
        return _better(verdict, effect, by, unit)
    pair = f"{verdict.a} and {verdict.b} are equal in {verdict.metric} within the margin of {verdict.margin:.3g}{unit}"
    return f"{pair}: they differ by {by}"


def _better(verdict: Verdict, effect: float, by: str, unit: str) -> str:
    if verdict.direction is not Direction.OPEN:
        better = "better" if verdict.direction is Direction.POSITIVE else "worse"
        return f"{verdict.a} is {better} than {verdict.b} in {verdict.metric} by {by}"
    favoured = verdict.a if effect >= 0 else verdict.b
    return f"{verdict.a} and {verdict.b} differ in {verdict.metric} by {by} in favour of {favoured}"


def _size(verdict: Verdict, unit: str) -> str:
    """What the interval says of the size; of a ratio its own sentence does."""
    is_said = verdict.claim.relation == "~" and verdict.outcome == AS_CLAIMED  # by `_equal`
    if verdict.margin is None or not verdict.size or is_said:
        return ""
    if source(verdict.claim) == PUBLISHED:
        against = {Size.INSIDE: "smaller than", Size.BEYOND: "larger than"}.get(verdict.size, "not distinguished from")
        return f", {against} the published effect of {verdict.margin:.3g}{unit}"
    side = {Size.INSIDE: "inside", Size.BEYOND: "beyond"}.get(verdict.size, "neither inside nor beyond")
    return f", {side} the margin of {verdict.margin:.3g}{unit}"


def _ratio(verdict: Verdict, effect: float, by: str, unit: str) -> str:
    relative = verdict.outcome if verdict.outcome in SETTLED else "undecided"
    times = f"{fixed(effect, places(verdict.adjusted.half, effect))} {range_text(verdict.adjusted)}"
    least = f"{relative} (at least {verdict.claim.ratio:g})"
    return f"{verdict.a} is {times} times as good as {verdict.b} in {verdict.metric}, {least}"


def _ordering(verdict: Verdict, effect: float, by: str, unit: str) -> str:
    order = " > ".join(verdict.sides)
    stands = {AS_CLAIMED: "holds", AGAINST: "does not hold"}.get(verdict.outcome, "is undecided")
    return f"the order {order} in {verdict.metric} {stands}: its smallest step is {_sign(effect)}{by}"


def _trend(verdict: Verdict, effect: float, by: str, unit: str) -> str:
    first, *between = reversed(verdict.sides[1:])
    course = f"from {first}{' through ' * bool(between)}{' and '.join(between)} to {verdict.a}"
    way = "better" if effect >= 0 else "worse"
    if verdict.direction is Direction.OPEN:
        return f"{verdict.metric} is not shown to change {course}: {by} {way} per step"
    return f"{verdict.metric} gets {way} {course} by {by} per step"


def _interaction(verdict: Verdict, effect: float, by: str, unit: str) -> str:
    a, b, c, d = verdict.sides
    more = "more" if effect >= 0 else "less"
    return f"{a} beats {b} in {verdict.metric} by {more} than {c} beats {d}: the differences differ by {by}"


def _spread(verdict: Verdict, effect: float, by: str, unit: str) -> str:
    steadier = verdict.a if effect >= 0 else verdict.b
    if verdict.outcome == OPEN:
        both = f"{verdict.a} and {verdict.b} in {verdict.metric}"
        return f"distances from the median of {both} differ by {by}, and are smaller for {steadier}"
    other = verdict.b if effect >= 0 else verdict.a
    return f"{steadier} varies less than {other} in {verdict.metric}: distances from the median differ by {by}"


_TEXTS = {
    ">": _better,
    "~": _equal,
    "ratio": _ratio,
    "ordering": _ordering,
    "trend": _trend,
    "interaction": _interaction,
    "spread": _spread,
}
_SIGNED = ("ratio", "ordering")  # the effect is printed with its sign, and so is its interval


def _sign(effect: float) -> str:
    return "-" if effect < 0 else ""


def _why(verdict: Verdict, unit: str) -> list[str]:
    parts = [f"open: {verdict.reason}"] if verdict.reason else []
    parts += verdict.notes
    if verdict.outcome == OPEN and verdict.detectable:
        smallest = fixed(verdict.detectable, places(verdict.detectable, verdict.detectable))
        what = {"ratio": "ratio", "ordering": "smallest step", "trend": "slope"}.get(verdict.claim.relation, "effect")
        size = smallest if what == "ratio" else f"{smallest}{unit}"
        parts.append(f"the test has {100 * POWER:g} % power for a true {what} of {size}")
    return parts


def _turned(interval: Interval) -> Interval:
    """The interval of ``b - a``."""
    mean, low, high = (None if x is None else -x for x in (interval.mean, interval.high, interval.low))
    return Interval(mean, low, high, interval.n, interval.level)
