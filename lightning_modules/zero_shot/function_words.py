"""Words that say how others belong together, and are hardly ever the answer to a question about a passage."""

import re

_LISTED = """
    a an the this that these those such what which who whom whose
    i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers
    herself it its itself they them their theirs themselves one ones
    and or but nor so yet if than as because while although though unless until since when where whether why how
    of in on at by for with about against between into through during before after above below to from up down out off
    over under again then once here there onto upon toward towards within without along across behind beyond among
    around near per via
    be am is are was were been being have has had having do does did doing done will would shall should can could may
    might must ought
    not no any some all both each few more most other another same own only too very just also even ever never always
    now still much many
    s t d ll m re ve don didn doesn isn aren wasn weren won wouldn couldn shouldn hasn haven hadn ain
"""
FUNCTION_WORDS = frozenset(_LISTED.split())
_LETTERS = re.compile(r"[^\W\d_]+")
_SHORTEST = 4  # letters of a content word


def is_content(word: str) -> bool:
    """Whether a word is made of letters, has four of them at least, and is no function word."""
    return len(word) >= _SHORTEST and bool(_LETTERS.fullmatch(word)) and word.lower() not in FUNCTION_WORDS


def words_of(text: str) -> list[str]:
    """The words of a text without punctuation, in order; ``don't`` is two."""
    return _LETTERS.findall(text)
