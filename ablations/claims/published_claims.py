"""Published claims as data: the rows of ``ablations/published/claims/*.csv``, whether or not a grid tests them yet.

A row says what a paper claims, between which variants, with which printed values, and at which scale the claim can be
tested honestly. A grid's claim names the row that it tests by its ``of``, or by having the same id.
"""

import csv
from collections import Counter
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from lightning_modules.config import ConfigError, Problem, did_you_mean

FOLDER = Path(__file__).parents[1] / "published" / "claims"
RELATIONS = {
    ">": "better",
    "<": "worse",
    "~": "about equal",
    "ratio": "at least so many times",
    "ordering": "order of several",
    "trend": "monotone",
    "interaction": "difference of differences",
    "spread": "less spread over seeds",
}
TESTABLE = {
    "laptop": "minutes of a CPU core a run",
    "gpu": "minutes of one GPU a run",
    "constructed": "the mechanism alone, on constructed data",
    "paper": "as published only",
}


@dataclass(frozen=True)
class PublishedClaim:
    """One claim.

    Attributes:
        id: Unique; starts with paper and table.
        statement: In words.
        table: Table, figure or section of the paper.
        metric, split: What the paper measured, and on which part of the data.
        a, a_value, b, b_value: The two sides as the paper names them, and its printed values; empty where the claim
            is no comparison of two.
        relation: Of a to b, a key of ``RELATIONS``.
        effect: As printed, or a minus b in the metric's unit.
        testable: The smallest scale at which a test says something, a key of ``TESTABLE``; ``reason`` says what is
            needed beyond that.
    """

    id: str
    statement: str
    paper: str
    arxiv: str
    table: str
    metric: str
    split: str
    a: str
    a_value: str
    relation: str
    b: str
    b_value: str
    effect: str
    testable: str
    reason: str
    note: str

    @property
    def published(self) -> str:
        """The printed values in a phrase."""
        if self.a_value and self.b_value:
            return f"{self.metric}: {self.a_value} against {self.b_value}"
        return self.effect


COLUMNS = tuple(field.name for field in fields(PublishedClaim))
_REQUIRED = ("id", "statement", "paper", "table", "metric", "relation", "testable")


@cache
def claims(folder: Path = FOLDER) -> dict[str, PublishedClaim]:
    """Every published claim by id, paper by paper.

    Raises:
        ConfigError: For every bad row at once, each with file and line.
    """
    found: dict[str, PublishedClaim] = {}
    problems: list[Problem] = []
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            if tuple(next(reader, ())) != COLUMNS:
                problems.append(Problem(f"{path.name}:1", f"the columns have to be {', '.join(COLUMNS)}"))
                continue
            for cells in reader:
                where = f"{path.name}:{reader.line_num}"
                if len(cells) != len(COLUMNS):
                    problems.append(Problem(where, f"{len(cells)} cells where the header has {len(COLUMNS)}"))
                    continue
                claim = PublishedClaim(*(cell.strip() for cell in cells))
                problems += [Problem(where, fault) for fault in _faults(claim, found)]
                found[claim.id] = claim
    if problems:
        raise ConfigError(problems)
    return found


def _faults(claim: PublishedClaim, known: dict[str, PublishedClaim]) -> list[str]:
    faults = [f"'{name}' is empty" for name in _REQUIRED if not getattr(claim, name)]
    for name, allowed in (("relation", RELATIONS), ("testable", TESTABLE)):
        value = getattr(claim, name)
        if value and value not in allowed:
            faults.append(f"{name} is {value!r}. Allowed: {', '.join(allowed)}.{did_you_mean(value, allowed)}")
    if claim.id in known:
        faults.append(f"there is a claim '{claim.id}' already")
    return faults


def papers() -> list[str]:
    """The papers that have claims, those with most of them first."""
    return [paper for paper, _ in Counter(claim.paper for claim in claims().values()).most_common()]
