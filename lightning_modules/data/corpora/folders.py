"""Corpora in the user's folder of data sets: novels and a 2015 extract of Wikipedia."""

import html
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lightning_modules.data.corpora import plain_text
from lightning_modules.data.corpora.sources import Origin
from lightning_modules.data.corpora.wikipedia_mini import prose
from lightning_modules.files import read_text

_OTHERWISE = (
    "Alternatives: 'wikipedia-mini' works offline, 'text:<glob>' reads your own files, 'hub:<dataset>' "
    "the Hugging Face hub."
)
NOVELS = Origin(
    "The corpus 'novels'",
    dict.fromkeys(("train", "heldout"), ("pretrain/english_novels_100/*.txt",)),
    otherwise=_OTHERWISE,
)
WIKIPEDIA = Origin(
    "The corpus 'wikipedia-2015'",
    {
        "train": tuple(f"pretrain/wiki_en_2015/wiki_A{letter}.txt" for letter in "ABC"),
        "heldout": ("pretrain/wiki_en_2015/wiki_AD.txt",),
    },
    otherwise=_OTHERWISE,
)

_WIDEST_WRAP = 125  # characters; a file with longer lines has one paragraph per line
_SENTENCE_ENDS = tuple(".!?:\"'”’")


def _files(origin: Origin, split: str) -> list[Path]:
    if not (paths := origin.find(split)):
        raise origin.absent(split)
    return paths


def novels() -> Iterator[list[str]]:
    """The paragraphs of each novel, in the order of file names. A document is a book."""
    for path in sorted(_files(NOVELS, "train")[0].parent.glob("*.txt"), key=lambda p: p.name):
        paragraphs = unwrapped(read_text(path, encoding="utf-8-sig"))
        if paragraphs:
            yield paragraphs


def unwrapped(text: str) -> list[str]:
    """The paragraphs of a plain-text book.

    Books have one of three layouts: one paragraph per line; lines wrapped at a fixed width with blank lines (or
    indentation) between paragraphs; and wrapped lines without separators, where a paragraph ends at a short line with
    sentence-final punctuation.
    """
    lines = [line.rstrip() for line in re.sub(r"\r\n?|\u2028", "\n", text).replace("\f", " ").split("\n")]
    widths = np.array([len(line) for line in lines if line])
    if not len(widths):
        return []
    wrap = float(np.quantile(widths, 0.98))
    if wrap > _WIDEST_WRAP:
        return [flat for line in lines if (flat := " ".join(line.split()))]
    unmarked = lines.count("") < 0.02 * len(lines)
    paragraphs: list[str] = []
    current: list[str] = []
    for line in lines:
        if not line or line[0].isspace():
            paragraphs.append(" ".join(current))
            current = []
        current += line.split()
        if unmarked and len(line) < 0.8 * wrap and line.endswith(_SENTENCE_ENDS):
            paragraphs.append(" ".join(current))
            current = []
    return [p for p in (*paragraphs, " ".join(current)) if p]


def wikipedia_2015(split: str) -> Iterator[list[str]]:
    """The paragraphs of each article; files AA-AC are for training, AD is held out."""
    for path in _files(WIKIPEDIA, split):
        paragraphs: list[str] = []
        title = False
        for line in plain_text.lines(path):
            if line.startswith("<doc "):
                paragraphs, title = [], True
            elif line.startswith("</doc>"):
                if paragraphs:
                    yield paragraphs
            elif title:  # the line after <doc ...> repeats the title
                title = False
            elif text := prose(html.unescape(line)):
                paragraphs.append(text)
