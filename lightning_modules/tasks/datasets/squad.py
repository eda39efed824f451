"""SQuAD 1.1 and 2.0: the official JSON files below ``ABLATIONS_DATA/squad``, or else the Hugging Face hub.

``squad1`` and ``squad2`` read only files with the official names (``train-v1.1.json``). Copies rebuilt from published
pages (``train-v1.1.reconstructed.json``) have tasks of their own. In the rebuilt training questions of 1.1
(``squad1_own``) ids differ from the official ones, and an answer that occurs several times in its passage may be marked
at another occurrence. Both splits of ``squad2_own`` are articles of the official dev set of 2.0. Rebuilt dev sets hold
the official questions under their ids and are used when the official file is missing.
"""

import hashlib
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ValidationError, model_validator

from lightning_modules.config import ConfigError
from lightning_modules.data.corpora.sources import Hub, Origin, found
from lightning_modules.files import read_text
from lightning_modules.tasks.readers.own_split import nearest
from lightning_modules.tasks.reading.lines import MOST_NAMED, refused
from lightning_modules.tasks.reading.passages import Question
from lightning_modules.tasks.shapes.span import Spans
from lightning_modules.tasks.task import Split, Task

_HOME = "squad"  # the folder of ABLATIONS_DATA
_PUBLISHED, _REBUILT = "{split}-v{version}.json", "{split}-v{version}.reconstructed.json"
_DEV_SHARE = 3  # every third article of the dev set of 2.0 belongs to the own dev split
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Squad:
    """A reader of a version of SQuAD; call it with a split.

    Attributes:
        hub: Its name on the hub; empty if only files are read.
        train: Possible names of the training file; the first that exists is read.
        dev: The same for the dev file.
        otherwise: An alternative when the data are missing, as a sentence.
    """

    version: str
    hub: str = ""
    train: tuple[str, ...] = (_PUBLISHED,)
    dev: tuple[str, ...] = (_PUBLISHED,)
    otherwise: str = Origin.otherwise

    def __call__(self, split: Split) -> Iterator[Question]:
        """The questions of a split, with answers at their marked positions.

        An answer that is not at its marked position is moved to its nearest occurrence, ignoring white space. A
        training question whose first answer does not occur is skipped, as in BERT's ``run_squad.py``. A log warning
        counts both.

        Raises:
            ConfigError: When the data are missing (the message says how to get them), when a file is malformed (it
                names the places), and when the answer of a dev question does not occur in its passage.
        """
        for path in self.origin.find(split):
            return iter(placed((row for _, row in read(path)), split, str(path)))
        return iter(placed(self._from_hub(split), split, self.hub))

    @property
    def origin(self) -> Origin:
        """Where the files come from: those that exist, or else the first of their names."""
        files = {}
        for split, names in (("train", self.train), ("dev", self.dev)):
            paths = [f"{_HOME}/{name.format(split=split, version=self.version)}" for name in names]
            files[split] = (next((path for path in paths if found(path)), paths[0]),)
        return Origin(f"SQuAD {self.version}", files, Hub(self.hub) if self.hub else None, self.otherwise)

    def _from_hub(self, split: Split) -> Iterator[Question]:
        (rows,) = self.origin.from_hub(split)
        for row in rows:
            marked = zip(row["answers"]["answer_start"], row["answers"]["text"], strict=True)
            yield Question(row["id"], row["question"], row["context"], tuple(marked))


@dataclass(frozen=True)
class Divided:
    """Both splits from the dev questions of a version, by article; call it with a split."""

    whole: Squad

    @property
    def origin(self) -> Origin:
        """Where the dev file comes from, which serves for both splits."""
        origin = self.whole.origin
        return replace(origin, files=dict.fromkeys(("train", "dev"), origin.files["dev"]))

    def __call__(self, split: Split) -> Iterator[Question]:
        """The questions of a split; see `Squad.__call__` and `own_split`."""
        (path,) = self.origin.needed(split)
        return iter(placed(own_split(read(path), split), split, str(path)))


class _Answer(BaseModel):
    answer_start: int
    text: str


class _Asked(BaseModel):
    id: str
    question: str
    answers: list[_Answer]
    is_impossible: bool | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.is_impossible is not None and self.is_impossible == bool(self.answers):
            has = "answers" if self.answers else "no answer"
            raise ValueError(f"has {has}, but is_impossible is {str(self.is_impossible).lower()}")
        return self


class _Paragraph(BaseModel):
    context: str
    qas: list[_Asked]


class _Article(BaseModel):
    title: str
    paragraphs: list[_Paragraph]


class _Released(BaseModel):
    data: list[_Article]


def read(path: Path) -> list[tuple[str, Question]]:
    """The questions of a file in the official form, each with the title of its article.

    Raises:
        ConfigError: When it is not JSON (naming line and column) or malformed (naming the first dozen places).
    """
    try:
        content = _Released.model_validate_json(read_text(path, encoding="utf-8-sig"), strict=True)
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path} is not UTF-8 text (byte {error.start + 1})."]) from None
    except ValidationError as error:
        faults = ((*map(str, fault["loc"]), fault["msg"]) for fault in error.errors(include_url=False))
        wrong = [f"{path}: {'.'.join(place)}: {text}" for *place, text in faults]
        raise refused(wrong, "places are wrong") from None
    rows = [
        (
            article.title,
            Question(
                one.id,
                one.question,
                paragraph.context,
                tuple((answer.answer_start, answer.text) for answer in one.answers),
            ),
        )
        for article in content.data
        for paragraph in article.paragraphs
        for one in paragraph.qas
    ]
    if not rows:
        raise ConfigError([f"{path} has no questions."])
    return rows


def placed(rows: Iterator[Question], split: Split, source: str) -> list[Question]:
    """The questions with their answers at positions where they occur; see `Squad.__call__`."""
    kept, moved, lost = [], 0, []
    for row in rows:
        answers = [located(row.context, start, text) for start, text in row.answers]
        if None in (answers[:1] if split == "train" else answers):
            lost.append(row.id)
            continue
        right = tuple(answer for answer in answers if answer)
        moved += right != tuple(row.answers)
        kept.append(row._replace(answers=right))
    if lost and split == "dev":
        more = f" and {len(lost) - MOST_NAMED} more" if len(lost) > MOST_NAMED else ""
        names = ", ".join(lost[:MOST_NAMED])
        raise ConfigError(
            [f"{source}: {len(lost)} dev questions have an answer that does not occur in their passage: {names}{more}."]
        )
    if lost:
        _log.warning("%s: skipped %d questions whose answer does not occur in their passage.", source, len(lost))
    if moved:
        _log.warning("%s: moved the answers of %d questions to where they occur in their passages.", source, moved)
    return kept


def located(context: str, start: int, text: str) -> tuple[int, str] | None:
    """The occurrence of an answer nearest to ``start``, ignoring white space; None if it does not occur.

    >>> located("a cat, a  dog, a cat", 12, "a cat"), located("a cat, a  dog", 7, "a dog"), located("a cat", 0, "dog")
    ((15, 'a cat'), (7, 'a  dog'), None)
    """
    if text.strip() and start >= 0 and context[start : start + len(text)] == text:
        return start, text
    if not text.split():
        return None
    spans = [match.span() for match in re.finditer(r"\s+".join(map(re.escape, text.split())), context)]
    if not spans:
        return None
    first, end = min(spans, key=lambda span: abs(span[0] - start))
    return first, context[first:end]


def own_split(rows: list[tuple[str, Question]], split: Split) -> Iterator[Question]:
    """The questions of about two thirds of the articles (train) or of the others (dev), by a hash of the title."""
    titles = sorted({title for title, _ in rows}, key=lambda title: hashlib.sha256(title.encode()).digest())
    dev = set(titles[::_DEV_SHARE])
    return (row for title, row in rows if (title in dev) == (split == "dev"))


_ANY = (_PUBLISHED, _REBUILT)
PUBLISHED = Squad(
    "1.1",
    "rajpurkar/squad",
    otherwise=nearest("squad1_own", "whose training questions are rebuilt from published pages"),
)
REBUILT = Squad("1.1", train=(_REBUILT,), dev=_ANY, otherwise="The official questions are the task 'squad1'.")
_SOURCE_1 = "Rajpurkar et al. 2016, SQuAD: 100,000+ Questions for Machine Comprehension of Text"
_SOURCE_2 = "Rajpurkar et al. 2018, Know What You Don't Know: Unanswerable Questions for SQuAD"

_SQUAD1 = Task(
    name="squad1",
    title="SQuAD 1.1: which words of the passage answer the question?",
    source=_SOURCE_1,
    shape=Spans(),
    rows=PUBLISHED,
    licence="CC BY-SA 4.0",
    official=(87_599, 10_570),
    settings={"max_length": 384},
)
_SQUAD2 = Task(
    name="squad2",
    title="SQuAD 2.0: which words of the passage answer the question, if any do?",
    source=_SOURCE_2,
    shape=Spans(unanswerable=True),
    rows=Squad(
        "2.0", "rajpurkar/squad_v2", otherwise=nearest("squad2_own", "which divides the official dev set in two")
    ),
    licence="CC BY-SA 4.0",
    official=(130_319, 11_873),
    settings={"max_length": 384},
)
ROWS = (
    _SQUAD1,
    replace(
        _SQUAD1,
        name="squad1_own",
        title="SQuAD 1.1, training questions rebuilt: which words of the passage answer the question?",
        rows=REBUILT,
        own_split=(
            "official dev. The training questions, in the official number, are rebuilt from published pages. Ids "
            "differ, and an answer that occurs several times in its passage may be marked at another occurrence"
        ),
        official=None,
    ),
    _SQUAD2,
    replace(
        _SQUAD2,
        name="squad2_own",
        title="SQuAD 2.0, own split of the dev set: which words of the passage answer the question, if any do?",
        rows=Divided(Squad("2.0", dev=_ANY)),
        own_split="articles of the official dev set, two thirds to train: 6 % of the official questions",
        official=None,
    ),
)
