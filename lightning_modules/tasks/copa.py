"""COPA with mirrored questions: which alternative is the more plausible cause or effect?

Each of the 500 dev questions of Roemmele et al. (2011) has a mirrored one (Kavumba et al. 2019), whose premise makes
the other alternative right, so that no words of an alternative give it away. COPA has no training set, and its test
questions are not among these: the dev questions are split here, both of a mirrored pair on one side. The words
"because" and "so" stand for the questions "What was the CAUSE of this?" and "What happened as a RESULT?".
"""

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from ..config import ConfigError
from .choice import Choice, Question
from .sources import Source
from .task import Split, Task

_FILES = ("balanced-copa-dev-all.xml",)
_SOURCE = Source("Balanced COPA", "copa", {"train": _FILES, "dev": _FILES})
_ASKED = {"cause": "because", "effect": "so"}
_MIRRORED = 1000  # the number of a mirrored question is that of its original and 1,000
_EVERY = 5  # pairs whose number this divides are dev examples


def rows(split: Split) -> Iterator[Question]:
    """The questions of a split, in the order of the file.

    Raises:
        ConfigError: When the data are not at hand, naming the ways to get them, or when a question is not as expected.
    """
    for path in _SOURCE.paths(split):
        for number, question in _read(path):
            if (number % _MIRRORED % _EVERY == 0) == (split == "dev"):
                yield question


def _read(path: Path) -> Iterator[tuple[int, Question]]:
    try:
        items = ElementTree.parse(path).getroot().findall("item")
    except ElementTree.ParseError as error:
        raise ConfigError([f"{path}, line {error.position[0]}: this is no XML ({error})."]) from None
    if not items:
        raise ConfigError([f"{path} is empty: it holds no item."])
    for place, item in enumerate(items, 1):
        number = item.get("id", "")
        where = f"{path}, item {place} (id {number!r})"
        asked, right = item.get("asks-for", ""), item.get("most-plausible-alternative", "")
        texts = [item.findtext(name) or "" for name in ("p", "a1", "a2")]
        if not number.isdecimal():
            raise ConfigError([f"{where}: the id is no number."])
        if asked not in _ASKED:
            raise ConfigError([f"{where}: asks-for is {asked!r}, which is none of {', '.join(_ASKED)}."])
        if right not in ("1", "2"):
            raise ConfigError([f"{where}: most-plausible-alternative is {right!r}, which is neither 1 nor 2."])
        if not all(text.strip() for text in texts):
            raise ConfigError([f"{where}: p, a1 or a2 is missing or empty."])
        yield int(number), Question(texts[0], _ASKED[asked], tuple(texts[1:]), int(right) - 1)


ROWS = (
    Task(
        name="copa",
        title="COPA with mirrored questions: which alternative is the more plausible cause or effect?",
        source="Roemmele et al. 2011, Choice of Plausible Alternatives; Kavumba et al. 2019, When Choosing Plausible "
        "Alternatives, Clever Hans Can Be Clever",
        shape=Choice(options=2),
        metrics=("accuracy",),
        rows=rows,
        files=_SOURCE.origin,
        licence="CC BY 4.0",
        own_split="the dev questions and their mirrored ones, every fifth pair to evaluate: 800 and 200",
    ),
)
