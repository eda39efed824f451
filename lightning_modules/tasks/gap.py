"""GAP: gendered ambiguous pronouns of Wikipedia (Webster et al. 2018).

Its "development" file, 2,000 texts, trains, and its "validation" file, 454, is evaluated, as is usual; the 2,000 of the
test file are left alone. The published systems were trained on none of it.
"""

from collections.abc import Iterator, Mapping

from ..config import ConfigError
from .coreference import Coreference, Mentioned
from .sources import Source, fields
from .task import Split, Task

_SOURCE = Source("GAP", "gap", {"train": ("gap-development.tsv",), "dev": ("gap-validation.tsv",)})
_MENTIONS = ("Pronoun", "A", "B")
_COLUMNS = ("ID", "Text", *_MENTIONS, *(f"{name}-offset" for name in _MENTIONS), "A-coref", "B-coref")
_LABELS = {("TRUE", "FALSE"): 0, ("FALSE", "TRUE"): 1, ("FALSE", "FALSE"): 2}


def rows(split: Split) -> Iterator[Mentioned]:
    """The texts of a split.

    Raises:
        ConfigError: When the data are not at hand, naming the ways to get them, or when a line is not as expected:
            most of all when a mention is not where its offset says.
    """
    for path in _SOURCE.paths(split):
        for where, row in fields(path, _COLUMNS, "text"):
            answer = row["A-coref"].upper(), row["B-coref"].upper()
            if answer not in _LABELS:
                raise ConfigError(
                    [f"{where}: A-coref is {answer[0]}, B-coref {answer[1]}; each is TRUE or FALSE, at most one TRUE."]
                )
            spans = tuple(_span(where, row, mention) for mention in _MENTIONS)
            yield Mentioned(row["ID"], row["Text"], spans, _LABELS[answer])


def _span(where: str, row: Mapping[str, str], mention: str) -> tuple[int, int]:
    text, said, offset = row["Text"], row[mention], row[f"{mention}-offset"]
    if not offset.isdecimal():
        raise ConfigError([f"{where}: {mention}-offset is {offset!r}, which is no number from 0."])
    start, end = int(offset), int(offset) + len(said)
    if not said.strip() or text[start:end] != said:
        raise ConfigError([f"{where}: at {mention}-offset {start} stands {text[start:end]!r}, not {said!r}."])
    return start, end


ROWS = (
    Task(
        name="gap",
        title="GAP: which of the two names does the pronoun mean, if either?",
        source="Webster et al. 2018, Mind the GAP: A Balanced Corpus of Gendered Ambiguous Pronouns",
        shape=Coreference(),
        metrics=("f1", "masculine_f1", "feminine_f1", "accuracy"),
        rows=rows,
        files=_SOURCE.origin,
        licence="Apache-2.0",
        official=(2000, 454),
        settings={"max_length": 256},
    ),
)
