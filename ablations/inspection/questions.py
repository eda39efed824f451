"""Files of questions for a language model: prompts with options of how they go on, and the right ones where there are.

YAML, a list of questions, or JSON lines, one question a line::

    - prompt: The water is
      options: [transparent, van]
      answer: transparent
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablations.core import strict_yaml
from ablations.core.strict_yaml import Document
from lightning_modules.config import ConfigError, Problem, did_you_mean
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


def of(texts: Sequence[str]) -> list[Question]:
    """The question of a command line: a prompt, then its options.

    Raises:
        ConfigError: For fewer than two options, or the same twice.
    """
    prompt, *options = texts or [""]
    document = Document(Path("TEXT"), data=[{"prompt": prompt, "options": options}])
    _check(document, 0, document.data[0])
    document.check()
    return [Question("TEXT", prompt, tuple(options))]


def lines(file: str) -> list[str]:
    """The lines of a text file that are not blank.

    Raises:
        ConfigError: When it cannot be read or has none.
    """
    found = [
        line for line in _text(Path(file)).split("\n") if line.strip()
    ]  # splitlines also cuts at U+2028 and others
    if not found:
        raise ConfigError([Problem("--file", f"{file} has no text. Write one a line.")])
    return found


def read(file: str | Path) -> list[Question]:
    """Reads a file of questions, or one that comes with the package by its name: lecture.

    Raises:
        ConfigError: With every problem as ``file:line: field: what is wrong``.
    """
    named = strict_yaml.named("examples", [EXAMPLES])
    if str(file) not in named and "." not in str(file):
        raise ConfigError([Problem("--file", f"there is no '{file}'.{did_you_mean(str(file), named, listed=True)}")])
    file = named.get(str(file), Path(file))
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


def _text(file: Path) -> str:
    try:
        return read_text(file)
    except OSError as error:
        raise ConfigError([Problem("--file", f"{file} cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError:
        raise ConfigError([Problem("--file", f"{file} is not UTF-8 text")]) from None


def _json_lines(file: Path) -> Document:
    document = Document(file, data=[])
    for line, text in enumerate(_text(file).split("\n"), 1):  # JSON may hold U+2028, at which splitlines cuts
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
