"""Your own data as a task: JSON lines of any shape, with a dev file or with a part of the examples held out.

A module in ``tasks/datasets`` needs one row; ``docs/how-to/data_set.md`` has the keys of a line for each shape.

>>> from lightning_modules.tasks.shapes.choice import Choice
>>> ROWS = (own("trivia", "Trivia: which answer is right?", Choice(options=3), train="trivia.jsonl"),)
>>> ROWS[0].metrics, ROWS[0].own_split
(('accuracy',), 'own data; 10 % of the texts are held out')
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from lightning_modules.config import ConfigError, problems
from lightning_modules.data.corpora.sources import Origin
from lightning_modules.draws import fraction
from lightning_modules.tasks.reading.lines import Fault, json_object, made, numbered
from lightning_modules.tasks.shapes.shape import Shape
from lightning_modules.tasks.task import Split, Task


def own(name: str, title: str, shape: Shape, train: str, dev: str = "", held_out: float = 0.1, **fields: Any) -> Task:
    """A task of your own data.

    Args:
        title: Name and question, in one line.
        shape: The form of its examples.
        train: The file of JSON lines below ``ABLATIONS_DATA``.
        dev: The file of dev examples; without one, some of the examples in ``train`` are held out.
        held_out: Their approximate share. Examples about the same text are on the same side.
        **fields: Other fields of `Task`, such as ``metrics``, ``settings`` and ``licence``.

    Raises:
        ConfigError: For a metric that does not fit the labels, or is of a part that lines do not name, with what fits.
    """
    if parts := [metric for metric in fields.get("metrics", ()) if metric.rpartition("_")[0] in shape.parts]:
        allowed = ", ".join(shape.of_all)
        raise ConfigError([f"'{name}' has no metric '{parts[0]}': lines of your own name no part. Allowed: {allowed}"])
    split = "a dev file of its own" if dev else f"{held_out * 100:g} % of the texts are held out"
    usual = {"source": "own data", "metrics": shape.usual, "licence": "own data", "own_split": f"own data; {split}"}
    return Task(name=name, title=title, shape=shape, rows=Own(name, shape, train, dev, held_out), **(usual | fields))


@dataclass(frozen=True)
class Own:
    """A reader of JSON lines; call it with a split. Its attributes are the arguments of `own`."""

    name: str
    shape: Shape
    train: str
    dev: str = ""
    held_out: float = 0.1

    @property
    def origin(self) -> Origin:
        """Where the files are."""
        files = {"train": (self.train,), "dev": (self.dev or self.train,)}
        keys = ", ".join(self.shape.line.model_fields)
        return Origin(
            f"The data set {self.name}", files, None, f"A line may have {keys}.", "with one JSON object a line"
        )

    def __call__(self, split: Split) -> Iterator[Any]:
        """The examples of a split, in the order of the file.

        Raises:
            ConfigError: When the data are missing (the message says where they belong), when lines are malformed,
                naming each, and when nothing is held out or nothing remains.
        """
        (path,) = self.origin.needed(split)
        counted = (line._replace(fields=[*line.fields, str(line.number)]) for line in numbered(path))
        rows = list(made(path, counted, self._row))
        if self.dev:
            return iter(rows)
        chosen = [row for row in rows if (fraction(self.shape.text_of(row)) < self.held_out) == (split == "dev")]
        if not chosen:
            count = len({self.shape.text_of(row) for row in rows})
            raise ConfigError(
                [
                    f"{path} leaves no example for the split {split}: {self.held_out * 100:g} % of its {count:,} "
                    "texts are held out. Name a file of dev examples, or hold out another share."
                ]
            )
        return iter(chosen)

    def _row(self, text: str, number: str) -> Any:
        keys = self.shape.line
        json_object(text, [name for name, field in keys.model_fields.items() if field.is_required()])
        try:
            row = self.shape.row(keys.model_validate_json(text), int(number))
        except ValidationError as error:
            raise Fault("; ".join(map(str, problems(error, keys, "key")))) from None
        if problem := self.shape.problem(row):
            raise Fault(problem)
        return row
