"""The bundled corpus: Wikipedia articles of gensim's test data, cleaned to running text.

gensim ships a shortened dump of the English Wikipedia (about a hundred articles, 0.4 million words of prose)
to test its wiki tools. Licence of the text: CC BY-SA 3.0. Nothing is downloaded.
"""

import bz2
import itertools
import re
from collections.abc import Iterator
from functools import cache
from types import ModuleType

from lightning_modules.config import ConfigError
from lightning_modules.data.corpora.sources import Split

_DUMP = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"

_HEADING = re.compile(r"^\s*=+[^=].*=+\s*$")
_NOT_PROSE = re.compile(r"^\s*(?:[|!{}]|File:|Image:|Category:|Media:|\w{2,3}:\s*Category)", re.IGNORECASE)
_BULLET = re.compile(r"^[\s*#:;@]+")
_QUOTES = re.compile(r"'{2,}")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,200}>|__[A-Z]+__")
_LEFTOVER = re.compile(r"\{\{|\}\}|\[\[|\]\]|\|\||\{\||\|\}")
_EMPTY = re.compile(r"\(\s*(?:[,;:]\s*)*\)")  # "()" and "(; )", left by removed templates
_OPENING = re.compile(r"\(\s*[,;:]\s*")  # "(; born 1900)"
_LOOSE = re.compile(r"\s+([,;.!?)])")
_BACK_MATTER = re.compile(  # sections of citations and links
    r"references|notes|footnotes|citations|sources|bibliography|further reading|external links|see also|works cited",
    re.IGNORECASE,
)
_CLOSED = tuple(".!?:;\"')”’…")
FEWEST_WORDS = 5

_FIRST_UNREAD = "Agriculture"  # the articles before it are in the corpus wikipedia-2015 too, of that year
# Articles that share no 13 successive words with another article or with any other corpus: of those with 1,000 words or
# more the second, the fifth, the eighth ... in the order of the dump.
UNREAD_HELDOUT = frozenset(
    {
        "Algae", "Arraignment", "Abacus", "Apollo 11", "A Modest Proposal", "Andrei Tarkovsky", "Aardwolf",
        "Articles of Confederation", "Android (robot)", "Albert Einstein",
    }
)  # fmt: skip


def prose(line: str) -> str | None:
    """One line of a Wikipedia article as clean prose; None for headings, list entries and table rows.

    Follows BERT (Devlin et al. 2019, section 3.1), which ignores lists, tables and headers: a line is kept if it has at
    least ``FEWEST_WORDS`` words and ends with sentence-final punctuation.
    """
    if _HEADING.match(line) or _NOT_PROSE.match(line) or _LEFTOVER.search(line):
        return None
    text = _TAG.sub(" ", _QUOTES.sub("", _BULLET.sub("", line)))
    text = _OPENING.sub("(", _EMPTY.sub("", text))
    text = _LOOSE.sub(r"\1", " ".join(text.split())).replace("( ", "(")
    if not text.endswith(_CLOSED) or text.count(" ") + 1 < FEWEST_WORDS:
        return None
    return text


def articles() -> Iterator[list[str]]:
    """The paragraphs of each article, in the order of the dump; without redirects and other name spaces.

    Raises:
        ConfigError: When gensim is not installed, with the command that installs it.
    """
    return (paragraphs for _title, paragraphs in _titled())


def unread(split: Split) -> Iterator[list[str]]:
    """The articles that models of the corpus wikipedia-2015 have not read: those that it lacks."""
    later = itertools.dropwhile(lambda article: article[0] != _FIRST_UNREAD, _titled())
    return (paragraphs for title, paragraphs in later if (title in UNREAD_HELDOUT) == (split == "heldout"))


def _titled() -> Iterator[tuple[str, list[str]]]:
    try:
        import gensim.corpora.wikicorpus as reader
        from gensim.test.utils import datapath
    except ImportError:
        raise ConfigError(
            [
                "The corpora 'wikipedia-mini' and 'wikipedia-unread' need the package gensim, which is not installed. "
                "Run `pip install -e .`, or use your own text: 'text:<glob>'."
            ]
        ) from None
    yield from _articles(reader, datapath(_DUMP))  # pyright: ignore[reportArgumentType]  # modules have hashes


@cache  # a tokenizer, both token stores and a task are made from it in turn; it is 2.5 MB, and seconds to clean
def _articles(reader: ModuleType, path: str) -> list[tuple[str, list[str]]]:
    with bz2.BZ2File(path) as dump:
        pages = reader.extract_pages(dump, filter_namespaces=("0",))
        texts = ((title, markup) for title, markup, _ in pages if markup.lstrip()[:9].upper() != "#REDIRECT")
        cleaned = ((title, list(_paragraphs(reader.filter_wiki(markup)))) for title, markup in texts)
        return [article for article in cleaned if article[1]]


def _paragraphs(article: str) -> Iterator[str]:
    """The prose of an article without sections of references and links."""
    in_body = True
    for line in article.split("\n"):
        if _HEADING.match(line):
            in_body = not _BACK_MATTER.match(line.strip(" ="))
        elif in_body and (text := prose(line)):
            yield text
