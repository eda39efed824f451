"""Published values: the rows of ``ablations/published/*.csv``, read strictly and joined to the cells of a grid.

One row is one printed value. The fixed columns hold the value and its source; the further ones describe the variant:
its configuration, and its names in grids. ``published/README.md`` explains each column.
"""

import bisect
import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, cast

from lightning_modules.config import ConfigError, Problem, did_you_mean

FOLDER = Path(__file__).parents[1] / "published"
COLUMNS = (
    "paper", "arxiv", "table", "variant", "metric", "value", "unit", "split", "better", "source", "confidence", "note",
)  # fmt: skip
NAMES = (  # grids' own
    "system", "objective", "layers", "rate", "strategy", "features", "model", "start", "examples", "recurrence",
    "encoding", "loss", "sentences",
)  # fmt: skip
CONFIGURATION = (
    "num_layers", "hidden_size", "embedding_size", "num_heads", "ffn_size", "parameters_M", "sharing", "pretraining",
    "masking", "input_format", "steps", "batch_size", "peak_lr", "optimizer", "sequence_length", "data", "tokenizer",
    "finetuning", "setting",
)  # fmt: skip
CONFIDENCE = ("checked", "repository", "copy", "second hand")
TEXT = "text"  # the unit of a value in words, which cannot be ordered
_REQUIRED = ("paper", "table", "variant", "metric", "value", "source")
_DIRECTIONS = ("higher", "lower")


@dataclass(frozen=True)
class Published:
    """One printed value.

    Attributes:
        value: As printed (``84.50`` keeps its zero, ``~1.0`` its tilde).
        unit: The unit of the value; ``text`` for words, which have no ``better``.
        confidence: One of ``CONFIDENCE``, or empty.
        knobs: The further columns, as text.
        line: Its line in the file.
    """

    paper: str
    arxiv: str
    table: str
    variant: str
    metric: str
    value: str
    unit: str
    split: str
    better: str
    source: str
    confidence: str
    note: str
    knobs: Mapping[str, str]
    line: int

    @property
    def number(self) -> float:
        """The printed value as a number; words raise a ValueError."""
        return float(self.value.lstrip("~"))

    def to_dict(self) -> dict[str, str | float | None]:
        """The fixed columns, and the value as a number next to it as printed."""
        row: dict[str, str | float | None] = {name: getattr(self, name) for name in COLUMNS}
        return row | {"number": None if self.unit == TEXT else self.number}

    @property
    def columns(self) -> dict[str, str]:
        """The columns by which a grid may select and join: the further ones, and two fixed ones."""
        return {"variant": self.variant, "split": self.split, **self.knobs}


def printed_difference(a: Any, b: Any) -> str:
    """``a - b`` of two printed values of one metric, with their printed decimals.

    >>> printed_difference(84.5, "84.2"), printed_difference("n/a", 1)
    ('+0.3', '')
    """
    try:
        return f"{Decimal(str(a).lstrip('~')) - Decimal(str(b).lstrip('~')):+}"
    except InvalidOperation:
        return ""


def files(folder: Path = FOLDER) -> list[str]:
    """The names of all files of published values."""
    return sorted(path.name for path in folder.glob("*.csv"))


def read(name: str, table: str = "", folder: Path = FOLDER) -> list[Published]:
    """Reads one file of published values, or one table of it.

    Args:
        name: A file name in ``folder``, with or without ``.csv``.
        table: Which table; empty for all.

    Raises:
        ConfigError: For an unknown file or table, and for all invalid rows, each with its line.
    """
    path = folder / (name if name.endswith(".csv") else f"{name}.csv")
    if path.parent != folder or not path.is_file():
        message = f"there is no such file of published values.{did_you_mean(name, files(folder))}"
        raise ConfigError([Problem(name, message)])
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.reader(stream, strict=True)
        header = next(reader, [])
        if wrong := _wrong_header(header):
            raise ConfigError([Problem(f"{path.name}:1", wrong)])
        rows, problems = [], []
        for cells in reader:
            row, wrong = _row(header, cells, reader.line_num)
            problems += [Problem(f"{path.name}:{reader.line_num}", message) for message in wrong]
            rows += [row] if row else []
    problems += [Problem(f"{path.name}:{line}", message) for line, message in _repeated(rows)]
    names = {row.table for row in rows}
    if table and table not in names:
        problems.append(Problem(path.name, f"there is no table '{table}'.{did_you_mean(table, names)}"))
    if problems:
        raise ConfigError(problems)
    return [row for row in rows if table in ("", row.table)]


def chosen(source: Any) -> list[Published]:
    """The rows of a grid's ``published`` entry: of its file and table, with the column values in its ``where``."""
    rows = read(source.file, source.table)
    return [row for row in rows if all(same(row.columns.get(name), value) for name, value in source.where.items())]


def written(rows: Iterable[Published]) -> str:
    """Rows as a file of published values, with the further columns that any row fills; :func:`read` reads it."""
    rows = list(rows)
    further = [name for name in (*NAMES, *CONFIGURATION) if any(row.knobs.get(name) for row in rows)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, *further])
    for row in rows:
        writer.writerow([*(getattr(row, name) for name in COLUMNS), *(row.knobs.get(name, "") for name in further)])
    return out.getvalue()


def _wrong_header(header: list[str]) -> str:
    missing = [column for column in COLUMNS if column not in header]
    if missing:
        return f"the columns {', '.join(missing)} are missing"
    if len(set(header)) != len(header):
        return "a column appears twice"
    known = (*COLUMNS, *NAMES, *CONFIGURATION)
    for column in header:
        if column not in known:
            return f"there is no column '{column}'.{did_you_mean(column, known)}"
    return ""


def _row(header: list[str], cells: list[str], line: int) -> tuple[Published | None, list[str]]:
    if len(cells) != len(header):
        return None, [f"has {len(cells)} cells, but the header has {len(header)}"]
    row = {name: cell.strip() for name, cell in zip(header, cells, strict=True)}
    wrong = [f"'{name}' is empty" for name in _REQUIRED if not row[name]]
    if row["unit"] == TEXT:
        if row["better"]:
            wrong.append(f"better is {row['better']!r}, but text cannot be ordered. Leave it empty.")
    else:
        if not is_number(row["value"]):
            wrong.append(f"the value {row['value']!r} is not a number")
        if row["better"] not in _DIRECTIONS:
            wrong.append(f"better is {row['better']!r}. Allowed: {', '.join(_DIRECTIONS)}.")
    if row["confidence"] not in ("", *CONFIDENCE):
        wrong.append(f"confidence is {row['confidence']!r}.{did_you_mean(row['confidence'], CONFIDENCE)}")
    if wrong:
        return None, wrong
    knobs = {name: row.pop(name) for name in header if name not in COLUMNS}
    return Published(**row, knobs=knobs, line=line), []


def is_number(printed: str) -> bool:
    """Whether a printed value, without a tilde, is a finite number."""
    try:
        return math.isfinite(float(printed.lstrip("~")))
    except ValueError:
        return False


def _repeated(rows: list[Published]) -> list[tuple[int, str]]:
    seen: dict[tuple[Any, ...], int] = {}
    problems = []
    for row in rows:
        key = (row.paper, row.table, row.variant, row.metric, row.split, *row.knobs.items())
        if key in seen:
            problems.append((row.line, f"repeats line {seen[key]}: {row.variant}, {row.metric}"))
        seen.setdefault(key, row.line)
    return problems


def same(knob: Any, printed: Any) -> bool:
    """Whether a knob equals a printed value: numbers by their first twelve digits, everything else as text.

    >>> same(0.1 + 0.05, "0.15"), same("post", "post"), same(True, "1")
    (True, True, False)
    """
    if isinstance(knob, bool) or isinstance(printed, bool) or knob is None or printed is None:
        return knob is printed
    if isinstance(knob, (list, tuple)) and isinstance(printed, (list, tuple)):
        return len(knob) == len(printed) and all(map(same, knob, printed))
    try:
        return math.isclose(float(cast(Any, knob)), float(cast(Any, printed)), rel_tol=1e-11, abs_tol=0.0)
    except (TypeError, ValueError):
        return str(knob) == str(printed)


def repeated(values: Iterable[Any]) -> Iterator[int]:
    """The places of values that are the `same` as an earlier one, in the time that sorting takes.

    >>> list(repeated([1, "a", 1.0, True, [1, 2], "1", True, [1.0, 2]]))
    [2, 5, 6, 7]
    """
    numbers: list[float] = []
    others: set[Any] = set()
    for place, value in enumerate(values):
        key = _key(value)
        if isinstance(key, float):
            at = bisect.bisect(numbers, key)
            is_new = not any(same(key, near) for near in numbers[max(0, at - 1) : at + 1])
            numbers[at:at] = [key] * is_new
        else:
            is_new = key not in others
            others.add(key)
        if not is_new:
            yield place


def _key(value: Any) -> Any:
    """What is equal for values that are the `same`. Of numbers in lists only their first twelve digits count."""
    if isinstance(value, bool) or value is None:
        return type(value), value
    if isinstance(value, (list, tuple)):
        keys = map(_key, value)
        return tuple([float(f"{key:.12g}") if isinstance(key, float) else key for key in keys])
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return number if math.isfinite(number) else str(value)


def joined(rows: Sequence[Published], match: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, Published]:
    """The published values of one cell: metric -> row.

    Args:
        rows: Rows of one table, from :func:`read`.
        match: Column of the file -> path of the axis that must equal it.
        values: The cell's value at each path.

    Raises:
        ConfigError: For an unknown column, or if two rows of one metric match, which makes the join ambiguous.
    """
    by_metric: dict[str, Published] = {}
    for row in rows:
        unknown = [column for column in match if column not in row.columns]
        if unknown:
            message = f"is not a column of published values.{did_you_mean(unknown[0], row.columns)}"
            raise ConfigError([Problem(unknown[0], message)])
        if not all(path in values and same(values[path], row.columns[column]) for column, path in match.items()):
            continue
        if row.metric in by_metric:
            both = f"lines {by_metric[row.metric].line} and {row.line} both give {row.metric} for {dict(values)}"
            raise ConfigError([Problem(row.table, f"{both}. Name the table or match one more column.")])
        by_metric[row.metric] = row
    return by_metric
