"""Speed or quality: the contrasts of a page's claims at equal tokens, FLOPs and multiples of the crossing."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ablations.claims.alignment import Contrast, Kind
from ablations.claims.outcomes import Direction
from ablations.claims.verdict import Verdict
from ablations.core.crossing import QUARTER
from ablations.core.formatting import Entry, Sheet, difference_text, fixed, markdown_text, quantity
from ablations.core.statistics import Interval
from ablations.measurements import trunks
from ablations.measurements.measurements import Measurements
from ablations.measurements.references import heldout_metric

TITLE = "Speed or quality?"
_CONTINUED = f"Not aligned: these are runs of {trunks.WORD}, which have no crossing of their own"


def contrasts(verdicts: Sequence[Verdict]) -> list[Contrast]:
    """The contrasts of all claims about losses with curves, each once, in the order of the claims."""
    found: dict[object, Contrast] = {}
    for verdict in verdicts:
        for one in verdict.aligned.contrasts if verdict.aligned else ():
            cells = frozenset(one.cells) if one.is_pair else (verdict.claim.id, *one.cells)
            found.setdefault((verdict.claim.metric, cells), one)
    return list(found.values())


def sheets(verdicts: Sequence[Verdict]) -> tuple[Sheet, Sheet, dict[str, Any]] | None:
    """The table to read, the table of every number, and the runs behind them; None without such contrasts."""
    shown, low = contrasts(verdicts), _at_floor(verdicts)
    if not shown:
        return None
    reading = Sheet(
        ["contrast", "at equal tokens", "at equal FLOPs", "at equal multiples of the crossing", "multiple",
         "a sixth earlier", "an offset would leave", "it is", "final slope"],
        [[one.name, *_effects(one), str(one.kind) + low.get(id(one), ""), _slopes(one)] for one in shown],
        notes=_notes(shown),
        brief=["it is", "at equal tokens", "at equal FLOPs", "at equal multiples of the crossing"],
    )  # fmt: skip
    ends = ("", " low", " high")
    everything = Sheet(
        ["contrast", "cells", *(f"{name}{end}" for name in ("tokens", "flops", "multiples", "earlier") for end in ends),
         "multiple", "offset", "kind", "not aligned because", "crossings", "final slopes"],
        [[one.name, "; ".join(one.cells), *_ends(one), one.multiple, _left(one), str(one.kind), one.why,
          _listed(_sides(one, one.crossings)), _listed(_sides(one, one.slopes))] for one in shown],
    )  # fmt: skip
    trace = [
        {"claim": verdict.claim.id, "contrasts": [one.name for one in verdict.aligned.contrasts], "sides": verdict.runs}
        for verdict in verdicts if verdict.aligned
    ]  # fmt: skip
    return reading, everything, {"claims": trace}


def _at_floor(verdicts: Sequence[Verdict]) -> dict[int, str]:
    """Contrast -> which of its sides are at the floor: verdicts judge such a pair less, whatever its kind."""
    words = {1: " (one at the floor)", 2: " (both at the floor)"}
    return {
        id(one): words[count]
        for verdict in verdicts
        if verdict.aligned and (count := sum(map(bool, verdict.floors))) in words
        for one in verdict.aligned.contrasts
        if one.is_pair and len(verdict.floors) == 2
    }


def _effects(one: Contrast) -> list[Entry]:
    found = [one.facing(interval) for interval in (one.tokens, one.flops, one.multiples)]
    texts: list[Entry] = [difference_text(interval) if interval else "" for interval in found]
    earlier, left = one.facing(one.earlier), _left(one)
    multiple = "" if one.multiple is None else f"{one.multiple:.2f}"
    return [*texts, multiple, difference_text(earlier) if earlier else "", "" if left is None else fixed(left, 3)]


def _left(one: Contrast) -> float | None:
    """What a constant offset would leave, as the name has the sides."""
    return None if one.left is None else -one.left if one.is_turned else one.left


def _ends(one: Contrast) -> list[Entry]:
    nothing = Interval(None, None, None, 0)
    found = [one.facing(interval) or nothing for interval in (one.tokens, one.flops, one.multiples, one.earlier)]
    return [end for interval in found for end in interval.ends]


def _sides(one: Contrast, values: Sequence[float | None]) -> list[float | None]:
    return list(reversed(values)) if one.is_turned else list(values)


def _slopes(one: Contrast) -> str:
    return " and ".join("" if slope is None else fixed(slope, 2) for slope in _sides(one, one.slopes))


def _listed(values: Sequence[float | None]) -> str:
    return " ".join("" if value is None else f"{value:.8g}" for value in values)


def _notes(shown: Sequence[Contrast]) -> list[str]:
    notes = [
        "Nats by which the first side is better, with 95 % intervals over runs, not adjusted for the number of claims. "
        "At equal FLOPs: at the most that all runs of the contrast have used. The crossing of a run: the "
        "tokens at which its own loss passed the bigram baseline. At equal multiples of the crossing: at the largest "
        "multiple that all runs reach, and at five sixths of it. An offset would leave: the effect there, if the "
        "sides differed by a constant alone. Final slope: by how many nats the loss of each side fell over the last "
        "doubling of its tokens."
    ]
    if any(one.kind is not Kind.NONE for one in shown):
        notes.append(
            "Quality: the interval excludes 0 at equal multiples and a sixth earlier, on the side of the effect at "
            f"equal tokens. Speed alone does not explain it. Speed: it lies within the margin or {QUARTER:g} of "
            "that effect, and excludes what an offset would leave. Otherwise it is open: near the crossing a constant "
            "offset and a stretch of time look alike. In the last sixth of a training the falling rate flattens every "
            "curve, and the slower side alone is compared there."
        )
    reasons = dict.fromkeys(one.why for one in shown if one.why)
    return [*notes, *(f"Not aligned: {why}." for why in reasons)]


def part(measured: Measurements, verdicts: Sequence[Verdict]) -> str:
    """A sentence for a page without such contrasts, whose runs have curves and no crossing; else empty."""
    is_asked = heldout_metric(measured.grid) and any(measured.finished(cell) for cell in measured.cells)
    is_continued = is_asked and bool(trunks.of_cells(measured.cells)) and not contrasts(verdicts)
    return f"{_CONTINUED}: at equal tokens all have read those of their trunks before." if is_continued else ""


def in_short(verdicts: Sequence[Verdict], named: Verdict | None = None) -> str:
    """What is left of a settled difference of two cells, as Markdown; empty where none is aligned.

    Args:
        named: The one that its headline quotes, whose difference this is; the largest, where that is not aligned.
    """
    shown = contrasts(verdicts)
    named_first = [*([named] if named else []), *verdicts]
    aligned = [
        one
        for verdict in named_first
        if verdict.aligned and verdict.direction is not Direction.OPEN
        for one in verdict.aligned.contrasts
        if one.is_pair and one.multiples is not None
    ]
    if not aligned:
        return ""
    is_named = named is not None and named.aligned is not None and aligned[0] in named.aligned.contrasts
    one = aligned[0] if is_named else max(aligned, key=lambda one: abs(one.tokens.mean or 0.0))
    whole, left = one.facing(one.tokens), one.facing(one.multiples)
    counts = Counter(one.kind for one in shown)
    low = _at_floor(verdicts)
    both = Counter(one.kind for one in shown if low.get(id(one), "").startswith(" (both"))
    tally = ", ".join(
        f"{counts[kind]} {_WORDS[kind]}" + f" (of which {both[kind]} with both sides at the floor)" * bool(both[kind])
        for kind in Kind if counts[kind]
    )  # fmt: skip
    crossed = " and ".join(quantity(at) for at in _sides(one, one.crossings))
    text = (
        f"Of the {fixed((whole and whole.mean) or 0.0, 3)} nats of {one.name}, "
        f"{difference_text(left).removeprefix('+') if left else ''} are left at equal multiples of the crossing "
        f"({crossed} tokens): {_WORDS[one.kind]}."
    )
    return markdown_text(f"{text} All {len(shown)} contrasts: {tally}." if len(shown) > 1 else text)


_WORDS = {Kind.QUALITY: "quality", Kind.SPEED: "speed", Kind.OPEN: "open", Kind.NONE: "not aligned"}
