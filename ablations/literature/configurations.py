"""Published configurations: the networks that papers describe, as systems, with their printed parameter counts.

``ablations/published/configurations.yaml`` is read strictly, like grids: every problem has its file and line.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from ablations.core import strict_yaml
from ablations.core.strict_yaml import Document, Path_
from lightning_modules.config import ConfigError, Problem, Settings, did_you_mean, knob, problems
from lightning_modules.files import once_per_version
from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS

FILE = Path(__file__).parents[1] / "published" / "configurations.yaml"
NUMBER = r"^[0-9]+(\.[0-9]+)?$"
OPTIONAL = r"^([0-9]+(\.[0-9]+)?)?$"
NAME = r"^[a-z][a-z0-9_]*$"


class Configuration(Settings):
    """A network that a paper describes, as a system with changed knobs."""

    id: str = Field(description="Unique in the file.", pattern=NAME)
    paper: str = Field(description="A key of the file's sources.")
    table: str = Field(description="Where it is printed.", min_length=1)
    name: str = Field(description="What the paper calls it.", min_length=1)
    base: str = Field(description="The system to start from.")
    set: dict[str, Any] = knob({}, "Knob -> value.")
    printed: str = knob("", "The printed count in millions, as text. Empty if the paper prints none.", pattern=OPTIONAL)
    includes: Literal["encoder", "pooler", "heads"] = knob(
        "pooler",
        "Our count to compare with: that of embeddings and layers, with the dense layer on the first position "
        "(pooler), or of all pretrained parameters (heads).",
    )
    average: float | None = knob(None, "ALBERT's Avg of five tasks (per cent).", gt=0, le=100)
    explanation: str = knob("", "Why the printed count and ours differ.")

    @property
    def system(self) -> System:
        """The system itself.

        Raises:
            ConfigError: Naming each bad knob.
        """
        return SYSTEMS[self.base].but(**self.set)


class Absent(Settings):
    """A printed count of a network that our parts cannot build."""

    id: str = Field(description="Unique in the file.", pattern=NAME)
    paper: str = Field(description="A key of the file's sources.")
    table: str = Field(description="Where it is printed.", min_length=1)
    name: str = Field(description="What the paper calls it.", min_length=1)
    printed: str = Field(description="The printed count in millions, as text.", pattern=NUMBER)
    missing: str = Field(description="What is missing: no decoder, for example.", min_length=1)


class Catalogue(Settings):
    """Everything in the file."""

    sources: dict[str, str]
    configurations: tuple[Configuration, ...]
    absent: tuple[Absent, ...]


@once_per_version
def read(file: Path = FILE) -> Catalogue:
    """Reads and checks the file, including the settings of every system.

    Raises:
        ConfigError: With every problem as ``file:line: path: what is wrong``.
    """
    document = strict_yaml.load(file)
    document.check()
    data = document.data
    expected = {"sources": dict, "configurations": list, "absent": list}
    shapes = {key: type(part) for key, part in data.items()} if isinstance(data, dict) else {}
    if shapes != expected:
        document.complain((), "must have exactly the keys sources (a mapping), configurations and absent (lists)")
        document.check()
    configurations = _items(document, "configurations", Configuration, data["sources"])
    absent = _items(document, "absent", Absent, data["sources"])
    _check_ids(document, {"configurations": configurations, "absent": absent})
    for place, item in configurations:
        _check_system(document, ("configurations", place), item)
    document.check()
    return Catalogue(
        sources=data["sources"],
        configurations=tuple(item for _, item in configurations),
        absent=tuple(item for _, item in absent),
    )


def named(id: str, catalogue: Catalogue | None = None) -> Configuration:
    """The configuration with a name.

    Raises:
        ConfigError: For an unknown name, with the nearest system or configuration; for a network that we cannot build
            yet, with the missing part.
    """
    catalogue = catalogue or read()
    configurations = {item.id: item for item in catalogue.configurations}
    if id in configurations:
        return configurations[id]
    missing = next((item for item in catalogue.absent if item.id == id), None)
    if missing is not None:
        raise ConfigError([Problem("system", f"{missing.name} cannot be built yet: {missing.missing}")])
    message = f"there is no system or published configuration '{id}'.{did_you_mean(id, [*SYSTEMS, *configurations])}"
    raise ConfigError([Problem("system", message)])


Item = TypeVar("Item", Configuration, Absent)


def _items(document: Document, key: str, kind: type[Item], sources: dict[str, Any]) -> list[tuple[int, Item]]:
    """The valid entries of a list, each with its place."""
    items: list[tuple[int, Item]] = []
    for place, entry in enumerate(document.data[key]):
        try:
            item = kind.model_validate(entry)
        except ValidationError as error:
            for problem in problems(error, kind):
                document.complain((key, place, *problem.path.split(".")), problem.message)
            continue
        if item.paper not in sources:
            document.complain((key, place, "paper"), f"is not a key of sources.{did_you_mean(item.paper, sources)}")
        items.append((place, item))
    return items


def _check_ids(document: Document, entries: Mapping[str, Sequence[tuple[int, Any]]]) -> None:
    seen: dict[str, int] = {}
    for key, rows in entries.items():
        for place, item in rows:
            line = document.line((key, place, "id"))
            if item.id in seen:
                document.complain((key, place, "id"), f"'{item.id}' is already on line {seen[item.id]}")
            seen.setdefault(item.id, line)


def _check_system(document: Document, path: Path_, item: Configuration) -> None:
    if item.base not in SYSTEMS:
        document.complain((*path, "base"), f"there is no system '{item.base}'.{did_you_mean(item.base, SYSTEMS)}")
        return
    try:
        item.system  # noqa: B018, built for its errors
    except ConfigError as error:
        for problem in error.problems:
            document.complain((*path, "set", problem.path), problem.message)
