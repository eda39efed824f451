"""Texts in official files below ``ABLATIONS_DATA`` that are read for no other purpose, and their pins.

``pins.json`` holds the SHA-256 and the size of each.
"""

import functools
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from lightning_modules.config import ConfigError, identity
from lightning_modules.data.corpora.sources import Origin
from lightning_modules.files import read, version
from lightning_modules.pins import Part, Parts, Pins, compare
from lightning_modules.tasks.reading.lines import Fault, json_object, made, numbered
from lightning_modules.zero_shot.task import ZeroShot

_WITHOUT = "The zero-shot tasks 'cloze' and 'heldout_text' need no data of their own."
_TITLE = re.compile(r" = [^=].* = \n")  # the line with the title of an article


@dataclass(frozen=True)
class Source:
    """Texts in one official file.

    Attributes:
        name: The name of its pin.
        origin: Where the file comes from; its part is ``test``.
    """

    name: str
    origin: Origin
    read: Callable[[Path], list[str]]

    def texts(self) -> list[str]:
        """The texts, which are as pinned.

        Raises:
            ConfigError: When the file is missing (the message says how to get it) or malformed.
            DataMismatch: When the texts differ from the pin.
        """
        (path,) = self.origin.needed("test")
        return _checked(self.name, path, version(path))

    def pin(self) -> Part:
        """The committed pin."""
        return PINS.pinned()[self.name]["test"]


@dataclass(frozen=True, kw_only=True)
class OfSource(ZeroShot):
    """What tasks share that are on the texts of a source; its pin is part of the project."""

    own: Source
    recipe: ClassVar[tuple[Any, ...]]  # how the texts are presented. Another one gives other scores

    @property
    def origin(self) -> Origin:
        return self.own.origin

    def fingerprint(self) -> str:
        return identity([*self.recipe, self.own.pin().sha256])

    def check(self) -> None:
        self.own.texts()


@functools.lru_cache(maxsize=8)
def _checked(name: str, path: Path, state: tuple[int, int, int]) -> list[str]:
    source = SOURCES[name]
    texts = source.read(path)
    advice = f"Scores on another version do not compare. To pin these: {PINS.how(name)}"
    compare(f"the texts of '{name}'", of(texts), source.pin(), advice)
    return texts


def _passages(path: Path) -> list[str]:
    """The passages of LAMBADA: one JSON object a line, whose ``text`` ends with the word to predict."""
    return list(made(path, numbered(path), _passage))


def _passage(line: str) -> str:
    text = json_object(line, ("text",))["text"]
    if not isinstance(text, str) or len(text.split()) < 2:
        raise Fault("text must hold a passage and the word after it")
    return text


def _articles(path: Path) -> list[str]:
    """The articles of WikiText, as in the file: joined they are the file again."""
    articles: list[str] = []
    for line in re.split(r"(?<=\n)", read(path).decode("utf-8")):
        if articles and not (_TITLE.fullmatch(line) and articles[-1].strip()):  # the file begins with an empty line
            articles[-1] += line
        else:
            articles.append(line)
    if len(articles) < 2:
        raise ConfigError([f"{path} holds no articles: a line ' = Title = ' begins one"])
    return articles


LAMBADA = Source(
    "lambada", Origin("The data set LAMBADA", {"test": ("lambada/lambada_test.jsonl",)}, otherwise=_WITHOUT), _passages
)
WIKITEXT_2 = Source(
    "wikitext2",
    Origin("The data set WikiText-2", {"test": ("wikitext-2/wiki.test.raw",)}, otherwise=_WITHOUT),
    _articles,
)
SOURCES = {source.name: source for source in (LAMBADA, WIKITEXT_2)}


def of(texts: list[str]) -> Part:
    """The fingerprint of texts."""
    digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()
    return Part(digest, texts=len(texts), words=sum(len(text.split()) for text in texts))


def _measured(source: Source) -> Parts:
    (path,) = source.origin.needed("test")
    return {"test": of(source.read(path))}


PINS = Pins("text", Path(__file__).with_name("pins.json"), SOURCES.__getitem__, _measured)
