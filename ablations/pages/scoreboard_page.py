"""The scoreboard: ``results/claims.{md,csv,tex,json}`` and two figures, from the cards of all pages."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ablations.claims import basis, scoreboard
from ablations.claims.published_claims import claims as published_claims
from ablations.claims.published_claims import counted_as, papers, with_parts
from ablations.claims.scoreboard import MECHANISM, NO_GRID, NOT_RUN, STATES, Answer
from ablations.core.formatting import Entry, Pages, Sheet, duration, markdown_code, quantity
from ablations.core.store import Snapshot
from ablations.figures import claims, grid_figures
from ablations.measurements.trunks import WORD as CONTINUED
from ablations.pages import tables
from ablations.pages.cards import cards
from ablations.planning import grids
from ablations.planning.scales import is_trial
from ablations.schema.record import Record
from lightning_modules import files

_ORDER = ("laptop", "laptop-long", "gpu", "paper", "encoder", MECHANISM)
_SUBJECTS = {MECHANISM: "constructed text", "encoder": "a released one"}  # in the place of models pretrained here
_MEASURED = tuple(state for state in STATES if state not in (NOT_RUN, NO_GRID))
_APART = (
    "The text is made by rules and has a property or lacks it. These verdicts say what a model can learn of it, not "
    "how much of it real text has, and are counted with no others."
)


def gathered(snapshot: Snapshot) -> list[scoreboard.Entry]:
    """Every published claim with its answers on the pages of a results folder.

    An answer counts if all its runs are done, at a scale that counts. Pages of overridden grids, and of grids that are
    not the project's own, do not count: their claims were not fixed before the runs. Neither do answers to claims that
    are no longer kept.
    """
    known, counted = grids.available(), []
    for folder, card in cards(snapshot.folder):
        grid, scale = folder.parts[-2:]
        if grid in known and not is_trial(scale) and not (folder / grids.REQUEST).exists():
            counted.append((grid, scale, card))
    answers = [answer for answer in scoreboard.answers(counted, snapshot.done) if answer.claim in published_claims()]
    return scoreboard.entries(answers, _grids_of_claims())


def _grids_of_claims() -> dict[str, list[str]]:
    by_claim: dict[str, list[str]] = {}
    for name, grid in grids.readable()[0].items():
        for claim in grid.claims:
            names = by_claim.setdefault(counted_as(claim.claim), [])
            if name not in names:
                names.append(name)
    by_claim.pop("", None)  # hypotheses of grids, which no paper claims
    return by_claim


def scales(entries: Sequence[scoreboard.Entry]) -> list[str]:
    """The scales with measured answers, small ones first, constructed text last."""
    names = {answer.scale for entry in entries for answer in entry.answers if answer.outcome != NOT_RUN}
    return sorted(names, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))


def sheets(entries: Sequence[scoreboard.Entry]) -> tuple[Sheet, Sheet, dict[str, Any]]:
    """The table to read, a row per measured claim; every number, a row per answer; the runs behind them."""
    levels = scales(entries)
    rows: list[list[Entry]] = []
    for entry in entries:
        if any(answer.outcome != NOT_RUN for answer in entry.answers):
            claim = entry.claim
            outcomes: list[Entry] = [_outcome(entry, scale) for scale in levels]
            links = dict.fromkeys(f"{one.grid}/{one.scale}" for one in entry.answers if one.outcome != NOT_RUN)
            table = claim.table.replace("README ", "README of its code, ")
            rows.append([claim.paper, table, claim.statement, claim.published, *outcomes, ", ".join(links)])
    reading = Sheet(
        ["paper", "table", "claim", "published", *map(_heading, levels), "measured in"],
        rows,
        left=5 + len(levels),
        notes=_notes(),
    )
    numbers = Sheet(
        ["claim", "paper", "table", "statement", "published", "relation", "testable", "grids", "grid", "scale", "asked",
         "post hoc", "continued", "metric", "unit", "outcome", "regime", "direction", "size", "reason", "because",
         "survives board", "look", "n",
         "effect", "low", "high", "low at 95 %", "high at 95 %", "margin",
         "aligned", "aligned low", "aligned high", "speed or quality",
         *basis.COLUMNS],
        [_row(entry, answer) for entry in entries for answer in entry.answers or (None,)],
    )  # fmt: skip
    runs = [
        {"claim": answer.claim, "asked": answer.asked, "grid": answer.grid, "scale": answer.scale, "runs": answer.runs}
        for entry in entries
        for answer in entry.answers
    ]
    return reading, numbers, {"claims": runs}


def _heading(scale: str) -> str:
    """``mechanism (constructed text)``: the name of a scale's column."""
    return f"{scale} ({_SUBJECTS[scale]})" if scale in _SUBJECTS else scale


def _outcome(entry: scoreboard.Entry, scale: str) -> str:
    """``as claimed (speed)``: the outcome with its regime, and what else a reader has to know."""
    marks = [entry.regime(scale), *[CONTINUED] * entry.continued(scale), *["post hoc"] * entry.post_hoc]
    told = ", ".join(filter(None, marks))
    return entry.outcome(scale) + (f" ({told})" if told else "")


def _row(entry: scoreboard.Entry, answer: Answer | None) -> list[Entry]:
    claim = entry.claim
    known: list[Entry] = [claim.id, claim.paper, claim.table, claim.statement, claim.published, claim.relation]
    known += [claim.testable, " ".join(entry.grids)]
    if answer is None:
        return [*known, *[None] * 7, NOT_RUN if entry.grids else NO_GRID, *[None] * (18 + len(basis.COLUMNS))]
    known += [answer.grid, answer.scale, answer.asked, answer.post_hoc, answer.continued, answer.metric, answer.unit]
    known += [answer.outcome, answer.regime, answer.direction, answer.size, answer.reason, answer.because]
    known += [answer.survives, answer.look, answer.n, answer.effect]
    known += [answer.effect_low, answer.effect_high, answer.plain_low, answer.plain_high, answer.margin]
    known += [answer.aligned, answer.aligned_low, answer.aligned_high, answer.kind]
    return [*known, *(answer.basis.get(name) for name in basis.COLUMNS)]


def summary(entries: Sequence[scoreboard.Entry], scale: str) -> Sheet:
    """A row per measured paper: how many claims it makes, how many the scale can test, and what they came to.

    The last rows are of all other papers, and of all.
    """
    where = "on constructed text" if scale == MECHANISM else "at this scale"
    measured: list[list[int | str]] = []
    others: list[list[int | str]] = []
    for paper in papers():
        claims_ = [entry for entry in entries if entry.claim.paper == paper]
        found = [entry.state(scale) for entry in claims_]
        testable = sum(entry.is_testable(scale) for entry in claims_)
        counts = [found.count(state) for state in _MEASURED]
        (measured if any(counts) else others).append([paper, len(claims_), testable, sum(counts), *counts])
    measured.sort(key=lambda row: -int(row[1]))
    rows = measured
    if others:
        rows = [*rows, [f"{len(others)} other paper{'s' * (len(others) > 1)}", *_summed(others)]]
    rows = [*rows, ["all", *_summed(rows)]] if rows else []
    shown = [[value if value or row[0] == "all" else "" for value in row] for row in rows]
    return Sheet(["paper", "claims", f"testable {where}", "measured", *_MEASURED], shown)


def _summed(rows: Sequence[Sequence[int | str]]) -> list[int | str]:
    return [sum(map(int, column)) for column in list(zip(*rows, strict=True))[1:]]


def opening(entries: Sequence[scoreboard.Entry], scale: str) -> str:
    """How many claims are measured at a scale and how these ended, as a sentence."""
    ends = [entry.state(scale) for entry in entries]
    measured = sum(end in _MEASURED for end in ends)
    told = "; ".join(f"{ends.count(state)} {state}" for state in _MEASURED)
    return f"Of {len(entries)} published claims, {measured} are measured at scale {markdown_code(scale)}: {told}."


def _notes() -> list[str]:
    return [
        "A verdict says what runs show at equal tokens. As claimed: every answer to the claim is, and some grid has "
        "given all its answers. Against: an answer is, and none is as claimed. Within the margin: no answer shows a "
        "difference, and each excludes one beyond its margin. Open: all else. Intervals are adjusted for the tests "
        "and looks of a grid. The CSV has those at 95 % too, and whether an answer survives a correction over all "
        "grids. Often an answer rests on a proxy, which its page names. The number of settled claims depends on the "
        "choice of claims and is no aim.",
        "The regime in brackets says what kind of result it is. Below counting: neither side of a compared pair is "
        "shown to be better than the best method without a network on the page. Of masked words that is a product of "
        "counts of the two neighbours. Speed: no difference at equal multiples of the tokens at which a run passes "
        "the bigram baseline, where a constant offset would have left one. Quality: a difference there too. Other "
        "subject: another quantity, protocol or model than the claim's. By construction: it follows from the formula. "
        "Confounded: something else may explain all of it. The page says why.",
        f"Of the {len(with_parts())} statements that are kept, {len(with_parts()) - len(published_claims())} are parts "
        "of wider ones, one task or one reading of it, and count with those.",
    ]


def write(snapshot: Snapshot) -> dict[str, Path]:
    """Writes the scoreboard of a snapshot into its results folder; returns the files by name."""
    results_dir, entries = snapshot.folder, gathered(snapshot)
    reading, numbers, trace = sheets(entries)
    reading = replace(reading, rows=[[*row[:-1], Pages(row[-1])] for row in reading.rows])
    written = {path.name: path for path in tables.write(results_dir, "claims", (reading, numbers, trace)).values()}
    levels = scales(entries)
    head = (
        "# Which published claims hold?\n\n"
        + "\n".join(_summaries(entries, levels, snapshot))
        + _images(entries, levels)
    )
    page = written["claims.md"]
    tables.store.write(page, (head + files.read_text(page, within=results_dir)).encode())
    for scale in levels:
        for name, draw in claims.FIGURES.items():
            figure, path = draw(entries, scale), results_dir / f"claims_{name}_{scale}.svg"
            if figure is not None:
                written[path.name] = grid_figures.save(figure, path)
    return written


def _summaries(entries: Sequence[scoreboard.Entry], levels: Sequence[str], snapshot: Snapshot) -> list[str]:
    parts = []
    for scale in levels:
        parts += [f"## At scale {markdown_code(scale)}{', on constructed text' * (scale == MECHANISM)}\n"]
        parts += [f"{opening(entries, scale)}\n", *[f"{_APART}\n"] * (scale == MECHANISM)]
        parts += [tables.markdown(summary(entries, scale)), _survival(entries, scale), _cost(entries, scale, snapshot)]
    return [*parts, _whole_cost(snapshot)]


def _survival(entries: Sequence[scoreboard.Entry], scale: str) -> str:
    """What the correction over all grids leaves of the settled verdicts and claims, as a paragraph of Markdown."""
    found = scoreboard.surviving(entries, scale)
    later = f", or for post hoc ones over these and {found.tests - found.planned} more" * (found.tests > found.planned)
    return (
        f"A claim may have several tests. Of {found.settled} tests settled without a threat, {found.left} survive "
        f"Holm's correction over all {found.planned} judged tests of published claims at this scale{later}. Of "
        f"{found.claims} settled claims, {found.whole} survive with all their tests (`ablations claims --survives`).\n"
    )


def _cost(entries: Sequence[scoreboard.Entry], scale: str, snapshot: Snapshot) -> str:
    """What the runs behind the verdicts of a scale took, as a paragraph of Markdown."""
    ids = {id for entry in entries for answer in entry.answers if answer.scale == scale for id in answer.runs}
    records = [record for id in sorted(ids) if (record := snapshot.get(id)) is not None]
    seconds = sum(record.cost.get("seconds", 0.0) for record in records)
    flops = sum(record.cost.get("flops", 0.0) for record in records)
    return (
        f"{len(records)} runs behind these verdicts: {quantity(flops)} FLOPs in {duration(seconds)} of training on a "
        "shared machine, without trunks and searches.\n"
    )


def _whole_cost(snapshot: Snapshot) -> str:
    """What all that is recorded took, as a paragraph of Markdown."""
    costs = [record.cost for _, record in snapshot.survey() if isinstance(record, Record) and record.outcome == "done"]
    seconds = sum(cost.get("seconds", 0.0) for cost in costs)
    return (
        f"With trunks and searches, and the runs of unfinished grids, {len(costs)} runs of all scales are recorded: "
        f"{duration(seconds)} of training.\n"
    )


def _images(entries: Sequence[scoreboard.Entry], levels: Sequence[str]) -> str:
    drawn = [
        (f"{said}. {text}" if name == "board" and (said := claims.board_answer(entries, scale)) else text,
         f"claims_{name}_{scale}.svg")
        for scale in levels for name, text in claims.ABOUT.items()
    ]  # fmt: skip
    lines = [f"![{text}]({quote(file)})\n" for text, file in drawn]
    return "\n" + "\n".join(lines) + "\n## Claim by claim\n\n"
