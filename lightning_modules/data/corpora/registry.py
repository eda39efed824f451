"""Named corpora: streams of documents with a training and a held-out split.

A document is a list of sentences; a sentence is one line of text with single spaces. Whole documents are held out by
a fixed rule, so that no run trains on text that another is evaluated on.
"""

import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lightning_modules.config import ConfigError, did_you_mean
from lightning_modules.data.corpora import (
    cipher,
    json_lines,
    made,
    made_pairs,
    own_text,
    parallel,
    plain_text,
    reviews,
    wikipedia_mini,
)
from lightning_modules.data.corpora.sources import Origin, Split
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


@dataclass(frozen=True)
class Corpus:
    """A named source of text.

    Attributes:
        name: Its name in grids.
        description: Content and size, in one line.
        paragraphs: Split -> documents as lists of paragraphs.
        origin: Where its files come from.
        package: The Python package that contains it, if it has no files.
        licence: Terms of use, in a few words.
        is_split: Whether its paragraphs are sentences already.
        languages: The language of its text; of parallel text that of the first and of the second sentence of each
            document. Empty where it is not known.
    """

    name: str
    description: str
    paragraphs: Callable[[Split], Iterator[list[str]]]
    origin: Origin | None = None
    package: str = ""
    licence: str = ""
    is_split: bool = False
    languages: tuple[str, ...] = ()

    def documents(self, split: Split) -> Iterator[list[str]]:
        """The documents of a split as lists of sentences, streamed in a fixed order."""
        if self.is_split:
            yield from self.paragraphs(split)
            return
        from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]  # its types do not name it

        for paragraphs in self.paragraphs(split):
            pieces = (" ".join(piece.split()) for text in paragraphs for piece in segment("en", text))
            if sentences := [sentence for sentence in pieces if sentence]:
                yield sentences


def _every(documents: Callable[[], Iterator[list[str]]], every: int) -> Callable[[Split], Iterator[list[str]]]:
    """Holds out every ``every``-th document."""
    return lambda split: (d for n, d in enumerate(documents()) if (n % every == every // 2) == (split == "heldout"))


CORPORA: dict[str, Corpus] = {
    "wikipedia-mini": Corpus(
        "wikipedia-mini",
        "about 100 Wikipedia articles in the package gensim, 0.4 M words, every 10th held out",
        _every(wikipedia_mini.articles, 10),
        package="gensim",
        licence="CC BY-SA 3.0",
        languages=("en",),
    ),
    "wikipedia-unread": Corpus(
        "wikipedia-unread",
        "those 68 of them that wikipedia-2015 lacks, 0.25 M words, 10 held out that share no 13 words",
        wikipedia_mini.unread,
        package="gensim",
        licence="CC BY-SA 3.0",
        languages=("en",),
    ),
    "novels": Corpus(
        "novels",
        "98 English novels of 1839-1930, 14 M words, every 20th book held out",
        _every(novels, 20),
        NOVELS,
        licence="public domain",
        languages=("en",),
    ),
    "wikipedia-2015": Corpus(
        "wikipedia-2015",
        "10,322 English Wikipedia articles of 2015, 22 M words, the last file held out",
        wikipedia_2015,
        WIKIPEDIA,
        licence="CC BY-SA 3.0",
        languages=("en",),
    ),
    "imdb-train": Corpus(
        "imdb-train",
        "the training reviews of IMDb without labels, 6 M words, without the tenth that the task holds out",
        reviews.training,
        reviews.TRAIN,
        licence="no licence stated (film reviews, for research)",
        languages=("en",),
    ),
    "imdb-unlabelled": Corpus(
        "imdb-unlabelled",
        "the unlabelled reviews of IMDb that are in no other part, 12 M words, a twentieth held out",
        reviews.unlabelled,
        reviews.UNLABELLED,
        licence="no licence stated (film reviews, for research)",
        languages=("en",),
    ),
}


def corpus(name: str) -> Corpus:
    """The corpus of that name: a named one, or one of the user's own.

    Those are ``text:<glob>``, ``jsonl:<column>:<glob>``, ``hub:<dataset>[/<config>]``, ``made:<switches>`` and those of
    parallel text (`parallel`).

    Raises:
        ConfigError: For an unknown name, with the nearest valid one.
    """
    if name in CORPORA:
        return CORPORA[name]
    kind, colon, rest = name.partition(":")
    if colon and rest and kind == "text":
        return Corpus(
            name,
            "your own files",
            lambda split: own_text.split_by_position(
                own_text.text_documents(rest), split, own_text.HELDOUT_EVERY, name
            ),
        )
    if colon and kind == json_lines.PREFIX:
        json_lines.split_name(rest)
        return Corpus(
            name,
            "your own JSON lines",
            lambda split: own_text.split_by_position(json_lines.documents(rest), split, own_text.HELDOUT_EVERY, name),
        )
    if colon and rest and kind == "hub":
        return Corpus(name, "a data set of the Hugging Face hub", lambda split: own_text.hub_documents(rest, split))
    if colon and kind == made.PREFIX:
        return Corpus(name, "a made language", made.Language.of(rest).paragraphs, is_split=True)
    if colon and kind == made_pairs.PREFIX:
        pairs = made_pairs.MadePairs.of(rest)
        return Corpus(name, "made parallel text", pairs.documents, is_split=True, languages=("made", pairs.target))
    if colon and kind == cipher.PREFIX:
        return Corpus(
            name,
            "made languages of one grammar",
            lambda split: cipher.documents(rest, split),
            is_split=True,
            languages=cipher.split_name(rest)[0],
        )
    if colon and kind in parallel.NAMED:
        pair, known = parallel.named(kind, rest), parallel.NAMED[kind]
        return Corpus(
            name,
            known.description,
            lambda split: known.documents(pair, split),
            known.origin(pair),
            licence=known.licence,
            is_split=True,
            languages=pair,
        )
    if colon and kind in parallel.OWN:
        pair, _ = parallel.split_name(kind, rest)
        return Corpus(
            name,
            "your own text in these languages",
            lambda split: parallel.own_documents(kind, rest, split),
            is_split=True,
            languages=pair,
        )
    near = did_you_mean(name, (*CORPORA, *parallel.NAMED))
    raise ConfigError(
        [
            f"there is no corpus '{name}'.{near} Use 'text:<glob>' for your own text, 'jsonl:<column>:<glob>' for your "
            "own JSON lines, 'hub:<dataset>' for the hub, 'made:<switches>' for a made language. "
            "Two made languages are 'cipher:a-b:<switches>', and made pairs 'made-pairs:copied'. "
            "Your own parallel text is 'lines:<source>-<target>:<glob>', and your own text in one language "
            "'lines:<language>:<glob>'."
        ]
    )
