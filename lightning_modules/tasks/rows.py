"""Tasks of one's own as rows of YAML: each file ``data/*.yaml`` of a study maps names to rows.

::

    reviews:
      title: "Reviews: is it a good film?"
      answer: class
      labels: [bad, good]
      train: reviews.csv
      columns: {text: review, label: stars}
"""

import json
import math
import re
from collections.abc import Container, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import TypeAdapter, ValidationError

from lightning_modules.config import ConfigError, Problem, Settings, did_you_mean, knob, required
from lightning_modules.data.corpora.sources import Hub, found
from lightning_modules.files import read as content
from lightning_modules.files import write_atomically
from lightning_modules.places import study
from lightning_modules.tasks.readers.own import Own
from lightning_modules.tasks.shapes.choice import Choice
from lightning_modules.tasks.shapes.coreference import Coreference
from lightning_modules.tasks.shapes.shape import Shape
from lightning_modules.tasks.shapes.span import Spans
from lightning_modules.tasks.shapes.tagging import Tagging
from lightning_modules.tasks.shapes.texts import Texts
from lightning_modules.tasks.task import Task

SHAPES: dict[str, type[Any]] = {
    "class": Texts, "number": Texts, "choice": Choice, "span": Spans, "tag": Tagging, "pronoun": Coreference,
}  # fmt: skip
_LABELLED = {"class": "labels", "tag": "types"}  # answer -> the field of its shape that lists the labels
_LARGEST = 1 << 20  # bytes of a file of rows


class _Loader(yaml.SafeLoader):
    """Reads no, yes, on and off as words."""


_BOOL = "tag:yaml.org,2002:bool"
_resolvers = yaml.SafeLoader.yaml_implicit_resolvers.items()
_Loader.yaml_implicit_resolvers = {sign: [one for one in ones if one[0] != _BOOL] for sign, ones in _resolvers}
_Loader.add_implicit_resolver(_BOOL, re.compile("true|false"), ["t", "f"])


class Row(Settings):
    """A data set of one's own."""

    title: str = required("Name and question, in one line.", min_length=1)
    answer: Literal["class", "number", "choice", "span", "tag", "pronoun"] = required("What an answer is.")
    labels: tuple[str, ...] = knob((), "The classes, or the types of tags without B- and I-.")
    shape: dict[str, Any] = knob(
        {}, "Further settings of its shape: pair, symmetric, options, context, unanswerable ..."
    )
    train: str = knob("", "File of training examples below the study's data, or below ABLATIONS_DATA.")
    dev: str = knob("", "File of dev examples. Without one, some of the training examples are held out.")
    held_out: float = knob(0.1, "Their share, by text.", gt=0, lt=1)
    hub: str = knob("", "In place of files a data set of the hub, owner/name, or a folder of that name.")
    config: str = knob("", "Its configuration.")
    splits: dict[str, str] = knob({"dev": "validation"}, "train or dev -> its split. Without dev, some are held out.")
    columns: dict[str, str | tuple[str, ...]] = knob({}, "Key of an example -> column, or columns of a list.")
    quoted: bool | None = knob(None, "Whether fields may be in quotes. By default in .csv alone.")
    metrics: tuple[str, ...] = knob((), "By default the usual ones of its shape. The first is compared.")
    settings: dict[str, Any] = knob({}, "Knob of a fine-tuning -> value for this data set.")
    languages: tuple[str, ...] = knob((), "Languages of both texts, such as en.")
    source: str = knob("own data", "Where it is from.")
    licence: str = knob("own data", "Its licence.")

    def task(self, name: str) -> Task:
        """The task of this row.

        Raises:
            ConfigError: For what does not fit its shape, naming the key.
        """
        kind: Any = SHAPES[self.answer]
        listed = {_LABELLED[self.answer]: self.labels} if self.answer in _LABELLED else {}
        known = {field.name for field in fields(kind)} - set(_LABELLED.values())
        wrong = [
            f"shape.{key}: there is no such setting.{did_you_mean(key, known)}" for key in self.shape.keys() - known
        ]
        if bool(self.train) == bool(self.hub):
            wrong.append("train: name either a file, or a data set by `hub`")
        if bool(listed) != bool(self.labels):
            wrong.append("labels: list them" if listed else f"labels: an answer '{self.answer}' has none")
        if wrong:
            raise ConfigError([f"{name}.{text}" for text in wrong])
        try:
            shape: Shape = TypeAdapter(kind).validate_python({**listed, **self.shape})
        except ValidationError as error:
            raise ConfigError(
                [f"{name}.shape.{problem['loc'][0]}: {problem['msg']}" for problem in error.errors()]
            ) from None
        if parts := [metric for metric in self.metrics if metric.rpartition("_")[0] in shape.parts]:
            allowed = ", ".join(shape.of_all)
            raise ConfigError(
                [f"'{name}' has no metric '{parts[0]}': rows of your own name no part. Allowed: {allowed}"]
            )
        splits = {part: (split,) for part, split in self.splits.items()}
        hub = Hub(self.hub, self.config or None, splits=splits) if self.hub else None
        reader = Own(name, shape, self.train, self.dev, self.held_out, tuple(self.columns.items()), self.quoted, hub)
        apart = bool(self.dev) or (hub is not None and "dev" in splits)
        split = "a dev part of its own" if apart else f"{self.held_out * 100:g} % of the texts are held out"
        return Task(
            name=name, title=self.title, source=self.source, shape=shape, metrics=self.metrics,
            rows=reader, licence=self.licence, own_split=f"own data; {split}", settings=self.settings,
            languages=self.languages,  # pyright: ignore[reportArgumentType]
        )  # fmt: skip


def read(folders: Iterable[Path]) -> dict[str, Task]:
    """Name -> task, of all files of rows in some folders.

    Raises:
        ConfigError: With everything that is wrong, as ``file: name.key: what``.
    """
    tasks: dict[str, Task] = {}
    wrong: list[Problem] = []
    for path in [path for folder in folders for path in sorted(folder.glob("*.yaml"))]:
        try:
            given = yaml.load(content(path, _LARGEST), _Loader) or {}
            if not isinstance(given, dict) or not all(isinstance(row, dict) for row in given.values()):
                raise ConfigError(["must map names of data sets to rows"])
            for name, values in given.items():
                if not str(name).isidentifier() or name in tasks:
                    raise ConfigError(
                        [f"{name}: {'has two rows' if name in tasks else 'is no name: use letters and _'}"]
                    )
                labels = {"labels": [str(label) for label in values["labels"]]} if values.get("labels") else {}
                tasks[name] = Row.read(values | labels).task(name)
        except yaml.YAMLError as error:
            wrong.append(Problem(path.name, f"is no YAML: {' '.join(str(error).split())}"))
        except ConfigError as error:
            wrong += [Problem(path.name, str(problem)) for problem in error.problems]
    if wrong:
        raise ConfigError(wrong)
    return tasks


def add(
    name: str, train: str, dev: str, columns: dict[str, str], quoted: bool | None, known: Container[str]
) -> tuple[Path, Task]:
    """Writes the row of a file to ``data/NAME.yaml`` of the study, with the labels that the file has.

    Args:
        train: A path, or a name below the study's data or ``ABLATIONS_DATA``.
        columns: The columns of ``text``, ``second`` and ``label``; of no use in SQuAD's JSON and in tagged words.
        known: Names that are taken.

    Returns:
        The file of the row, and the task.

    Raises:
        ConfigError: Outside of a study, for a name that is taken, a file that cannot be read, or a missing column.
    """
    inside = study()
    if inside is None:
        raise ConfigError(["rows of data belong to a study. Make one: `ablations init my_study`, and go there"])
    target = inside / "data" / f"{name}.yaml"
    if name in known or target.exists():
        raise ConfigError([Problem("--name", f"'{name}' is taken. Choose another, or remove data/{name}.yaml first")])
    if not name.isidentifier():
        raise ConfigError([Problem("--name", f"'{name}' is no word of letters, digits and _")])
    files = [_placed(file, inside / "data") for file in (train, dev) if file]
    row: dict[str, Any] = {"title": name.replace("_", " "), "train": files[0]} | ({"dev": files[1]} if dev else {})
    row |= {} if quoted is None else {"quoted": quoted}
    lines = [line.fields[0] for line in Own(name, Texts(), files[0], quoted=quoted).lines("train")[1] if line.fields]
    examples = [json.loads(each) if isinstance(each, str) else each for each in lines]
    match Path(train).suffix:
        case ".conll":
            row |= {"answer": "tag", "labels": sorted({tag[2:] for each in examples for tag in each["tags"]} - {""})}
        case ".json":
            row |= {"answer": "span", "shape": {"unanswerable": not all(each["answers"] for each in examples)}}
        case _:
            row |= _labelled(train, examples, **columns)
    task = Row.read(row).task(name)
    text = yaml.safe_dump({name: row}, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)
    write_atomically(target, lambda file: file.write(text.encode()))
    return target, task


def _labelled(file: str, examples: list[dict[str, Any]], text: str, second: str, label: str) -> dict[str, Any]:
    """What a row says of texts with labels: classes, or numbers where one has a fraction."""
    first = {"first": text, "second": second} if second else {"text": text}
    columns = {**first, "label": label}
    for column in columns.values():
        if column not in (there := examples[0] if examples else {}):
            named = "Name them by --text, --second of a pair, and --label"
            raise ConfigError([f"{file} has no column {column}. It has {', '.join(there)}. {named}."])
    labels = sorted({str(each.get(label)) for each in examples})
    are_numbers = all(map(_is_number, labels)) and not all(each.lstrip("-").isdigit() for each in labels)
    if not are_numbers and len(labels) > len(examples) / 2 > 1:
        text = f"{len(labels)} labels in {len(examples)} examples are no classes: name another column by --label"
        raise ConfigError([f"{file}: {text}"])
    row = {"answer": "number"} if are_numbers else {"answer": "class", "labels": labels}
    return row | ({"shape": {"pair": True}} if second else {}) | {"columns": columns}


def _placed(file: str, home: Path) -> str:
    """What a row calls a file: its name below the study's data, or the whole path."""
    path = Path(file).expanduser()
    if not path.exists():
        if found(file):
            return file
        near = did_you_mean(path.name, [one.name for one in path.parent.glob("*.*")])
        raise ConfigError([f"{file}: there is no such file, neither here nor below {home} or ABLATIONS_DATA.{near}"])
    whole = path.resolve()
    return str(whole.relative_to(home)) if whole.is_relative_to(home) else str(whole)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
