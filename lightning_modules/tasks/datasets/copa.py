"""COPA with mirrored questions: which alternative is the more plausible cause or effect?

Each of the 500 dev questions of Roemmele et al. (2011) has a mirrored one (Kavumba et al. 2019), whose premise makes
the other alternative right, so that the words of an alternative are no cue. COPA has no training set, and its test
questions are not included: the dev questions are split here, with both of a mirrored pair in the same part. The words
"because" and "so" replace the questions "What was the CAUSE of this?" and "What happened as a RESULT?".
"""

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from lightning_modules.config import ConfigError
from lightning_modules.data.corpora.sources import Origin
from lightning_modules.files import read
from lightning_modules.tasks.reading.lines import Fault, Line, made
from lightning_modules.tasks.shapes.choice import Choice, Question
from lightning_modules.tasks.task import Split, Task

_FILES = ("copa/balanced-copa-dev-all.xml",)
_ORIGIN = Origin("The data set Balanced COPA", {"train": _FILES, "dev": _FILES})
_ATTRIBUTES, _TEXTS = ("id", "asks-for", "most-plausible-alternative"), ("p", "a1", "a2")
_CONNECTIVES = {"cause": "because", "effect": "so"}
_MIRRORED = 1000  # a mirrored question has the number of its original plus 1,000
_EVERY = 5  # every fifth pair is a dev example


def rows(split: Split) -> Iterator[Question]:
    """The questions of a split, in the order of the file.

    Raises:
        ConfigError: When the data are missing (the message says how to get them) or a question is malformed.
    """
    for path in _ORIGIN.needed(split):
        for number, question in _read(path):
            if (number % _MIRRORED % _EVERY == 0) == (split == "dev"):
                yield question


def _read(path: Path) -> Iterator[tuple[int, Question]]:
    try:
        items = ElementTree.fromstring(read(path)).findall("item")
    except ElementTree.ParseError as error:
        raise ConfigError([f"{path}, line {error.position[0]}: not valid XML ({error})."]) from None
    if not items:
        raise ConfigError([f"{path} is empty: it holds no item."])
    lines = (
        Line(place, [item.get(name, "") for name in _ATTRIBUTES] + [item.findtext(name) or "" for name in _TEXTS])
        for place, item in enumerate(items, 1)
    )
    return made(path, lines, _question, "item")


def _question(number: str, relation: str, right: str, *texts: str) -> tuple[int, Question]:
    if not number.isdecimal():
        raise Fault(f"the id {number!r} is not a number")
    if relation not in _CONNECTIVES:
        raise Fault(f"asks-for of id {number} is {relation!r}, which is not one of {', '.join(_CONNECTIVES)}")
    if right not in ("1", "2"):
        raise Fault(f"most-plausible-alternative of id {number} is {right!r}, which is neither 1 nor 2")
    if not all(text.strip() for text in texts):
        raise Fault(f"p, a1 or a2 of id {number} is missing or empty")
    return int(number), Question(texts[0], _CONNECTIVES[relation], texts[1:], int(right) - 1)


ROWS = (
    Task(
        name="copa",
        title="COPA with mirrored questions: which alternative is the more plausible cause or effect?",
        source="Roemmele et al. 2011, Choice of Plausible Alternatives, and Kavumba et al. 2019, When Choosing "
        "Plausible Alternatives, Clever Hans Can Be Clever",
        shape=Choice(options=2),
        rows=rows,
        files=_ORIGIN,
        licence="CC BY 4.0",
        own_split="the dev questions and their mirrored ones, of which every fifth pair is for evaluation: 800 and 200",
    ),
)
