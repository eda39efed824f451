"""Film reviews as text without labels: what a language model may read of the task ``imdb`` (Maas et al. 2011).

A review is as the task reads it, its line breaks (``<br />``) included; paragraphs end behind them, and at all that
ends a line for `str.splitlines`: the pinned text has such characters.
"""

from collections.abc import Iterator

from lightning_modules.data.corpora.json_lines import texts
from lightning_modules.data.corpora.sources import Origin
from lightning_modules.draws import fraction

HELD_OUT = 0.1  # of the training reviews: those that the task ``imdb`` holds out, and no language model reads
_HELD_OUT_UNLABELLED = 0.05
_BREAK = "<br /><br />"
_FORM = "with one JSON object a line, whose text is in 'text'"
_OTHERWISE = "Alternatives: 'wikipedia-mini' works offline, 'jsonl:<column>:<glob>' reads your own JSON lines."
_TRAIN, _TEST, _UNLABELLED = "imdb/train.jsonl", "imdb/test.jsonl", "imdb/unsup.jsonl"
TRAIN = Origin("The corpus 'imdb-train'", dict.fromkeys(("train", "heldout"), (_TRAIN,)), None, _OTHERWISE, _FORM)
UNLABELLED = Origin(
    "The corpus 'imdb-unlabelled'",
    dict.fromkeys(("train", "heldout"), (_UNLABELLED, _TRAIN, _TEST)),
    None,
    _OTHERWISE,
    _FORM,
)


def training(split: str) -> Iterator[list[str]]:
    """The paragraphs of each training review, labels unseen; the held-out ones are those of the task ``imdb``."""
    (path,) = TRAIN.needed(split)
    for text in texts(path, "text"):
        if (fraction(text) < HELD_OUT) == (split == "heldout"):
            yield _paragraphs(text)


def unlabelled(split: str) -> Iterator[list[str]]:
    """The paragraphs of each review without a label, but for those whose text is in the training or test reviews too.

    Of the 50,000 there are 371 of the former kind and 270 of the latter.
    """
    path, *labelled = UNLABELLED.needed(split)
    known = {text for file in labelled for text in texts(file, "text")}
    for text in texts(path, "text"):
        if text not in known and (fraction(text) < _HELD_OUT_UNLABELLED) == (split == "heldout"):
            yield _paragraphs(text)


def _paragraphs(text: str) -> list[str]:
    return [line for line in text.replace(_BREAK, f"{_BREAK}\n").splitlines() if line.strip()]
