"""GAP: gendered ambiguous pronouns of Wikipedia (Webster et al. 2018).

As usual, models train on its "development" file (2,000 texts) and are evaluated on its "validation" file (454); the
test file (2,000) is not used. The published systems were not trained on any of it.
"""

from collections.abc import Iterator

from lightning_modules.data.corpora.sources import Origin
from lightning_modules.tasks.reading.lines import Fault, made, table
from lightning_modules.tasks.shapes.coreference import Coreference, Mentioned
from lightning_modules.tasks.task import Split, Task

_ORIGIN = Origin("The data set GAP", {"train": ("gap/gap-development.tsv",), "dev": ("gap/gap-validation.tsv",)})
_MENTIONS = ("Pronoun", "A", "B")
_COLUMNS = ("ID", "Text", *_MENTIONS, *(f"{name}-offset" for name in _MENTIONS), "A-coref", "B-coref")
_LABELS = {("TRUE", "FALSE"): 0, ("FALSE", "TRUE"): 1, ("FALSE", "FALSE"): 2}


def rows(split: Split) -> Iterator[Mentioned]:
    """The texts of a split.

    Raises:
        ConfigError: When the data are missing (the message says how to get them) or a line is malformed, in
            particular when a mention is not at its offset.
    """
    for path in _ORIGIN.needed(split):
        yield from made(path, table(path, _COLUMNS), _mentioned)


def _mentioned(name: str, text: str, *rest: str) -> Mentioned:
    *mentions, a, b = rest
    answer = a.upper(), b.upper()
    if answer not in _LABELS:
        raise Fault(f"A-coref is {answer[0]}, B-coref {answer[1]}. Each must be TRUE or FALSE, at most one TRUE")
    pronoun, first, second = (
        _span(text, *fields) for fields in zip(_MENTIONS, mentions[:3], mentions[3:], strict=True)
    )
    return Mentioned(name, text, (pronoun, first, second), _LABELS[answer])


def _span(text: str, column: str, mention: str, offset: str) -> tuple[int, int]:
    if not offset.isdecimal():
        raise Fault(f"{column}-offset is {offset!r}, which is not a number from 0")
    start, end = int(offset), int(offset) + len(mention)
    if not mention.strip() or text[start:end] != mention:
        raise Fault(f"the text at {column}-offset {start} is {text[start:end]!r}, not {mention!r}")
    return start, end


ROWS = (
    Task(
        name="gap",
        title="GAP: which of two names does the pronoun refer to, if either?",
        source="Webster et al. 2018, Mind the GAP: A Balanced Corpus of Gendered Ambiguous Pronouns",
        shape=Coreference(),
        rows=rows,
        files=_ORIGIN,
        licence="Apache-2.0",
        official=(2000, 454),
        settings={"max_length": 256},
    ),
)
