"""Examples of one's own: a table, JSON lines, SQuAD's JSON, tagged words or a data set of the hub, of any shape.

`tasks.rows` makes tasks of rows in YAML; ``docs/how-to/data_set.md`` has the keys of an example for each shape.
"""

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lightning_modules.config import ConfigError, did_you_mean, problems
from lightning_modules.data.corpora.sources import Hub, Origin
from lightning_modules.draws import fraction
from lightning_modules.files import open_plain, read_text
from lightning_modules.tasks.reading.lines import Fault, Line, json_object, made, numbered
from lightning_modules.tasks.reading.separators import looks
from lightning_modules.tasks.shapes.shape import Shape
from lightning_modules.tasks.task import Split

Columns = tuple[tuple[str, str | tuple[str, ...]], ...]  # key of an example -> column of the file, or several as a list


@dataclass(frozen=True)
class Own:
    """A reader of examples; call it with a split.

    Attributes:
        train: A file below ``data`` of the study, or below ``ABLATIONS_DATA``; unused with ``hub``.
        dev: A file of dev examples; without one, some of the examples in ``train`` are held out.
        held_out: Their approximate share. Examples about the same text are on the same side.
        columns: Where the file names the keys of an example otherwise.
        quoted: Whether fields of a table may be in quotes, which hold separators and line ends; by default in CSV.
        hub: A data set of the hub in place of files.
    """

    name: str
    shape: Shape
    train: str = ""
    dev: str = ""
    held_out: float = 0.1
    columns: Columns = ()
    quoted: bool | None = None
    hub: Hub | None = None

    @property
    def origin(self) -> Origin:
        """Where the files are."""
        train = () if self.hub else (self.train,)
        files = {"train": train, "dev": (self.dev,) if self.dev else train}
        keys = ", ".join(self.shape.line.model_fields)
        return Origin(f"The data set {self.name}", files, self.hub, f"An example may have {keys}.", "in its form")

    def __call__(self, split: Split) -> Iterator[Any]:
        """The examples of a split, in the order of the file.

        Raises:
            ConfigError: When the data are missing (the message says where they belong), when examples are malformed,
                naming each, and when nothing is held out or nothing remains.
        """
        parts_apart = bool(self.dev) or (self.hub is not None and "dev" in self.hub.splits)
        source, lines = self.lines(split if parts_apart else "train")
        rows = list(made(source, lines, self._row, "line" if self.hub is None else "row"))
        if parts_apart:
            return iter(rows)
        chosen = [row for row in rows if (fraction(self.shape.text_of(row)) < self.held_out) == (split == "dev")]
        if not chosen:
            count = len({self.shape.text_of(row) for row in rows})
            raise ConfigError(
                [
                    f"{source} leaves no example for the split {split}: {self.held_out * 100:g} % of its {count:,} "
                    "texts are held out. Name a file of dev examples, or hold out another share."
                ]
            )
        return iter(chosen)

    def lines(self, split: Split) -> tuple[object, Iterator[Line]]:
        """What is read, and its examples, as `FORMS` gives them."""
        if self.hub:
            rows = (row for part in self.origin.from_hub(split) for row in part)
            return self.hub, (Line(number, [row, str(number)]) for number, row in enumerate(rows, 1))
        (path,) = self.origin.needed(split)
        return path, form_of(path)(path, self.quoted)

    def _row(self, example: str | dict[str, Any], number: str) -> Any:
        keys, is_json = self.shape.line, isinstance(example, str)
        needed = [name for name, field in keys.model_fields.items() if field.is_required()]
        found = json_object(example, [] if self.columns else needed) if isinstance(example, str) else example
        if self.columns:
            found = {key: _column(found, given) for key, given in self.columns}
        elif not is_json:  # a table has columns that say something else
            found = {name: value for name, value in found.items() if name in keys.model_fields}
        if absent := [name for name in needed if name not in found]:
            raise Fault(f"has no {absent[0]}. It has {', '.join(example)[:200]}. Write columns: {{{absent[0]}: ...}}")
        try:
            row = self.shape.row(keys.model_validate_json(json.dumps(found, default=list), strict=is_json), int(number))
        except ValidationError as error:
            raise Fault("; ".join(map(str, problems(error, keys, "key")))) from None
        if problem := self.shape.problem(row):
            raise Fault(problem)
        return row


def _column(example: dict[str, Any], name: str | tuple[str, ...]) -> Any:
    if not isinstance(name, str):
        return [_column(example, each) for each in name]
    if name not in example:
        raise Fault(f"has no column {name}. It has {', '.join(example)[:200]}.{did_you_mean(name, example)}")
    return example[name]


Form = Callable[[Path, bool | None], Iterator[Line]]


def form_of(path: Path) -> Form:
    """How a file is read, by the end of its name.

    Raises:
        ConfigError: For another end, with those that are known.
    """
    if path.suffix not in FORMS:
        raise ConfigError([f"{path} has no known form. Its name must end in one of {', '.join(FORMS)}."])
    return FORMS[path.suffix]


def _json_lines(path: Path, quoted: bool | None) -> Iterator[Line]:
    for line in numbered(path):
        seen = "" if line.number > 1 or line.fault else looks(line.fields[0], "{", lambda fields: len(fields) > 1)
        if "separated" in seen and not line.fields[0].lstrip().startswith(("{", "[", '"')):
            raise ConfigError([f"{path} should hold a JSON object a line. It looks {seen}: name it .csv or .tsv."])
        yield line._replace(fields=[*line.fields, str(line.number)])


def _table(delimiter: str) -> Form:
    def read(path: Path, quoted: bool | None) -> Iterator[Line]:
        in_quotes, line = delimiter == "," if quoted is None else quoted, 1
        form: dict[str, Any] = {"strict": True} if in_quotes else {"quoting": csv.QUOTE_NONE}
        try:
            with TextIOWrapper(open_plain(path), encoding="utf-8-sig", newline="") as file:
                rows = csv.reader(file, delimiter=delimiter, **form)
                headings = next(rows, [])
                if "".join(headings).lstrip()[:1] in ("", "{"):
                    raise ConfigError(
                        [f"{path} {'looks like JSON lines: name it .jsonl' if headings else 'is empty'}."]
                    )
                line = rows.line_num + 1
                for row in rows:
                    fault = f"has {len(row)} fields instead of {len(headings)}, one a heading"
                    example = [] if len(row) != len(headings) else [dict(zip(headings, row, strict=True)), str(line)]
                    if row:
                        yield Line(line, example, "" if example else fault)
                    line = rows.line_num + 1
        except OSError as error:
            raise ConfigError([f"{path} cannot be read: {error.strerror or error}."]) from None
        except UnicodeDecodeError:
            raise ConfigError([f"{path}, line {line}: is not UTF-8 text."]) from None
        except csv.Error as error:
            quote = " Where quotes are text, the row says `quoted: false`." if in_quotes else ""
            raise ConfigError([f"{path}, line {line}: {error}.{quote}"]) from None

    return read


def _parquet(path: Path, quoted: bool | None) -> Iterator[Line]:
    import pandas as pd

    try:
        rows = pd.read_parquet(path).to_dict("records")
    except ImportError:
        raise ConfigError([f"{path} needs the package pyarrow: pip install pyarrow"]) from None
    except Exception as error:  # pyarrow has classes of its own
        raise ConfigError([f"{path} is no Parquet file: {error}"]) from None
    for number, row in enumerate(rows, 1):
        yield Line(number, [row, str(number)])


def _squad(path: Path, quoted: bool | None) -> Iterator[Line]:
    number = 0
    try:
        for article in json.loads(read_text(path))["data"]:
            for passage in article["paragraphs"]:
                for asked in passage["qas"]:
                    number += 1
                    marks = [{"text": one["text"], "start": one["answer_start"]} for one in asked["answers"]]
                    example = {"id": str(asked["id"]), "context": passage["context"], "question": asked["question"]}
                    yield Line(number, [example | {"answers": marks}, str(number)])
    except (ValueError, KeyError, TypeError) as error:
        text = f"{path} is not in the form of SQuAD (data, paragraphs, qas): {type(error).__name__} {error}."
        raise ConfigError([f"{text} One JSON object a line belongs in a .jsonl file."]) from None


def _tagged(path: Path, quoted: bool | None) -> Iterator[Line]:
    words, tags, first, count = list[str](), list[str](), 1, 0
    for line in [*numbered(path, blank=True), Line(0, [""])]:
        cells = line.fields[0].split()
        if cells and cells[0] != "-DOCSTART-":
            first = first if words else line.number
            words, tags = [*words, cells[0]], [*tags, cells[-1]]
        elif words:
            count += 1
            yield Line(first, [{"words": words, "tags": tags}, str(count)])
            words, tags = [], []


FORMS: dict[str, Form] = {
    ".jsonl": _json_lines,
    ".csv": _table(","),
    ".tsv": _table("\t"),
    ".parquet": _parquet,
    ".json": _squad,
    ".conll": _tagged,
}
