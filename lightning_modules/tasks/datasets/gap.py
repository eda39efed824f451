"""GAP: gendered ambiguous pronouns of Wikipedia (Webster et al. 2018).

Its "development" file, 2,000 texts, trains, and its "validation" file, 454, is evaluated, as is usual; the 2,000 of the
test file are left alone. The published systems were trained on none of it.
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
        ConfigError: When the data are not at hand, naming the ways to get them, or when lines are not as expected:
            most of all when a mention is not where its offset says.
    """
    for path in _ORIGIN.needed(split):
        yield from made(path, table(path, _COLUMNS), _mentioned)


def _mentioned(name: str, text: str, *rest: str) -> Mentioned:
    *mentions, a, b = rest
    answer = a.upper(), b.upper()
    if answer not in _LABELS:
        raise Fault(f"A-coref is {answer[0]}, B-coref {answer[1]}; each is TRUE or FALSE, at most one TRUE")
    spans = tuple(_span(text, *found) for found in zip(_MENTIONS, mentions[:3], mentions[3:], strict=True))
    return Mentioned(name, text, spans, _LABELS[answer])


def _span(text: str, mention: str, said: str, offset: str) -> tuple[int, int]:
    if not offset.isdecimal():
        raise Fault(f"{mention}-offset is {offset!r}, which is no number from 0")
    start, end = int(offset), int(offset) + len(said)
    if not said.strip() or text[start:end] != said:
        raise Fault(f"at {mention}-offset {start} stands {text[start:end]!r}, not {said!r}")
    return start, end


ROWS = (
    Task(
        name="gap",
        title="GAP: which of the two names does the pronoun mean, if either?",
        source="Webster et al. 2018, Mind the GAP: A Balanced Corpus of Gendered Ambiguous Pronouns",
        shape=Coreference(),
        metrics=("f1", "masculine_f1", "feminine_f1", "accuracy"),
        rows=rows,
        files=_ORIGIN,
        licence="Apache-2.0",
        official=(2000, 454),
        settings={"max_length": 256},
    ),
)
