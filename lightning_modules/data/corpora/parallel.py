"""Parallel text: documents of two sentences, a source and its translation.

A name says which language is translated into which, so that en-de and de-en are two corpora:

=====================================  ==========================================================================
``lines:<source>-<target>:<glob>``     two files of aligned lines, ``<stem>.<source>`` and ``<stem>.<target>``, for
                                       each stem that the glob matches
``tsv:<source>-<target>:<glob>``       two columns of tables whose first line names the columns
``pairs:<source>-<target>:<dataset>``  a data set of the hub with a column of each language, or a column
                                       ``translation`` of both
``multi30k:<source>-<target>``         descriptions of images (Elliott et al. 2016); ``val`` is held out
``bible:<source>-<target>``            verses; every 20th chapter is held out, but for verses that repeat others
``tatoeba:<source>-<target>``          1,000 sentences to or from English (Artetxe and Schwenk 2019); every 20th is
                                       held out
=====================================  ==========================================================================

With one language, as in ``bible:de`` or ``lines:de:<glob>``, the same texts are that language alone. What was a side of
a pair is a document of its own, but for the Bible, whose chapters are documents. The same texts are held out.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lightning_modules.config import ConfigError, did_you_mean
from lightning_modules.data.corpora import own_text, plain_text
from lightning_modules.data.corpora.sources import Origin

_HELD_OUT_EVERY = own_text.HELDOUT_EVERY
_LETTERS = {"ar": "ara", "de": "deu", "en": "eng", "es": "spa", "fr": "fra", "ru": "rus", "vi": "vie", "zh": "cmn"}
_PLACE = ("book", "chapter", "verse")  # columns of the Bible that hold no text
SIDES = 2  # sentences of a pair

Languages = tuple[str, ...]  # a source and a target, or one alone


@dataclass(frozen=True)
class Named:
    """A parallel corpus with a name, in any direction between two of its languages.

    Attributes:
        description: Content and size, in one line.
        languages: Its languages, as they are named.
        documents: Languages, split -> documents of two sentences, or of one language.
        origin: Languages -> where the files come from.
        licence: Terms of use, in a few words.
    """

    description: str
    languages: tuple[str, ...]
    documents: Callable[[Languages, str], Iterator[list[str]]]
    origin: Callable[[Languages], Origin]
    licence: str


def languages(kind: str, given: str, known: tuple[str, ...] = ()) -> Languages:
    """``<source>-<target>`` -> both, and ``<language>`` -> that one.

    Args:
        kind: What the name of the corpus begins with.
        known: The languages that there are; empty for any.

    Raises:
        ConfigError: For anything but two different languages, and for one that is unknown.
    """
    named = tuple(given.split("-"))
    advice = f"Write '{kind}:<source>-<target>', for example '{kind}:en-de', or one language alone, '{kind}:en'"
    if len(named) > SIDES or not all(name.isidentifier() for name in named):
        raise ConfigError([f"'{kind}:{given}' names no two languages. {advice}."])
    if len(set(named)) < len(named):
        raise ConfigError([f"'{kind}:{given}' translates {named[0]} into itself. {advice}."])
    for language in named:
        if known and language not in known:
            near = did_you_mean(language, known)
            raise ConfigError([f"{kind} has no language '{language}'.{near}"])
    return named


def of_their_own(lines: Iterable[str]) -> Iterator[list[str]]:
    """The lines of one language that are not empty, each a document: the same ones are held out as of pairs."""
    return ([" ".join(line.split())] for line in lines if line.strip())


def aligned(one: Path, other: Path) -> Iterator[list[str]]:
    """The lines of two files, pair by pair, with single spaces.

    Raises:
        ConfigError: At the first empty line, and where one file ends before the other, with the number of the line.
    """
    for number, pair in enumerate(itertools.zip_longest(plain_text.lines(one), plain_text.lines(other)), 1):
        if None in pair:
            short, long = (one, other) if pair[0] is None else (other, one)
            text = f"{short} ends before line {number}, and {long} has more"
            raise ConfigError([f"{text}. Line n of one must translate line n of the other."])
        both = [" ".join(line.split()) for line in pair if line is not None]
        if not all(both):
            empty = other if both[0] else one
            raise ConfigError([f"{empty}, line {number} is empty. Fill it, or leave it out of both files."])
        yield both


def in_files(pattern: str, named: Languages) -> Iterator[list[str]]:
    """The documents of a corpus ``lines:<source>-<target>:<glob>``, file by file in the order of names.

    Raises:
        ConfigError: As `aligned`; when no file matches, or one has no partner.
    """
    for paths in partners(pattern, named):
        yield from aligned(*paths) if len(paths) == SIDES else of_their_own(plain_text.lines(paths[0]))


def partners(pattern: str, named: Languages) -> list[tuple[Path, ...]]:
    """The files of each language, ``<stem>.<language>`` for each stem that a glob matches.

    Raises:
        ConfigError: When no file matches, or one has no partner.
    """
    found = [own_text.text_files(f"{pattern}.{language}") for language in named]
    stems = [{path.with_suffix("") if path.suffix else path for path in paths} for paths in found]
    if lone := sorted(stems[0] ^ stems[-1]):
        lacking = named[1] if lone[0] in stems[0] else named[0]
        raise ConfigError([f"{lone[0]}.{lacking} is missing: each file needs its partner in the other language."])
    return list(zip(*found, strict=True))


def columns(path: Path, names: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """Number of the line, and some columns of each line, of a table with tabs whose first line names the columns.

    There is no quoting.

    Raises:
        ConfigError: For a column that it lacks, and at a line with more or fewer columns than the first.
    """
    lines = plain_text.lines(path)
    header = next(lines, "").rstrip("\r\n").split("\t")
    for name in names:
        if name not in header:
            raise ConfigError([f"{path} has no column '{name}'.{did_you_mean(name, header)}"])
    places = [header.index(name) for name in names]
    for number, line in enumerate(lines, 2):
        cells = line.rstrip("\r\n").split("\t")
        if len(cells) != len(header):
            raise ConfigError([f"{path}, line {number} has {len(cells)} columns. The first line has {len(header)}."])
        yield number, [" ".join(cells[place].split()) for place in places]


def tables(pattern: str, named: Languages) -> Iterator[list[str]]:
    """The documents of a corpus ``tsv:<source>-<target>:<glob>``, file by file in the order of names.

    Raises:
        ConfigError: As `columns`; when no file matches; of two languages at the first line without a text.
    """
    for path in own_text.text_files(pattern):
        if len(named) < SIDES:
            yield from of_their_own(text for _, (text,) in columns(path, named))
            continue
        pair = named
        for number, both in columns(path, pair):
            if not all(both):
                empty = pair[1] if both[0] else pair[0]
                raise ConfigError([f"{path}, line {number} has no text in '{empty}'. Fill it, or leave the line out."])
            yield both


def hub_pairs(dataset: str, named: Languages, split: str) -> Iterator[list[str]]:
    """The pairs of a data set of the hub; held out is what is held out of any (`own_text.hub_rows`).

    Raises:
        ConfigError: When it cannot be read, and at the first row without one of the texts.
    """
    rows = own_text.hub_rows(dataset, split, lambda rows: _pairs_of_rows(rows, named, dataset))
    yield from rows


def _pairs_of_rows(rows: Iterable[dict], named: Languages, dataset: str) -> Iterator[list[str]]:
    for number, row in enumerate(rows, 1):
        held = row.get("translation", row)
        for language in named:
            if not isinstance(held.get(language), str) or not held[language].strip():
                near = did_you_mean(language, held)
                raise ConfigError([f"'pairs:{dataset}' row {number} has no text in '{language}'.{near}"])
        yield [" ".join(held[language].split()) for language in named]


def _multi30k_origin(named: Languages) -> Origin:
    files: dict[str, tuple[str, ...]] = {
        split: tuple(f"multi30k/{stem}.{language}" for language in named)
        for split, stem in (("train", "train"), ("heldout", "val"))
    }
    return Origin("The corpus 'multi30k'", files, otherwise=_OTHERWISE)


def _multi30k(named: Languages, split: str) -> Iterator[list[str]]:
    paths = _multi30k_origin(named).needed(split)
    yield from aligned(*paths) if len(paths) == SIDES else of_their_own(plain_text.lines(paths[0]))


def _bible_origin(named: Languages) -> Origin:
    files: dict[str, tuple[str, ...]] = dict.fromkeys(("train", "heldout"), ("bible/bible_aligned.tsv",))
    return Origin("The corpus 'bible'", files, otherwise=_OTHERWISE)


def _bible(named: Languages, split: str) -> Iterator[list[str]]:
    """Verses that both languages have, or chapters of one; some translations lack whole books.

    Some verses repeat others. What is held out has none whose text in either language is in the training text.
    """
    (path,) = _bible_origin(named).needed(split)
    chapters: dict[bool, list[list[list[str]]]] = {True: [], False: []}  # whether held out
    for number, (_, verses) in enumerate(itertools.groupby(columns(path, (*_PLACE, *named)), lambda row: row[1][:2])):
        texts = [cells[len(_PLACE) :] for _, cells in verses if all(cells)]
        chapters[number % _HELD_OUT_EVERY == _HELD_OUT_EVERY // 2].append(texts)
    known = [{verse[side] for texts in chapters[False] for verse in texts} for side in range(len(named))]
    for texts in chapters[split == "heldout"]:
        kept = [verse for verse in texts if split == "train" or not any(map(set.__contains__, known, verse))]
        if len(named) == SIDES:
            yield from kept
        elif kept:
            yield [text for (text,) in kept]


def _tatoeba_origin(named: Languages) -> Origin:
    foreign = next((language for language in named if language != "en"), "de")  # English alone is that of one pair
    stem = f"tatoeba_laser/tatoeba.{_LETTERS[foreign]}-eng"
    files = tuple(f"{stem}.{_LETTERS[language]}" for language in named)
    return Origin("The corpus 'tatoeba'", dict.fromkeys(("train", "heldout"), files), otherwise=_OTHERWISE)


def _tatoeba(named: Languages, split: str) -> Iterator[list[str]]:
    paths = _tatoeba_origin(named).needed(split)
    documents = aligned(*paths) if len(paths) == SIDES else of_their_own(plain_text.lines(paths[0]))
    yield from own_text.split_by_position(documents, split, _HELD_OUT_EVERY, "tatoeba")


_OTHERWISE = "Alternatives: 'lines:<source>-<target>:<glob>' and 'tsv:<source>-<target>:<glob>' read your own files."
NAMED: dict[str, Named] = {
    "multi30k": Named(
        "29,000 descriptions of images, of about 12 words, the 1,014 of val held out",
        ("cs", "de", "en", "fr"),
        _multi30k,
        _multi30k_origin,
        "CC BY-NC-SA 4.0",
    ),
    "bible": Named(
        "31,000 verses, of which French and Russian lack most, every 20th chapter held out",
        ("de", "en", "es", "fr", "pt", "ru", "zh"),
        _bible,
        _bible_origin,
        "no licence stated (translations of different ages)",
    ),
    "tatoeba": Named(
        "1,000 sentences to or from English, every 20th held out",
        tuple(_LETTERS),
        _tatoeba,
        _tatoeba_origin,
        "CC BY 2.0 FR",
    ),
}


def named(kind: str, rest: str) -> Languages:
    """The languages of a corpus of `NAMED`.

    Raises:
        ConfigError: As `languages`; for two languages that the corpus does not pair.
    """
    pair = languages(kind, rest, NAMED[kind].languages)
    if kind == "tatoeba" and len(pair) == SIDES and "en" not in pair:
        raise ConfigError(
            [f"tatoeba pairs each language with en, not {pair[0]} with {pair[1]}. Write 'tatoeba:en-de'."]
        )
    return pair


def split_name(kind: str, rest: str) -> tuple[Languages, str]:
    """``<source>-<target>:<place>``, or ``<language>:<place>`` -> languages and place.

    Raises:
        ConfigError: If one of them is missing.
    """
    given, colon, place = rest.partition(":")
    if not (colon and place):
        text = f"'{kind}:{rest}' names no files. Write '{kind}:<source>-<target>:<glob>'"
        raise ConfigError([f"{text}, for example '{kind}:en-de:~/corpus/train*'."])
    return languages(kind, given), place


OWN = ("lines", "tsv", "pairs")  # what the names of the user's own begin with


def own_documents(kind: str, rest: str, split: str) -> Iterator[list[str]]:
    """The documents of a split of the user's own parallel text."""
    pair, place = split_name(kind, rest)
    if kind == "pairs":
        yield from hub_pairs(place, pair, split)
        return
    documents = in_files(place, pair) if kind == "lines" else tables(place, pair)
    yield from own_text.split_by_position(documents, split, _HELD_OUT_EVERY, f"{kind}:{rest}")


def files(kind: str, rest: str) -> list[Path]:
    """The files of the user's own parallel text; none of a data set of the hub.

    Raises:
        ConfigError: When one is missing.
    """
    pair, place = split_name(kind, rest)
    if kind == "lines":
        return [path for both in partners(place, pair) for path in both]
    return own_text.text_files(place) if kind == "tsv" else []
