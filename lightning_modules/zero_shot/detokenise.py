"""WikiText's tokens as natural text, so that nothing is lost: the way back gives the tokens again, byte for byte.

A language model that has read natural text is at a disadvantage on tokenised text, and a map that loses something would
make the text more probable than it is (Radford et al. 2019, section 3.1). Here each step is its own inverse:

* ``@-@``, ``@,@`` and ``@.@`` between two words or digits change places with the sign alone.
* The space between two characters appears or disappears where English has none, before a comma or inside brackets.
  Where that is follows from the other characters of the line, never from its spaces: doing it twice does nothing.

A rare token that was natural before, such as a bare hyphen between letters, becomes tokenised: the price of losing
nothing.
"""

import re
from collections.abc import Callable
from itertools import pairwise

_HYPHEN = re.compile(r"(?<=\w)(?: @-@ |-)(?=\w)")
_IN_NUMBERS = re.compile(r"(?<=\d)(?: @([.,])@ |([.,]))(?=\d)")
_TITLES = (
    "Mr",
    "Mrs",
    "Ms",
    "Dr",
    "St",
    "Jr",
    "Sr",
    "Lt",
    "Col",
    "Gen",
    "Capt",
    "Sgt",
    "Inc",
    "Ltd",
    "Corp",
    "Mt",
    "No",
)
_NO_TITLE = "".join(rf"(?<!{title}\.)" for title in _TITLES)
_BEFORE = (  # no space is before these signs
    re.compile(r"[;!?%)\]]"),
    re.compile(r"[,:](?=\D|$)|(?<!\d)[,:]"),  # not inside of numbers and times
    re.compile(
        rf"\.(?!\.|[a-z]\.)(?<![A-Z.]\.)(?<!\.[a-z]\.){_NO_TITLE}(?:(?=\D|$)|(?<!\d\.))"
    ),  # nor of H. G. Wells, e.g.
    re.compile(r"(?<=\w)'(?=[stdmrvl])"),
    re.compile(r"(?<==)="),
)
_AFTER = re.compile(r"[(\[$£€]")  # nor after these
_WORDS = re.compile(r"\S+")


def natural(text: str) -> str:
    """The natural text of WikiText's tokens; lines stay lines.

    >>> natural('It is " red @-@ tipped " , 1 @.@ 5 kg ( 3 lb ) .')
    'It is "red-tipped", 1.5 kg (3 lb).'
    """
    return _by_line(text, lambda line: _toggled(_signs(line)))


def tokens(text: str) -> str:
    """The inverse of `natural`.

    >>> tokens('It is "red-tipped", 1.5 kg (3 lb).')
    'It is " red @-@ tipped " , 1 @.@ 5 kg ( 3 lb ) .'
    """
    return _by_line(text, lambda line: _signs(_toggled(line)))


def _by_line(text: str, change: Callable[[str], str]) -> str:
    return "\n".join(change(line) for line in text.split("\n"))


def _signs(line: str) -> str:
    line = _HYPHEN.sub(lambda found: "-" if len(found[0]) > 1 else " @-@ ", line)
    return _IN_NUMBERS.sub(lambda found: found[1] or f" @{found[2]}@ ", line)


def _toggled(line: str) -> str:
    """The line with a space where there was none, and none where there was one, at the places of `_places`."""
    parts, gaps = _WORDS.findall(line), _WORDS.split(line)
    places, at, shown = _places("".join(parts)), 0, []
    for part, gap in zip(parts, gaps, strict=False):
        shown.append("" if at in places and gap == " " else gap)
        edges = [0, *(n for n in range(1, len(part)) if at + n in places), len(part)]
        shown.append(" ".join(part[start:end] for start, end in pairwise(edges)))
        at += len(part)
    return "".join(shown) + gaps[-1]


def _places(bare: str) -> set[int]:
    """Where the spaces of a line change: before the characters with these numbers, spaces not counted."""
    found = {match.start() for pattern in _BEFORE for match in pattern.finditer(bare)}
    found |= {match.end() for match in _AFTER.finditer(bare)}
    quotes = [place for place, letter in enumerate(bare) if letter == '"']
    found |= {
        place + 1 - number % 2 for number, place in enumerate(quotes)
    }  # after an opening one, before a closing one
    return found - {0, len(bare)}
