"""The scoreboard: every published claim with the verdicts of the published pages, scale by scale.

A page's card (``page.json``) holds the verdicts of its claims. Several grids may test a published claim, on several
metrics. At a scale it counts as

* *as claimed* if every verdict is, and some grid has made all its tests of the claim,
* *against* if a verdict is against it and none is as claimed,
* *within the margin* if every verdict is,
* *open* if there are measurements and none of these holds,
* *not run* if a grid tests it and there are no measurements, *no grid* if no grid tests it.

Its regime is the first of `Regime` among its verdicts: the most cautious.

Verdicts count only while the records of all their runs exist: without them a claim is not run.
"""

import operator
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ablations.claims.basis import columns
from ablations.claims.margins import PUBLISHED, published_effect, source
from ablations.claims.outcomes import AGAINST, AS_CLAIMED, OPEN, SETTLED, WITHIN, Reason, Regime
from ablations.claims.published_claims import PublishedClaim, claims, counted_as, papers, unknown
from ablations.claims.verdict import Verdict
from ablations.core import formatting
from ablations.core.looks import Looks, decided_in_families, overall_alpha
from ablations.measurements.dictionary import unit
from lightning_modules.config import ConfigError

NOT_RUN, NO_GRID = "not run", "no grid"
PAST = f"{AS_CLAIMED}, past counting"
BELOW = f"{AS_CLAIMED}, below counting"
ELSE = "explained otherwise"  # as claimed or against, by construction or confounded, or of another subject
STATES = (PAST, BELOW, ELSE, AGAINST, WITHIN, OPEN, NOT_RUN, NO_GRID)
_SIZES = ("laptop", "gpu", "paper")  # as `published_claims.TESTABLE`, small ones first
MECHANISM = "mechanism"  # the scale of constructed text, whose verdicts are counted apart
CONSTRUCTED = "constructed"  # what it can test of `published_claims.TESTABLE`


@dataclass(frozen=True)
class Answer:
    """One verdict of one page.

    Attributes:
        claim: The published claim's id.
        asked: The id of the grid's own claim.
        outcome: The verdict; ``not run`` unless two runs a side speak about it.
        regime: What kind of result that is; empty of a claim that was not run.
        reason: Why it is open; empty if it is not.
        direction, size, margin, look: As in the verdict.
        effect, effect_low, effect_high: In ``unit``, with the interval that decides.
        runs: The ids of the runs behind it.
        continued: Whether it is about continued pretraining.
        statement: The claim as the grid states it.
        quantity: The unit of the metric, as the dictionary of metrics has it: effects of one quantity compare.
        printed_effect: The published effect in that unit; None if it does not transfer.
        aligned, aligned_low, aligned_high: The effect at equal multiples of the crossing with its 95 % interval.
        kind: Whether that makes the effect one of speed or of quality (`alignment.Kind`); empty without curves.
        because: Why its validity is threatened; empty without a threat.
        plain_low, plain_high: The interval of the effect at 95 %, not corrected.
        test: Which of the grid's tests it is; two answers of a grid may be one test.
        p: Two-sided, corrected for looks and not for claims; None if it is no test.
        survives: Whether it survives Holm's correction over all judged tests of its scale, planned ones among
            themselves; None if it is no test.
        basis: What the interval is computed from, by `basis.COLUMNS`.
    """

    claim: str
    asked: str
    grid: str
    scale: str
    outcome: str
    sentence: str
    metric: str
    n: int
    effect: float | None
    runs: tuple[str, ...]
    reason: str = ""
    direction: str = ""
    size: str = ""
    margin: float | None = None
    look: int = 1
    unit: str = ""
    effect_low: float | None = None
    effect_high: float | None = None
    post_hoc: bool = False
    statement: str = ""
    quantity: str = ""
    printed_effect: float | None = None
    continued: bool = False
    aligned: float | None = None
    aligned_low: float | None = None
    aligned_high: float | None = None
    kind: str = ""
    regime: str = ""
    because: str = ""
    plain_low: float | None = None
    plain_high: float | None = None
    test: int | None = None
    p: float | None = None
    survives: bool | None = None
    basis: Mapping[str, formatting.Entry] = field(default_factory=dict)

    @property
    def survives_all(self) -> bool:
        """Whether it is settled, without a threat to its validity, and survives the correction over the whole board.

        A metric without noise is no test, which nothing corrects.
        """
        return self.is_settled and self.survives is not False

    @property
    def is_settled(self) -> bool:
        """Whether it has a direction or size that no threat explains."""
        return self.outcome in SETTLED and (Regime(self.regime).is_past_counting or Regime(self.regime).is_below)


@dataclass(frozen=True)
class Entry:
    """A published claim with its answers, and the grids that test it, run or not."""

    claim: PublishedClaim
    answers: tuple[Answer, ...]
    grids: tuple[str, ...]

    def of(self, scale: str) -> list[Answer]:
        """The measured answers at a scale."""
        return [answer for answer in self.answers if answer.scale == scale and answer.outcome != NOT_RUN]

    def outcome(self, scale: str) -> str:
        """The outcome of the claim at a scale."""
        measured = {answer.outcome for answer in self.of(scale)}
        if not measured:
            return NOT_RUN if self.grids else NO_GRID
        if AGAINST in measured and AS_CLAIMED not in measured:
            return AGAINST
        if len(measured) > 1 or not measured <= {AS_CLAIMED, WITHIN}:
            return OPEN
        lacking = {answer.grid for answer in self.answers if answer.scale == scale and answer.outcome == NOT_RUN}
        is_whole = any(answer.grid not in lacking for answer in self.of(scale))
        return measured.pop() if is_whole else OPEN

    def regime(self, scale: str) -> Regime:
        """The most cautious regime of its measured answers at a scale."""
        found = {Regime(answer.regime) for answer in self.of(scale)}
        return next((regime for regime in Regime if regime in found), Regime.NONE)

    def state(self, scale: str) -> str:
        """The outcome of the claim at a scale, of a settled one by its regime: one of ``STATES``."""
        outcome, regime = self.outcome(scale), self.regime(scale)
        if outcome not in SETTLED:
            return outcome
        if not regime.is_past_counting and not regime.is_below:
            return ELSE
        return AGAINST if outcome == AGAINST else PAST if regime.is_past_counting else BELOW

    def is_testable(self, scale: str) -> bool:
        """Whether a scale can test the claim: by what the claim needs, or because it has been measured there.

        A claim whose cells a grid cannot make at the scale is not testable, whatever it needs. Constructed text tests
        what needs it, and what a grid asks of it; a verdict on real text makes nothing testable there.
        """
        answers = [answer for answer in self.answers if answer.scale == scale]
        if answers and all(answer.reason == Reason.UNTESTABLE for answer in answers):
            return False
        sizes = _SIZES[: _SIZES.index(scale) + 1] if scale in _SIZES else _SIZES[:1]
        sizes = (CONSTRUCTED,) if scale == MECHANISM else sizes
        return self.claim.testable in sizes or self.outcome(scale) not in (NOT_RUN, NO_GRID)

    def survives(self, scale: str) -> bool:
        """Whether the whole claim is settled at a scale, and every settled verdict on it survives (`survives_all`)."""
        settled = [answer for answer in self.of(scale) if answer.is_settled]
        return self.is_settled(scale) and all(answer.survives_all for answer in settled)

    def is_settled(self, scale: str) -> bool:
        """Whether the claim as a whole has a direction or size at a scale that no threat explains."""
        return self.state(scale) in (PAST, BELOW, AGAINST)

    def continued(self, scale: str) -> bool:
        """Whether some answer at a scale is about continued pretraining."""
        return any(answer.continued for answer in self.answers if answer.scale == scale)

    @property
    def post_hoc(self) -> bool:
        """Whether some answer is to a claim that was stated after runs had been seen."""
        return any(answer.post_hoc for answer in self.answers)


def card(verdict: Verdict) -> dict[str, Any]:
    """A verdict as data for the card of its page."""
    metric, interval = verdict.claim.metric, verdict.adjusted
    return {
        "claim": counted_as(verdict.claim.claim),
        "asked": verdict.claim.id,
        "statement": verdict.claim.statement,
        "sentence": verdict.sentence,
        "outcome": verdict.outcome if verdict.is_measured else NOT_RUN,
        "regime": str(verdict.regime),
        "direction": str(verdict.direction),
        "size": str(verdict.size),
        "reason": str(verdict.reason),
        "look": verdict.look,
        "margin": None if source(verdict.claim) == PUBLISHED else verdict.margin,
        "unit": verdict.unit,
        "quantity": unit(metric),
        "printed_effect": published_effect(verdict.claim),
        "effect_low": interval.low,
        "effect_high": interval.high,
        "plain_low": verdict.raw.low,
        "plain_high": verdict.raw.high,
        "post_hoc": verdict.claim.post_hoc,
        "continued": verdict.continued,
        **_aligned(verdict),
        "basis": columns(verdict),
        "because": verdict.claim.threat.because if verdict.claim.threat else "",
        "test": verdict.test,
        "p": None if verdict.p is None else overall_alpha(verdict.p, Looks(verdict.looks)),
        "metric": verdict.metric,
        "n": verdict.n,
        "effect": verdict.effect,
        "runs": sorted({id for side in verdict.runs for id in side}),
    }


def _aligned(verdict: Verdict) -> dict[str, Any]:
    """The effect at equal multiples of the crossing, as data; nothing for a claim that compares no curves."""
    if verdict.aligned is None:
        return {}
    found = verdict.aligned.interval
    ends = {"aligned": found.mean, "aligned_low": found.low, "aligned_high": found.high} if found else {}
    return {**ends, "kind": str(verdict.aligned.kind)}


def answers(cards: Iterable[tuple[str, str, Mapping[str, Any]]], done: Container[str]) -> list[Answer]:
    """The verdicts of pages, each ``(grid, scale, card)``; "not run" if a run of the verdict is not ``done``."""
    verdicts = []
    for grid, scale, page in cards:
        for row in filter(operator.itemgetter("claim"), page["claims"]):  # hypotheses of a grid are in no paper's row
            is_done = all(id in done for id in row["runs"])
            outcome = row["outcome"] if is_done and row["runs"] else NOT_RUN
            kept: dict[str, Any] = {key: row[key] for key in Answer.__dataclass_fields__ if key in row}
            kept |= {"grid": grid, "scale": scale, "outcome": outcome, "runs": tuple(row["runs"])}
            if not is_done:
                kept["reason"] = str(Reason.NO_RUN)
            verdicts.append(Answer(**kept))
    return _corrected(verdicts)


def _corrected(verdicts: Sequence[Answer]) -> list[Answer]:
    """The verdicts, each with whether it survives Holm's correction over the judged tests of all grids at its scale.

    Post hoc tests have a family of their own, as within a grid (`families.py`).
    """
    found: dict[str, dict[tuple[str, int], float]] = {}  # scale -> (grid, test) -> p
    planned = {(one.scale, one.grid, one.test) for one in verdicts if not one.post_hoc}
    for one in verdicts:
        decides = not one.post_hoc or (one.scale, one.grid, one.test) not in planned
        if one.outcome != NOT_RUN and one.p is not None and one.test is not None and decides:
            known = found.setdefault(one.scale, {})
            known[one.grid, one.test] = min(one.p, known.get((one.grid, one.test), 1.0))
    rejected = {
        (scale, *key): decision.rejected
        for scale, known in found.items()
        for key, decision in decided_in_families(
            {test: [p] for test, p in known.items()}, {test for test in known if (scale, *test) in planned}, Looks((1,))
        ).items()
    }
    return [
        replace(one, survives=None if one.test is None else rejected.get((one.scale, one.grid, one.test)))
        for one in verdicts
    ]


@dataclass(frozen=True)
class Surviving:
    """How much of the verdicts on published claims the correction over all grids of a scale leaves.

    Attributes:
        tests: The number of distinct tests that are judged there; planned: of those that are not post hoc.
        settled: The number of settled verdicts, without threats; left: how many of these survive.
        claims: The number of claims that are settled as wholes; whole: how many of these survive.
    """

    tests: int
    planned: int
    settled: int
    left: int
    claims: int
    whole: int


def surviving(board: Sequence[Entry], scale: str) -> Surviving:
    """What Holm's correction over all judged tests of a scale leaves of its settled verdicts."""
    found = [answer for entry in board for answer in entry.answers if answer.scale == scale]
    tests = {(answer.grid, answer.test) for answer in found if answer.survives is not None}
    planned = {(one.grid, one.test) for one in found if one.survives is not None and not one.post_hoc}
    settled = [answer for answer in found if answer.is_settled]
    whole = [entry for entry in board if entry.is_settled(scale)]
    left = sum(answer.survives_all for answer in settled)
    return Surviving(len(tests), len(planned), len(settled), left, len(whole), sum(e.survives(scale) for e in whole))


def entries(measured: Sequence[Answer], asked: Mapping[str, Sequence[str]]) -> list[Entry]:
    """Every published claim, in the order of the claims files.

    Args:
        measured: The known verdicts.
        asked: Published claim -> grids that test it.

    Raises:
        ConfigError: For a claim of a grid that the claims files lack.
    """
    known = claims()
    strays = sorted(({answer.claim for answer in measured} | asked.keys()) - known.keys())
    if strays:
        raise ConfigError(unknown(id, known) for id in strays)
    return [
        Entry(claim, tuple(answer for answer in measured if answer.claim == id), tuple(asked.get(id, ())))
        for id, claim in known.items()
    ]


def states(board: Sequence[Entry], scale: str) -> list[tuple[str, dict[str, int]]]:
    """Each paper with its number of claims by state, of those that a scale can test; papers with most of them first."""
    rows = []
    for paper in papers():
        found = [entry.state(scale) for entry in board if entry.claim.paper == paper and entry.is_testable(scale)]
        if found:
            rows.append((paper, {name: found.count(name) for name in STATES}))
    return sorted(rows, key=lambda row: -sum(row[1].values()))
