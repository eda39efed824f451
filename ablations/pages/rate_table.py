"""How the verdicts of cells that searched a rate move with it, as far as the trials of their searches show."""

from collections.abc import Mapping, Sequence
from typing import Any

from ablations.claims.contrasts import Sides, collect
from ablations.claims.outcomes import Direction
from ablations.claims.rates import Move, moves
from ablations.claims.verdict import Verdict
from ablations.core.formatting import Entry, Sheet, cell_text, difference_text
from ablations.measurements.measurements import Measurements
from ablations.pages import search_report
from ablations.planning.search import validation_share

TITLE = "How verdicts move with the trials"
_OWN = "each side as it chose"


def sheets(measured: Measurements, verdicts: Sequence[Verdict]) -> tuple[Sheet, Sheet, dict[str, Any]] | None:
    """A row for each claim whose sides searched: its effect, and what their trials show; None without any."""
    found: list[tuple[Verdict, Sides, list[Move]]] = []
    for verdict in verdicts:
        at = measured.at_look(verdict.look)
        sides = collect(at, verdict.claim)
        if verdict.n and (shown := moves(verdict.claim, sides, at)):
            found.append((verdict, sides, shown))
    if not found:
        return None
    settings = list(dict.fromkeys(_name(move) for _, _, shown in found for move in shown))
    rows = [(verdict, shown, {_name(move): move for move in shown}) for verdict, _, shown in found]
    reading = Sheet(
        ["claim", "the runs", *settings, "the trials show"],
        [
            [verdict.claim.id, difference_text(verdict.raw), *(_effect(named, one) for one in settings),
             _said(verdict, shown)]
            for verdict, shown, named in rows
        ],
        notes=_notes(measured),
    )  # fmt: skip
    ends = ("", " low", " high")
    everything = Sheet(
        ["claim", "effect", "low", "high", *(f"{one}{end}" for one in settings for end in ends), "the trials show"],
        [
            [verdict.claim.id, *verdict.raw.ends,
             *(end for one in settings for end in (named[one].interval.ends if one in named else (None,) * 3)),
             _said(verdict, shown)]
            for verdict, shown, named in rows
        ],
    )  # fmt: skip
    trials = [
        {"claim": verdict.claim.id,
         "sides": [[{"values": dict(trial.values), "runs": [run.id for run in trial.work]} for trial in cell.search]
                   for cell in sides.cells]}
        for verdict, sides, _ in found
    ]  # fmt: skip
    return reading, everything, {"trials": trials}


def _name(move: Move) -> str:
    return cell_text(dict(move.setting)) if move.setting else _OWN


def _effect(named: Mapping[str, Move], setting: str) -> Entry:
    return difference_text(named[setting].interval) if setting in named else ""


def _said(verdict: Verdict, shown: Sequence[Move]) -> str:
    """Whether the trials have the direction of the verdict; where none is shown, whether they agree on one."""
    points, clear = {move.point for move in shown}, {move.direction for move in shown} - {Direction.OPEN}
    if verdict.direction is not Direction.OPEN:
        others = [_name(move) for move in shown if move.direction not in (verdict.direction, Direction.OPEN)]
        if others:
            return f"the opposite: {'; '.join(others)}"
        same = "the same direction in all"
        return (
            same if points == {verdict.direction} else "the same direction in some, the opposite within noise in others"
        )
    if len(clear) == 1:
        return f"{'a' if clear == {Direction.POSITIVE} else 'b'} better in some, where the verdict has no direction"
    if len(clear) > 1 or len(points) > 1:
        return "both directions" + ", without an interval or within noise" * (len(clear) < 2)
    return "one direction, without an interval or within noise"


def _notes(measured: Measurements) -> list[str]:
    search, cells = measured.grid.search, [cell for cell in measured.cells if cell.search]
    is_short = any(trial.system.training.steps < cell.system.training.steps for cell in cells for trial in cell.search)
    others = ["seed", *["length"] * is_short]
    others += ["the examples that are scored"] * bool(search and validation_share(search))
    return [
        f"{search_report.in_short(measured)} So besides the values searched, trials differ from the runs in "
        f"{' and '.join(others)}. Positive as in the verdicts. Intervals are of 95 % and not corrected for claims. "
        "Trials of one seed show no noise: losses have that of the runs, and scores of tasks have no interval."
    ]
