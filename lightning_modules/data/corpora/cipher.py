"""Two made languages of one grammar: the second has another word for each word of the first.

``cipher:a-b:order,agreement=3,length=8`` are sentences of the made language of these switches (`corpora.made`), each
with itself in the other language: word by word, in the same order. ``cipher:a:...`` and ``cipher:b:...`` are the same
sentences in one of them. ``share=0.25`` leaves a quarter of the words the same in both, as names and loanwords are. All
other words of ``b`` are letters turned around. Which word replaces which is drawn once, so that neither letters nor
lengths reveal a translation.

Every word is a piece of a WordPiece vocabulary of `pieces`.
"""

from collections.abc import Iterator

from lightning_modules.config import ConfigError
from lightning_modules.data.corpora import made, parallel
from lightning_modules.data.corpora.sources import Split
from lightning_modules.draws import permutation

PREFIX = "cipher"
RECIPE = 1  # raise when the same name would give another text
LANGUAGES = ("a", "b")
_LETTERS = len(made.WORDS) // 5 + 5  # consonants and vowels: each begins words of a and ends words of b
_SHARE = "share="


def words(share: float) -> dict[str, str]:
    """Word of ``a`` -> word of ``b``, of which a share are the same."""
    order = permutation(0, "cipher", 0, len(made.WORDS))
    same = set(permutation(0, "words of both languages", 0, len(made.WORDS))[: round(share * len(made.WORDS))].tolist())
    turned = {word: made.WORDS[number][::-1] for word, number in zip(made.WORDS, order, strict=True)}
    return {word: word if number in same else turned[word] for number, word in enumerate(made.WORDS)}


def pieces(share: float) -> int:
    """Special pieces, letters, letters inside words, and the words of both languages.

    >>> pieces(0), pieces(0.25)
    (207, 187)
    """
    return 5 + 2 * _LETTERS + len({*made.WORDS, *words(share).values()})


def split_name(rest: str) -> tuple[parallel.Languages, float, made.Language]:
    """``<languages>:[share=<number>,]<switches>`` -> its parts.

    Raises:
        ConfigError: For other languages than ``a`` and ``b``, a share that is none, and as `made.Language.of`.
    """
    named, colon, switches = rest.partition(":")
    if not colon:
        text = f"'{PREFIX}:{rest}' names no switches. Write '{PREFIX}:a-b:<switches>', for example"
        raise ConfigError([f"{text} '{PREFIX}:a-b:order,agreement=3,length=8'."])
    languages = parallel.languages(PREFIX, named, LANGUAGES)
    share = 0.0
    if switches.startswith(_SHARE):
        number, _, switches = switches.removeprefix(_SHARE).partition(",")
        try:
            share = float(number)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            raise ConfigError([f"'{PREFIX}:{rest}': share={number} is no number from 0 to 1, for example share=0.25"])
    return languages, share, made.Language.of(switches)


def documents(rest: str, split: Split) -> Iterator[list[str]]:
    """The sentences of a split, each a document in one language or in two."""
    languages, share, language = split_name(rest)
    others = words(share)
    for document in language.paragraphs(split):
        for sentence in document:
            spelt = {"a": sentence, "b": " ".join(others[word] for word in sentence.split(" "))}
            yield [spelt[name] for name in languages]
