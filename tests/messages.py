"""What a message must hold, whatever the sentence around it: places, names, numbers, what is near or allowed."""

import re


def naming(*words: str) -> str:
    """A pattern for ``pytest.raises(match=...)``: a message with all these words, in any order."""
    return "".join(rf"(?=[\s\S]*(?<!\w){re.escape(word)}(?!\w))" for word in words)


def names(text: str, *words: str) -> bool:
    """Whether a text holds all these words."""
    return re.match(naming(*words), text) is not None
