"""Texts with masks, read as training shows them: the pieces of a whole text, of which some are hidden.

The ``tokenizers`` package cuts a text at its special pieces, and takes what is between them for texts of their own.
Byte-level BPE and unigram pieces hold the space before a word, and the first word of each such text would get one. So
the text is normalised before it is cut, and then gets a space before its first word alone. A mask takes the space
before it: ``the [MASK].`` is ``Ġthe``, the mask and ``.``, as ``the cat.`` is ``Ġthe``, ``Ġcat`` and ``.``. Pieces of
other kinds hold no space: letters next to a mask are words of their own.
"""

import json
from collections.abc import Iterator
from typing import Any

import tokenizers
from tokenizers import AddedToken

MASK = "[MASK]"
_ALIAS = "\ufdd0"  # the mask while a text is normalised, which may lower-case it; no text has this character
_SPACED = ("byte_bpe", "unigram")  # kinds whose pieces hold the space before a word


def _replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


_NAMING, _RENAMING = _replace({"String": MASK}, _ALIAS), _replace({"String": _ALIAS}, MASK)
_WHITE_SPACE = [
    _replace({"Regex": r"\s+"}, " "),
    {"type": "Strip", "strip_left": False, "strip_right": True},
]
_FIRST_SPACE = [{"type": "Prepend", "prepend": " "}, _replace({"Regex": rf"\A (?=[ {_ALIAS}])"}, "")]
_BARE = {"ByteLevel": {"add_prefix_space": False}, "Metaspace": {"prepend_scheme": "never"}}
FOR_MASKS = (_NAMING, *_FIRST_SPACE, _RENAMING)  # the steps of a normalizer that only texts with masks need


def reading_masks(fast: tokenizers.Tokenizer, kind: str) -> tokenizers.Tokenizer:
    """A copy of a tokenizer for which ``[MASK]`` in a text is one special piece.

    Args:
        fast: A tokenizer that encodes every word with a space before it.
        kind: Its kind, see `Tokenizer`.
    """
    data, spaced = json.loads(fast.to_str()), kind in _SPACED
    if spaced:
        cleans = [*steps(data["normalizer"], "normalizers"), *_WHITE_SPACE * (kind == "unigram")]
        data["normalizer"] = {"type": "Sequence", "normalizers": [_NAMING, *cleans, *_FIRST_SPACE, _RENAMING]}
        splits = [step | _BARE.get(step["type"], {}) for step in steps(data["pre_tokenizer"], "pretokenizers")]
        splits = [step for step in splits if step["type"] != "WhitespaceSplit"]  # after which each word is a first one
        data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": splits}
    found = tokenizers.Tokenizer.from_str(json.dumps(data))
    found.add_special_tokens([AddedToken(MASK, lstrip=spaced, normalized=spaced)])
    return found


def steps(part: Any, inner: str) -> Iterator[dict[str, Any]]:
    """The steps of a normalizer or pre-tokenizer, with sequences flattened.

    Args:
        part: What ``tokenizer.json`` says of it.
        inner: The name of a sequence's steps.
    """
    if part is None:
        return
    nested = part.get(inner) if part.get("type") == "Sequence" else None
    yield from (step for below in nested for step in steps(below, inner)) if nested is not None else (part,)
