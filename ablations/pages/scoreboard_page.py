"""The scoreboard as files: ``results/claims.{md,csv,tex,json}`` and two figures, from the cards of all pages."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ablations.claims import scoreboard
from ablations.claims.judging import CONTRADICTS, NOT_RESOLVED, REPLICATES
from ablations.claims.published_claims import counted_as
from ablations.claims.scoreboard import MIXED, NO_GRID, NOT_RUN, Answer
from ablations.core.formatting import Entry, Sheet
from ablations.core.store import Snapshot
from ablations.figures import claims, grid_figures
from ablations.pages import tables
from ablations.planning import grids

UNCOUNTED = ("smoke", "demo")  # scales whose numbers mean little
REQUEST = "request.json"  # in a page's folder: what was asked for, where that is not the plain grid at a plain scale
_ORDER = ("laptop", "laptop-long", "gpu", "paper")


def gathered(snapshot: Snapshot) -> list[scoreboard.Entry]:
    """Every published claim with what the pages of a results folder say: whole grids at scales that count.

    Only answers count whose runs are all done.

    Pages of overridden grids, and of grids that are not the project's own, are left out: their claims are no longer
    what was fixed before anything ran.
    """
    known, cards = grids.available(), []
    for path in sorted(snapshot.folder.glob("*/*/page.json")):
        grid, scale = path.parts[-3:-1]
        if grid in known and scale not in UNCOUNTED and not (path.parent / REQUEST).exists():
            cards.append((grid, scale, json.loads(path.read_text(encoding="utf-8"))))
    return scoreboard.entries(scoreboard.answers(cards, snapshot.done), _asked())


def _asked() -> dict[str, list[str]]:
    asked: dict[str, list[str]] = {}
    for name in grids.available():
        for claim in grids.read(name).claims:
            names = asked.setdefault(counted_as(claim.claim), [])
            if name not in names:
                names.append(name)
    asked.pop("", None)  # hypotheses of grids, which no paper claims
    return asked


def scales(found: Sequence[scoreboard.Entry]) -> list[str]:
    """The scales at which anything was asked, small ones first."""
    names = {one.scale for entry in found for one in entry.answers}
    return sorted(names, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))


def sheets(found: Sequence[scoreboard.Entry]) -> tuple[Sheet, Sheet, dict[str, Any]]:
    """The scoreboard: a row a claim that was measured to read, a row an answer with every number, and the runs."""
    levels = scales(found)
    rows: list[list[Entry]] = []
    for entry in found:
        if any(one.outcome != NOT_RUN for one in entry.answers):
            claim = entry.claim
            outcomes: list[Entry] = [entry.outcome(scale) for scale in levels]
            links = dict.fromkeys(f"{one.grid}/{one.scale}" for one in entry.answers if one.outcome != NOT_RUN)
            rows.append([claim.paper, claim.table, claim.statement, claim.published, *outcomes, ", ".join(links)])
    reading = Sheet(
        ["paper", "table", "claim", "published", *levels, "measured in"], rows, left=4 + len(levels), notes=_notes()
    )
    numbers = Sheet(
        ["claim", "paper", "table", "statement", "published", "relation", "testable", "grids", "grid", "scale", "asked",
         "metric", "outcome", "n", "effect", "removed", "removed low", "removed high", "removed as published"],
        [_row(entry, one) for entry in found for one in entry.answers or (None,)],
    )  # fmt: skip
    runs = [
        {"claim": one.claim, "asked": one.asked, "grid": one.grid, "scale": one.scale, "runs": one.runs}
        for entry in found
        for one in entry.answers
    ]
    return reading, numbers, {"claims": runs}


def _row(entry: scoreboard.Entry, one: Answer | None) -> list[Entry]:
    claim = entry.claim
    known: list[Entry] = [claim.id, claim.paper, claim.table, claim.statement, claim.published, claim.relation]
    known += [claim.testable, " ".join(entry.grids)]
    if one is None:
        return [*known, *[None] * 4, NOT_RUN if entry.grids else NO_GRID, *[None] * 6]
    said: list[Entry] = [one.grid, one.scale, one.asked, one.metric, one.outcome, one.n, one.effect]
    return [*known, *said, one.removed, one.low, one.high, one.published]


def summary(found: Sequence[scoreboard.Entry], scale: str) -> Sheet:
    """A row a paper: how many of its claims are recorded, can be tested at that scale or below, and ended how."""
    rows: list[list[Entry]] = []
    for paper, counts in scoreboard.tally(found, scale):
        mine = [entry for entry in found if entry.claim.paper == paper]
        small = sum(entry.claim.testable == "laptop" for entry in mine)
        asked = sum(bool(entry.grids) for entry in mine)
        tested = sum(counts[name] for name in (REPLICATES, CONTRADICTS, MIXED, NOT_RESOLVED))
        shown = [counts[name] or "" for name in (REPLICATES, CONTRADICTS, MIXED, NOT_RESOLVED)]
        rows.append([paper, len(mine), small, asked, tested, *shown])
    total: list[Entry] = ["all"]
    for column in range(1, len(rows[0]) if rows else 0):
        total.append(sum(int(row[column] or 0) for row in rows))  # type: ignore[arg-type]
    headings = ["paper", "claims", "testable on a laptop", "with a grid", "measured"]
    return Sheet([*headings, REPLICATES, CONTRADICTS, MIXED, NOT_RESOLVED], [*rows, total] if rows else [])


def _notes() -> list[str]:
    return [
        "Replicates: some grid has measured all it asks about the claim, and every answer replicates. Contradicts: an "
        "answer contradicts and none replicates; mixed: some do either. Each answer is read from intervals adjusted "
        "for all claims of its grid, at that scale, and often by proxy: the linked page says which."
    ]


def write(snapshot: Snapshot) -> dict[str, Path]:
    """Writes the scoreboard of the results folder that a snapshot is of; returns the files by name."""
    results_dir, found = snapshot.folder, gathered(snapshot)
    reading, numbers, trace = sheets(found)
    written = {path.name: path for path in tables.write(results_dir, "claims", (reading, numbers, trace)).values()}
    levels = scales(found)
    head = "# Which published claims hold?\n\n" + "\n".join(_summaries(found, levels)) + _pictures(levels)
    page = written["claims.md"]
    tables.store.write(page, (head + page.read_text(encoding="utf-8")).encode())
    for scale in levels:
        for name, draw in claims.FIGURES.items():
            figure, path = draw(found, scale), results_dir / f"claims_{name}_{scale}.svg"
            if figure is not None:
                written[path.name] = grid_figures.save(figure, path)
    return written


def _summaries(found: Sequence[scoreboard.Entry], levels: Sequence[str]) -> list[str]:
    parts = []
    for scale in levels:
        parts += [f"## At scale `{scale}`\n", tables.markdown(summary(found, scale))]
    return parts


def _pictures(levels: Sequence[str]) -> str:
    lines = [f"![{text}](claims_{name}_{scale}.svg)\n" for scale in levels for name, text in claims.ABOUT.items()]
    return "\n" + "\n".join(lines) + "\n## Claim by claim\n\n"
