"""RACE: exam questions about passages, for middle and for high schools (Lai et al. 2017)."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from lightning_modules.data.corpora.sources import Hub, Origin
from lightning_modules.tasks.reading.lines import Fault, json_object, made, numbered
from lightning_modules.tasks.shapes.choice import Choice, Question
from lightning_modules.tasks.task import Split, Task

_LETTERS = "ABCD"
_KEYS = ("article", "questions", "options", "answers")
# question and option keep up to 128 pieces, rows have up to 512, as in ALBERT's released code
_SHAPE = Choice(options=4, last=128, blank=True)


@dataclass(frozen=True)
class Exams:
    """A reader of passages with their questions, one JSON object per line; call it with a split.

    Attributes:
        levels: Which of ``middle`` and ``high`` to read.
    """

    levels: tuple[str, ...]

    @property
    def origin(self) -> Origin:
        """Where the files of all levels come from."""
        files = {part: tuple(f"race/{part}.{level}.jsonl" for level in self.levels) for part in ("train", "dev")}
        return Origin("The data set RACE", files, Hub("ehovy/race", self.levels[0] if len(self.levels) == 1 else "all"))

    def __call__(self, split: Split) -> Iterator[Question]:
        """The questions of a split.

        Raises:
            ConfigError: When the data are missing (the message says how to get them) or a line is malformed.
        """
        for level in self.levels:
            origin = Exams((level,)).origin
            paths = origin.find(split)
            for path in paths:
                for questions in made(path, numbered(path), _questions):
                    yield from (question._replace(group=level) for question in questions)
            for row in [] if paths else chain.from_iterable(origin.from_hub(split)):
                yield Question(row["article"], row["question"], tuple(row["options"]), _number(row["answer"]), level)


def _questions(line: str) -> list[Question]:
    exam = json_object(line, _KEYS)
    article, *lists = (exam[key] for key in _KEYS)
    if not isinstance(article, str) or not all(isinstance(items, list) for items in lists):
        raise Fault(f"{_KEYS[0]} must be a string, {', '.join(_KEYS[1:])} must be lists")
    if len(set(map(len, lists))) > 1:
        counts = ", ".join(f"{len(items)} {key}" for key, items in zip(_KEYS[1:], lists, strict=True))
        raise Fault(f"{counts}. The counts must be equal")
    for options, answer in zip(*lists[1:], strict=True):
        if _number(answer) not in range(len(options)):
            raise Fault(f"the answer {answer!r} is not one of {', '.join(_LETTERS[: len(options)])}")
    return [
        Question(article, question, tuple(options), _number(answer))
        for question, options, answer in zip(*lists, strict=True)
    ]


def _number(letter: Any) -> int:
    return _LETTERS.index(letter) if isinstance(letter, str) and len(letter) == 1 and letter in _LETTERS else -1


_SIZES = {"race": (87_866, 4_887), "race_middle": (25_421, 1_436), "race_high": (62_445, 3_451)}


def _task(name: str, title: str, levels: tuple[str, ...], metrics: tuple[str, ...] = ()) -> Task:
    return Task(
        name=name,
        title=title,
        source="Lai et al. 2017, RACE: Large-scale ReAding Comprehension Dataset From Examinations",
        shape=_SHAPE,
        metrics=metrics,
        rows=Exams(levels),
        licence="non-commercial research",
        official=_SIZES[name],
        settings={"max_length": 512},
    )


ROWS = (
    _task(
        "race",
        "RACE: which option answers the exam question about the passage?",
        ("middle", "high"),
        ("accuracy", "middle_accuracy", "high_accuracy"),
    ),
    _task("race_middle", "RACE-M: which option answers a question for middle schools?", ("middle",)),
    _task("race_high", "RACE-H: which option answers a question for high schools?", ("high",)),
)
