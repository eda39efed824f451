"""Files of one word a line in columns, its tag in the last: CoNLL-2003 and WNUT-17."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..config import ConfigError
from ..data.sources import Origin
from .sources import Source, numbered
from .tagging import Sentence, Tagging
from .task import Split, Task

_DOCUMENT = "-DOCSTART-"  # the word of a line that begins a document
_TAG = re.compile(r"O|[BI]-\S+")


def bio(tags: Sequence[str]) -> tuple[str, ...]:
    """Tags of one sentence with B at the start of every name, whether they were IOB1 or BIO (IOB2) before.

    Tags that are BIO stay as they are; the names that conlleval finds are the same before and after.

    >>> bio(["I-PER", "I-PER", "B-PER", "O", "I-LOC", "I-ORG"])
    ('B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC', 'B-ORG')
    """
    before = ["O", *tags]
    return tuple(
        f"B{tag[1:]}" if tag != "O" and last[1:] != tag[1:] else tag for last, tag in zip(before, tags, strict=False)
    )


@dataclass(frozen=True)
class Columns:
    """Tagged sentences, read by calling with a split.

    A line holds a word, what else a source says of it, and its tag, separated by spaces or tabs; a blank line ends a
    sentence. A line whose word is -DOCSTART- begins a document; in a file without one each sentence is a document.

    Attributes:
        source: Where the files are.
        count: Columns of a line.
    """

    source: Source
    count: int

    @property
    def origin(self) -> Origin:
        """Where the files are."""
        return self.source.origin

    def __call__(self, split: Split) -> Iterator[Sentence]:
        """The sentences of a split.

        Raises:
            ConfigError: When the data are not at hand, naming the ways to get them, or when a line is not as expected.
        """
        for path in self.source.paths(split):
            yield from self._read(path)

    def _read(self, path: Path) -> list[Sentence]:
        found, words, tags, document, marked = [], [], [], 0, False
        for where, line in numbered(path, "sentence"):
            columns = re.split(r"[ \t]+", line.strip(" \t"))
            if columns[0] and columns[0] != _DOCUMENT:
                words.append(columns[0])
                tags.append(self._tag(where, columns))
            elif words:
                found.append(Sentence(tuple(words), bio(tags), document))
                words, tags = [], []
            if columns[0] == _DOCUMENT:
                document, marked = document + 1, True
        if words:
            found.append(Sentence(tuple(words), bio(tags), document))
        if not found:
            raise ConfigError([f"{path} is empty: it holds no sentence."])
        return found if marked else [row._replace(document=number) for number, row in enumerate(found)]

    def _tag(self, where: str, columns: list[str]) -> str:
        if len(columns) != self.count:
            raise ConfigError([f"{where}: {len(columns)} columns instead of {self.count}."])
        if not _TAG.fullmatch(columns[-1]):
            raise ConfigError([f"{where}: the tag {columns[-1]!r} is none of O, B-<type> and I-<type>."])
        return columns[-1]


_CONLL = Columns(Source("CoNLL-2003", "conll2003", {"train": ("train.txt",), "dev": ("valid.txt",)}), count=4)
_NAMES = ("PER", "ORG", "LOC", "MISC")
_NAMED = "Tjong Kim Sang and De Meulder 2003, Introduction to the CoNLL-2003 Shared Task"
_F1 = ("entity_f1", "precision", "recall", "accuracy")

ROWS = (
    # not from the hub, whose copies have lost the borders of documents
    Task(
        name="conll2003",
        title="CoNLL-2003: which words name persons, organisations, places and others, with the document around?",
        source=_NAMED,
        shape=Tagging(_NAMES, context=True),
        metrics=_F1,
        rows=_CONLL,
        licence="Reuters text, for research by agreement with NIST",
        official=(14041, 3250),
    ),
    Task(
        name="conll2003_sentences",
        title="CoNLL-2003: which words name persons, organisations, places and others, sentence by sentence?",
        source=_NAMED,
        shape=Tagging(_NAMES),
        metrics=_F1,
        rows=_CONLL,
        licence="Reuters text, for research by agreement with NIST",
        official=(14041, 3250),
    ),
    Task(
        name="wnut17",
        title="WNUT-17: which words name new and rare things?",
        source="Derczynski et al. 2017, Results of the WNUT2017 Shared Task on Novel and Emerging Entity Recognition",
        shape=Tagging(("corporation", "creative-work", "group", "location", "person", "product")),
        metrics=_F1,
        rows=Columns(
            Source("WNUT-17", "wnut17", {"train": ("wnut17train.conll",), "dev": ("emerging.dev.conll",)}), count=2
        ),
        licence="CC BY 4.0",
        official=(3394, 1009),
    ),
)
