"""Files of questions for a language model: prompts with options of how they go on, and the right ones where there are.

YAML, a list of questions, or JSON lines, one question a line::

    - prompt: The water is
      options: [transparent, van]
      answer: transparent
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablations.core import strict_yaml
from ablations.core.strict_yaml import Document
from lightning_modules.config import ConfigError, did_you_mean
from lightning_modules.files import read_text

EXAMPLES = Path(__file__).parents[1] / "examples"
_FIELDS = {"prompt": True, "options": True, "answer": False}  # field -> whether every question has it


@dataclass(frozen=True)
class Question:
    """A prompt and its options.

    Attributes:
        where: File and line.
        prompt: What is before the options. It is empty where an option is a whole text.
        options: At least two texts.
        answer: Number of the right option; None if nobody says.
    """

    where: str
    prompt: str
    options: tuple[str, ...]
    answer: int | None = None


def examples() -> dict[str, Path]:
    """Name -> file of the questions that come with the package."""
    return strict_yaml.named("examples", [EXAMPLES])


def example(name: str) -> Path:
    """The file of questions that come with the package.

    Raises:
        ConfigError: With the nearest name, if there are none.
    """
    known = examples()
    if name not in known:
        raise ConfigError([f"there is no example '{name}'.{did_you_mean(name, known, listed=True)}"])
    return known[name]


def read(file: Path) -> list[Question]:
    """Reads a file of questions.

    Raises:
        ConfigError: With every problem as ``file:line: field: what is wrong``.
    """
    document = strict_yaml.load(file) if file.suffix in (".yaml", ".yml") else _json_lines(file)
    document.check()
    if not isinstance(document.data, list) or not document.data:
        document.complain((), "must be a list of questions, each with prompt and options")
        document.check()
    for number, entry in enumerate(document.data):
        _check(document, number, entry)
    document.check()
    return [
        Question(f"{file.name}:{document.line((number,))}", entry["prompt"], tuple(entry["options"]), _answer(entry))
        for number, entry in enumerate(document.data)
    ]


def _json_lines(file: Path) -> Document:
    try:
        lines = read_text(file).split("\n")  # JSON may hold U+2028, at which splitlines cuts
    except OSError as error:
        raise ConfigError([f"{file}: cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise ConfigError([f"{file}: is not UTF-8 text"]) from None
    document = Document(file, data=[])
    for line, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            document.data.append(json.loads(text))
        except (ValueError, RecursionError) as error:
            document.complain((), f"is not JSON: {error}. Write one question a line, or a list in a .yaml file.", line)
        else:
            document.lines[(len(document.data) - 1,)] = line
    return document


def _check(document: Document, number: int, entry: Any) -> None:
    if not isinstance(entry, Mapping):
        document.complain((number,), "must be a mapping with prompt and options")
        return
    for name, needed in _FIELDS.items():
        if needed and name not in entry:
            document.complain((number, name), "is missing")
    for name in entry.keys() - _FIELDS.keys():
        document.slip((number, name), "is no field of a question.", _FIELDS)
    if not isinstance(entry.get("prompt", ""), str):
        document.complain((number, "prompt"), "must be text. Put it in quotes.")
    if "options" in entry:
        _check_options(document, number, entry)


def _check_options(document: Document, number: int, entry: Mapping[str, Any]) -> None:
    options, path = entry["options"], (number, "options")
    if not isinstance(options, list) or len(options) < 2:
        document.complain(path, "must be a list of two options or more")
        return
    for place, option in enumerate(options):
        if not isinstance(option, str):
            document.complain((*path, place), f"{option!r} must be text. Put it in quotes.")
        elif not option.strip():
            document.complain((*path, place), "is empty. An option is at least one word.")
        elif option in options[:place]:
            document.complain((*path, place), f"{option!r} is there twice")
    answer = entry.get("answer")
    if answer is not None and answer not in options:
        hint = did_you_mean(str(answer), [option for option in options if isinstance(option, str)])
        document.complain((number, "answer"), f"{answer!r} is none of the options.{hint}")


def _answer(entry: Mapping[str, Any]) -> int | None:
    answer = entry.get("answer")
    return None if answer is None else entry["options"].index(answer)
