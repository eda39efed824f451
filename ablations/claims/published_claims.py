"""Published claims: the rows of ``ablations/published/claims/*.csv``, tested by a grid or not.

A row states what a paper claims, between which variants, with which printed values, and at which scale the claim can be
tested honestly. A grid's claim names its row and repeats none of this (``planning/asked_claims.py``).
"""

import csv
import difflib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from ablations.literature.published_values import is_number
from lightning_modules.config import ConfigError, Problem, did_you_mean
from lightning_modules.files import once_per_version

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
    "laptop": "minutes of a CPU core per run",
    "gpu": "minutes of one GPU per run",
    "constructed": "the mechanism alone, on constructed data",
    "paper": "as published only",
}
_LISTS = ("sides", "values")  # columns with several entries, separated by '; '
_COUNTS = {"ordering": (2, 26), "trend": (2, 26), "interaction": (4, 4)}  # number of sides; two for other relations


@dataclass(frozen=True)
class PublishedClaim:
    """One published claim.

    Attributes:
        id: Unique; starts with paper and table.
        part_of: The wider claim whose row of the scoreboard counts this one: one task or one reading of it.
        statement: The claim in words.
        source: Citation of paper and table.
        table: Table, figure or section of the paper; for tables of ``ablations/published``, their name there.
        metric, split: The paper's metric and the part of the data.
        label: The metric in words with its unit in brackets, where sentences need more than ``metric``.
        sides: The compared variants by the paper's names, in the order of the relation: ordering and trend list the
            best first, an interaction a, b, c, d of (a - b) - (c - d). Empty if the claim compares no variants.
        relation: Of the first side to the second, a key of ``RELATIONS``. ``>`` means better and ``<`` means worse,
            whichever direction of the metric that is.
        values: The printed values of the sides; empty if none are printed.
        effect: The printed effect, or the first value minus the second, in the metric's unit.
        testable: The smallest scale with a meaningful test, a key of ``TESTABLE``; ``reason`` states further needs.
        place: Place of the row, as ``file:line``.
    """

    id: str
    part_of: str
    statement: str
    source: str
    paper: str
    arxiv: str
    table: str
    metric: str
    label: str
    split: str
    sides: tuple[str, ...]
    relation: str
    values: tuple[str, ...]
    effect: str
    testable: str
    reason: str
    note: str
    place: str

    @property
    def published(self) -> str:
        """The printed values as a phrase."""
        return f"{self.metric}: {' against '.join(self.values)}" if len(self.values) == 2 else self.effect

    @property
    def as_asked(self) -> str:
        """The relation as grids state it, with the better side first."""
        return ">" if self.relation == "<" else self.relation

    @property
    def values_as_asked(self) -> dict[str, float]:
        """The printed values by the letters of a grid's sides, with the better side first."""
        values = self.values[::-1] if self.relation == "<" else self.values
        return {letter: _number(value) for letter, value in zip(ascii_lowercase, values, strict=False)}


COLUMNS = tuple(field.name for field in fields(PublishedClaim) if field.name != "place")
_REQUIRED = ("id", "statement", "source", "paper", "table", "metric", "relation", "testable")


def claims(folder: Path = FOLDER) -> dict[str, PublishedClaim]:
    """Every published claim by id, paper by paper, without parts of other claims.

    Raises:
        ConfigError: For every bad row at once, each with file and line.
    """
    return {id: claim for id, claim in with_parts(folder).items() if not claim.part_of}


@once_per_version
def with_parts(folder: Path = FOLDER) -> dict[str, PublishedClaim]:
    """Every published claim and every part of one by id: all that a grid may test.

    Raises:
        ConfigError: For every bad row at once, each with file and line.
    """
    by_id: dict[str, PublishedClaim] = {}
    problems: list[Problem] = []
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            if tuple(next(reader, ())) != COLUMNS:
                problems.append(Problem(f"{path.name}:1", f"the columns must be {', '.join(COLUMNS)}"))
                continue
            for cells in reader:
                where = f"{path.name}:{reader.line_num}"
                if len(cells) != len(COLUMNS):
                    problems.append(Problem(where, f"has {len(cells)} cells. The header has {len(COLUMNS)}."))
                    continue
                claim = _claim(cells, where)
                problems += [Problem(where, fault) for fault in _faults(claim, by_id)]
                by_id[claim.id] = claim
    problems += [Problem(claim.place, fault) for claim in by_id.values() if (fault := _stray(claim, by_id))]
    if problems:
        raise ConfigError(problems)
    return by_id


def _claim(cells: Sequence[str], where: str) -> PublishedClaim:
    row = {name: cell.strip() for name, cell in zip(COLUMNS, cells, strict=True)}
    lists = {name: tuple(part.strip() for part in row.pop(name).split(";") if part.strip()) for name in _LISTS}
    entries: dict[str, Any] = {**row, **lists, "place": where}
    return PublishedClaim(**entries)


def _faults(claim: PublishedClaim, known: dict[str, PublishedClaim]) -> list[str]:
    faults = [f"'{name}' is empty" for name in _REQUIRED if not getattr(claim, name)]
    for name, allowed in (("relation", RELATIONS), ("testable", TESTABLE)):
        value = getattr(claim, name)
        if value and value not in allowed:
            faults.append(f"{name} is {value!r}.{did_you_mean(value, allowed, listed=True)}")
    if claim.id in known:
        faults.append(f"there is already a claim '{claim.id}'")
    fewest, most = _COUNTS.get(claim.relation, (2, 2))
    if claim.sides and not fewest <= len(claim.sides) <= most:
        count = str(fewest) if fewest == most else f"{fewest} or more"
        faults.append(
            f"'{claim.relation}' needs {count} sides, not {len(claim.sides)}. Separate them with a semicolon."
        )
    if claim.values and len(claim.values) != len(claim.sides):
        faults.append(f"{len(claim.values)} values for {len(claim.sides)} sides")
    return faults + [f"the value {value!r} is not a number" for value in claim.values if not is_number(value)]


def _stray(claim: PublishedClaim, known: dict[str, PublishedClaim]) -> str:
    """The problem with the claim that a part names."""
    if not claim.part_of:
        return ""
    if claim.part_of not in known:
        return f"part_of: {unknown(claim.part_of, known)}"
    return f"part_of: '{claim.part_of}' is itself part of a claim" if known[claim.part_of].part_of else ""


def _number(printed: str) -> float:
    return float(printed.lstrip("~"))


def unknown(name: str, known: Iterable[str]) -> str:
    """What is wrong with the id of a claim that no paper makes: how many there are, and the nearest."""
    names = list(known)
    near = [f"'{id}'" for id in difflib.get_close_matches(name, names, n=3, cutoff=0.6)]
    if near:
        meant = f"Did you mean {near[0]}?" + (f" Also near: {', '.join(near[1:])}." if near[1:] else "")
    else:
        meant = f"The nearest: {', '.join(difflib.get_close_matches(name, names, n=3, cutoff=0.0))}."
    return f"there is no published claim '{name}' among {len(names)}. {meant}"


def counted_as(name: str) -> str:
    """The claim whose row of the scoreboard counts a claim or part; other names stay as they are."""
    claim = with_parts().get(name)
    return (claim.part_of or claim.id) if claim else name


def papers() -> list[str]:
    """The papers with claims, those with most claims first."""
    return [paper for paper, _ in Counter(claim.paper for claim in claims().values()).most_common()]
