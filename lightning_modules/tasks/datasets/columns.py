"""Files with one word per line in columns, its tag in the last: CoNLL-2003 and WNUT-17."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lightning_modules.config import ConfigError
from lightning_modules.data.corpora.sources import Origin
from lightning_modules.tasks.reading.lines import Fault, made, numbered
from lightning_modules.tasks.reading.separators import wrong_count
from lightning_modules.tasks.shapes.tagging import Sentence, Tagging
from lightning_modules.tasks.task import Split, Task

_DOCUMENT = "-DOCSTART-"  # first column of the line that begins a document
_TAG = re.compile(r"O|[BI]-\S+")


def bio(tags: Sequence[str]) -> tuple[str, ...]:
    """The tags of one sentence as BIO (IOB2), from IOB1 or BIO.

    BIO tags stay as they are; conlleval finds the same names before and after.

    >>> bio(["I-PER", "I-PER", "B-PER", "O", "I-LOC", "I-ORG"])
    ('B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC', 'B-ORG')
    """
    before = ["O", *tags]
    return tuple(
        f"B{tag[1:]}" if tag != "O" and last[1:] != tag[1:] else tag for last, tag in zip(before, tags, strict=False)
    )


@dataclass(frozen=True)
class Columns:
    """A reader of tagged sentences; call it with a split.

    A line holds a word, possibly other columns, and its tag, separated by spaces or tabs; a blank line ends a
    sentence. A line whose word is -DOCSTART- begins a document; in a file without one each sentence is a document.

    Attributes:
        count: Number of columns.
    """

    origin: Origin
    count: int

    def __call__(self, split: Split) -> Iterator[Sentence]:
        """The sentences of a split.

        Raises:
            ConfigError: When the data are missing (the message says how to get them) or a line is malformed.
        """
        for path in self.origin.needed(split):
            yield from self._read(path)

    def _read(self, path: Path) -> list[Sentence]:
        sentences, words, tags, document, marked = [], [], [], 0, False
        for word, tag in made(path, numbered(path, blank=True), self._word):
            if tag:
                words.append(word)
                tags.append(tag)
            elif words:
                sentences.append(Sentence(tuple(words), bio(tags), document))
                words, tags = [], []
            if word == _DOCUMENT:
                document, marked = document + 1, True
        if words:
            sentences.append(Sentence(tuple(words), bio(tags), document))
        if not sentences:
            raise ConfigError([f"{path} holds no sentence."])
        return sentences if marked else [row._replace(document=number) for number, row in enumerate(sentences)]

    def _word(self, line: str) -> tuple[str, str]:
        """The word and its tag; the tag is empty for blank lines and starts of documents."""
        columns = re.split(r"[ \t]+", line.strip(" \t"))
        if columns[0] in ("", _DOCUMENT):
            return columns[0], ""
        if len(columns) != self.count:
            raise Fault(wrong_count(line, len(columns), self.count, " ", what="column"))
        if not _TAG.fullmatch(columns[-1]):
            raise Fault(f"the tag {columns[-1]!r} is not O, B-<type> or I-<type>")
        return columns[0], columns[-1]


_CONLL = Columns(
    Origin("The data set CoNLL-2003", {"train": ("conll2003/train.txt",), "dev": ("conll2003/valid.txt",)}), count=4
)
_NAMES = ("PER", "ORG", "LOC", "MISC")
_NAMED = "Tjong Kim Sang and De Meulder 2003, Introduction to the CoNLL-2003 Shared Task"

_CONLL2003 = Task(
    name="conll2003",
    title="CoNLL-2003: which words name persons, organisations, places and others, with the document around?",
    source=_NAMED,
    shape=Tagging(_NAMES, context=True),
    rows=_CONLL,
    licence="Reuters text, for research by agreement with NIST",
    official=(14041, 3250),
)
ROWS = (
    # not from the hub, whose copies have lost the document boundaries
    _CONLL2003,
    replace(
        _CONLL2003,
        name="conll2003_sentences",
        title="CoNLL-2003: which words name persons, organisations, places and others, sentence by sentence?",
        shape=Tagging(_NAMES),
    ),
    Task(
        name="wnut17",
        title="WNUT-17: which words name new and rare things?",
        source="Derczynski et al. 2017, Results of the WNUT2017 Shared Task on Novel and Emerging Entity Recognition",
        shape=Tagging(("corporation", "creative-work", "group", "location", "person", "product")),
        rows=Columns(
            Origin(
                "The data set WNUT-17",
                {"train": ("wnut17/wnut17train.conll",), "dev": ("wnut17/emerging.dev.conll",)},
            ),
            count=2,
        ),
        licence="CC BY 4.0",
        official=(3394, 1009),
    ),
)
