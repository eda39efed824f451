"""Published tables: found by names such as ``albert.t4``, and laid out as the papers print them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

from ablations.core.formatting import Sheet, markdown, markdown_text
from ablations.literature.published_values import FOLDER, TEXT, Published, files, read
from ablations.schema.grid import Grid
from lightning_modules.config import ConfigError, Problem, did_you_mean


@dataclass(frozen=True)
class PrintedTable:
    """One table of one paper.

    Attributes:
        file: The file with its rows.
        table: Its key and title: ``T4 sharing``.
        rows: In printed order.
    """

    file: str
    paper: str
    table: str
    rows: tuple[Published, ...]

    @property
    def key(self) -> str:
        """The first word of ``table``, in small letters: ``t4``."""
        return self.table.split()[0].lower().rstrip(",")

    @property
    def title(self) -> str:
        """The words after the key."""
        return " ".join(self.table.split()[1:])

    @property
    def slug(self) -> str:
        """The whole of ``table`` in small letters, digits, dots and hyphens: ``t9-glue-single``."""
        return re.sub(r"[^a-z0-9.+]+", "-", self.table.lower()).strip("-")


def catalogue(folder: Path = FOLDER) -> dict[str, PrintedTable]:
    """Every published table by its name, ordered by paper, then as in the file.

    The name is ``<paper>.<key>``; tables of a paper with the same key, such as the two halves of ALBERT's T9, have
    their title in it: ``albert.t9-glue-single``.

    Raises:
        ConfigError: If a file cannot be read.
    """
    by_table: dict[tuple[str, str, str], list[Published]] = {}
    for file in files(folder):
        for row in read(file, folder=folder):
            by_table.setdefault((file, row.paper, row.table), []).append(row)
    tables = [PrintedTable(*key, tuple(rows)) for key, rows in by_table.items()]
    tables.sort(key=lambda table: plain_name(table.paper))
    short = [f"{plain_name(table.paper)}.{table.key}" for table in tables]
    return {
        name if short.count(name) == 1 else f"{plain_name(table.paper)}.{table.slug}": table
        for name, table in zip(short, tables, strict=True)
    }


def of_grid(grid: Grid) -> list[PrintedTable]:
    """The published tables to compare a grid's cells with, each whole and once.

    Raises:
        ConfigError: If a file cannot be read or has no such table.
    """
    by_table: dict[tuple[str, str, str], list[Published]] = {}
    for file, table in dict.fromkeys((source.file, source.table) for source in grid.published):
        for row in read(file, table):
            by_table.setdefault((file, row.paper, row.table), []).append(row)
    return [PrintedTable(*key, tuple(rows)) for key, rows in by_table.items()]


def plain_name(paper: str) -> str:
    """A paper's name in small letters and digits.

    >>> plain_name("Transformer-XL")
    'transformerxl'
    """
    return re.sub(r"[^a-z0-9]", "", paper.lower())


def find(names: Iterable[str], tables: dict[str, PrintedTable]) -> dict[str, PrintedTable]:
    """The tables with given names: ``albert`` is all of a paper or file, ``albert.t9`` all with that key.

    Raises:
        ConfigError: For every name without a table, with the nearest name.
    """
    chosen: dict[str, PrintedTable] = {}
    problems = []
    for name in names:
        paper, _, part = name.lower().partition(".")
        keys = (plain_name(paper), f"{plain_name(paper)}csv")
        of_paper = {f: t for f, t in tables.items() if plain_name(t.paper) in keys or plain_name(t.file) in keys}
        matches = {full: table for full, table in of_paper.items() if not part or _means(part, table)}
        if not matches:
            what = "there is no such table" if of_paper else "there is no such paper or table"
            problems.append(Problem(name, f"{what}.{_nearest(name, of_paper or tables)}"))
        chosen |= matches
    if problems:
        raise ConfigError(problems)
    return chosen


def _means(part: str, table: PrintedTable) -> bool:
    return part in (table.key, table.slug, *table.key.split("+"))


def _nearest(name: str, tables: dict[str, PrintedTable]) -> str:
    papers = {plain_name(table.paper) for table in tables.values()}
    keys = {f"{plain_name(table.paper)}.{table.key}" for table in tables.values()}
    hint = did_you_mean(name.lower(), {*tables, *keys, *papers})
    return hint if "Did you mean" in hint else did_you_mean(name.lower(), keys if len(papers) == 1 else papers)


Column = tuple[str, str]  # metric, split


def sheet(table: PrintedTable) -> Sheet:
    """A table as the paper prints it: variants as rows, metrics as columns, every value as printed, notes below."""
    columns = _columns(table.rows)
    cells: dict[str, dict[Column, str]] = {}
    for row in table.rows:
        values = cells.setdefault(row.variant, {})
        if (row.metric, row.split) in values:
            message = f"line {row.line} repeats {row.metric} of {row.variant}"
            raise ConfigError([Problem(f"{table.file}: {table.table}", message)])
        values[row.metric, row.split] = row.value
    return Sheet(
        ["", *_headings(table.rows, columns)],
        [[variant, *(values.get(column, "") for column in columns)] for variant, values in cells.items()],
        notes=_notes(table),
    )


def text(table: PrintedTable) -> str:
    """A table as the paper prints it, in Markdown under its name."""
    return f"**{markdown_text(f'{table.paper}, {table.table}')}**\n\n{markdown(sheet(table))}"


def _columns(rows: Sequence[Published]) -> list[Column]:
    """Columns in the order that every variant has in the file; if variants disagree, in order of appearance."""
    seen = list(dict.fromkeys((row.metric, row.split) for row in rows))
    order: TopologicalSorter[Column] = TopologicalSorter(dict.fromkeys(seen, ()))
    for before, after in pairwise(rows):
        if before.variant == after.variant:
            order.add((after.metric, after.split), (before.metric, before.split))
    try:
        return list(order.static_order())
    except CycleError:
        return seen


def _headings(rows: Sequence[Published], columns: Sequence[Column]) -> list[str]:
    """The metric; with its split and unit if those of the table differ."""
    many_splits, many_units = len({row.split for row in rows} - {""}) > 1, len({row.unit for row in rows}) > 1
    headings = []
    for metric, split in columns:
        unit = next(row.unit for row in rows if (row.metric, row.split) == (metric, split))
        shown = f"({unit})" if many_units and unit not in ("", TEXT) else ""
        headings.append(" ".join(filter(None, (metric, split if many_splits else "", shown))))
    return headings


def _notes(table: PrintedTable) -> list[str]:
    rows = table.rows
    sources = "; ".join(dict.fromkeys(row.source for row in rows))
    confidence = ", ".join(dict.fromkeys(row.confidence for row in rows if row.confidence))
    notes = [f"{table.paper}, {table.table}: {sources}" + (f" ({confidence})." if confidence else ".")]
    for word, values in (("Unit", {row.unit for row in rows}), ("Split", {row.split for row in rows} - {""})):
        if len(values) == 1 and (value := values.pop()) not in ("", TEXT):
            notes.append(f"{word}: {value}.")
    lower = list(dict.fromkeys(row.metric for row in rows if row.better == "lower"))
    if lower:
        all_of_them = {row.better for row in rows} == {"lower"}
        notes.append(f"Lower is better{'' if all_of_them else ': ' + ', '.join(lower)}.")
    return notes + [_about(note, rows) for note in dict.fromkeys(row.note for row in rows if row.note)]


def _about(note: str, rows: Sequence[Published]) -> str:
    """A note after its subject: none for the whole table, else variants or single values."""
    subjects = [row for row in rows if row.note == note]
    variants = list(dict.fromkeys(row.variant for row in subjects))
    others = {row.variant for row in rows if row.note != note}
    if len(subjects) == len(rows):
        return f"{note[:1].upper()}{note[1:]}."
    if others.isdisjoint(variants):
        return f"{', '.join(variants)}: {note}."
    metrics = list(dict.fromkeys(row.metric for row in subjects))
    return f"{', '.join(metrics)} of {', '.join(variants)}: {note}."
