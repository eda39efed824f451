"""The claims of a page: a row for each that has runs, and what a reader has to know of them, each thing once."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from ablations.claims import floors
from ablations.claims.outcomes import OPEN, SETTLED, Direction, Reason
from ablations.claims.verdict import Verdict
from ablations.claims.verdict_text import excluded
from ablations.core.formatting import Sheet, capital, fixed, markdown, markdown_text, places, range_text
from ablations.core.statistics import POWER

T = TypeVar("T")

_ABOUT = (
    "The interval of an effect is the one that decides. It is of 95 % and widened for the tests with runs and for "
    "looks (Holm). It counts the noise of held-out examples where their scores are kept, but for means over tasks. "
    "Verdict: what the runs show at equal tokens. Regime: what kind of result that is."
)
_ROWS = 8  # of the table on a page; its file has all
_ADVICE = {  # why a claim is open -> what a reader may do
    Reason.UNTESTABLE: "another scale may have the cells",
    Reason.TEXT: "no number of runs changes that. Ask within one text",
    Reason.QUESTION: "no number of runs changes that. Compare runs that start alike",
    Reason.NO_RUN: "train its runs, by the command under *How it was made*",
    Reason.UNFINISHED: "train the missing runs, by the command under *How it was made*",
    Reason.LOST: "`ablations logs RUN` says how a run ended. A lower rate may help",
    Reason.SILENT: "fine-tune for more epochs or at a higher rate, and on more examples",
    Reason.ONE_SEED: "train a second seed: `--seeds 2`",
    Reason.NO_NOISE: "equal values in all seeds leave no noise to compare with. Measure something finer",
    Reason.POWER: "more seeds may settle it. Where the grid has a second look, `ablations run` with `--look 2`",
}


def table(verdicts: Sequence[Verdict]) -> str:
    """The table and how to read it, as Markdown; empty where no claim is measured."""
    shown = [(number, verdict) for number, verdict in enumerate(verdicts, start=1) if verdict.is_measured][:_ROWS]
    if not shown:
        return ""
    ((usual, _),) = Counter(verdict.metric for _, verdict in shown).most_common(1)
    is_printed = any(verdict.published for _, verdict in shown)
    told = Counter(verdict.claim.statement for _, verdict in shown)
    rows = [
        (f"{number}: {one.claim.statement}" + f" ({one.a} against {one.b})" * (told[one.claim.statement] > 1),
         *([one.published or "–"] * is_printed),
         _effect(one) + (f" in {one.metric}" if one.metric != usual else ""), one.n, _verdict(one), one.regime)
        for number, one in shown
    ]  # fmt: skip
    headings = ("claim", *["published"] * is_printed, "effect", "n", "verdict", "regime")
    reading = (
        f"A positive effect is in the claimed direction, in {markdown_text(usual)} if nothing else is named. n: runs "
        "a side."
    )
    left = len(verdicts) - len(rows)
    more = f" [claims.md](claims.md) has {left} more." if left else ""
    return f"{markdown(Sheet(headings, rows, left=len(headings)))}\n{reading}{more}"


def alternatives(verdicts: Sequence[Verdict]) -> list[str]:
    """What else could explain settled claims, as Markdown."""
    return _of_claims(_by_claim(_alternative(verdict) for verdict in verdicts))


def threats(verdicts: Sequence[Verdict]) -> list[str]:
    """The notes on measured claims, as Markdown: those on most claims first."""
    notes = [_notes(verdict) if verdict.is_measured else [] for verdict in verdicts]
    counts, found = Counter(note for of_claim in notes for note in of_claim), _by_claim(notes)
    return _of_claims({note: found[note] for note, _ in counts.most_common()})


def _notes(verdict: Verdict) -> list[str]:
    """The notes on a verdict that its explanation does not say, each a sentence that several verdicts may share."""
    said = floors.named(verdict.floors)
    if verdict.claim.threat and _alternative(verdict):
        said.append(verdict.claim.threat.because.removesuffix("."))
    which, names = "No side" if all(verdict.floors) else "Not every side", sorted({*verdict.floors} - {""})
    told = [f"{which} is shown to be better than {floors.listed(names)}"] if names else []
    return told + [capital(note) for note in verdict.notes if note not in said]


def _of_claims(texts: Mapping[str, str]) -> list[str]:
    return [f"{markdown_text(text.removesuffix('.'))} ({which})." for text, which in texts.items()]


def remarks(verdicts: Sequence[Verdict]) -> list[str]:
    """Claims without runs, what to do about open ones, and the sources, proxies and margins of all, as Markdown."""
    unrun = [
        f"* {number}: {markdown_text(one.claim.statement)}" for number, one in enumerate(verdicts, start=1) if not one.n
    ]
    lists = [["Without runs to compare:", "", *unrun] if unrun else [], [*_todo(verdicts), *_known(verdicts)]]
    return [*("\n".join(found) for found in lists if found), _ABOUT]


def _verdict(verdict: Verdict) -> str:
    """``open: power; excludes more than 0.02 nats``: the outcome, why it is open, and what the interval leaves."""
    word = verdict.standing + (f": {verdict.reason}" if verdict.reason else "")
    left = "" if verdict.outcome in SETTLED or not verdict.is_measured else excluded(verdict)
    return "; ".join(filter(None, (word, left)))


def _effect(verdict: Verdict) -> str:
    """``+0.22 nats [0.14, 0.31]``: the effect with the interval that decides."""
    if verdict.effect is None:
        return "none"
    is_ratio = verdict.claim.relation == "ratio"
    number = fixed(verdict.effect, places(verdict.adjusted.half, verdict.effect), sign=not is_ratio)
    of = {"ordering": "(smallest step)", "trend": "per step"}.get(verdict.claim.relation, "")
    around = range_text(verdict.adjusted) if verdict.adjusted.low is not None else ""
    return " ".join(filter(None, (number, "times" if is_ratio else verdict.unit, of, around)))


def _todo(verdicts: Sequence[Verdict]) -> list[str]:
    """Why claims are open, and what to do about each reason."""
    return [
        f"* **{'Not measured' if not reason.is_measured else 'Open'}: {reason}** ({which}): {_ADVICE[reason]}."
        for reason, which in _by_claim((verdict.reason,) * bool(verdict.reason) for verdict in verdicts).items()
    ]


def _known(verdicts: Sequence[Verdict]) -> list[str]:
    """Sources and proxies, each once with the numbers of its claims."""
    kinds: dict[str, Iterable[Iterable[str]]] = {
        "Compared by proxy": ((verdict.proxy,) if verdict.proxy else () for verdict in verdicts),
        "Source": ((", ".join((verdict.claim.origin, *verdict.marks)),) for verdict in verdicts),
    }
    lines = []
    for kind, texts in kinds.items():
        for text, which in _by_claim(texts).items():
            lines.append(f"* {kind} ({which}): {markdown_text(text.removesuffix('.'))}.")
    for kind, numbers in {
        "Margin": _by_claim(_margin(verdict) for verdict in verdicts),
        f"True effect that the test would show with {100 * POWER:g} % power": _by_claim(map(_detectable, verdicts)),
    }.items():
        shown = ", ".join(f"{markdown_text(number)} ({which})" for number, which in numbers.items())
        lines += [f"* {kind}: {shown}."] * bool(shown)
    return lines


def _margin(verdict: Verdict) -> tuple[str, ...]:
    return () if verdict.margin is None else (f"{verdict.margin:.3g} {verdict.unit}".strip(),)


def _detectable(verdict: Verdict) -> tuple[str, ...]:
    """The smallest effect that an open claim's test would show."""
    if verdict.outcome != OPEN or not verdict.detectable or not verdict.is_measured:
        return ()
    smallest = fixed(verdict.detectable, places(verdict.detectable, verdict.detectable))
    return (smallest if verdict.claim.relation == "ratio" else f"{smallest} {verdict.unit}".strip(),)


def _alternative(verdict: Verdict) -> tuple[str, ...]:
    """What else could explain a settled result, be it a direction or an equality."""
    is_open = verdict.direction is Direction.OPEN and verdict.outcome == OPEN
    return () if is_open or not verdict.claim.alternative else (verdict.claim.alternative,)


def _by_claim(texts: Iterable[Iterable[T]]) -> Mapping[T, str]:
    """Each text once, with the numbers of the claims that it is about: ``1 to 3, 5``."""
    found: dict[T, list[int]] = {}
    for number, of_claim in enumerate(texts, start=1):
        for text in of_claim:
            found.setdefault(text, []).append(number)
    return {text: _numbers(numbers) for text, numbers in found.items()}


def _numbers(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)
