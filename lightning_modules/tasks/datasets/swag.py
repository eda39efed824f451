"""SWAG: what happens next in the scene (Zellers et al. 2018).

The context is the first sentence; an option is the beginning of the second sentence, which all endings share, plus an
ending. So sentence A of BERT's input is a caption and sentence B a whole continuation ("the given sentence" and
"a possible continuation", Devlin et al. 2019, section 4.4).
"""

from collections.abc import Iterator

from lightning_modules.data.corpora.sources import Hub, Origin
from lightning_modules.tasks.reading.lines import Fault, Line, made, table
from lightning_modules.tasks.shapes.choice import Choice, Question
from lightning_modules.tasks.task import Split, Task

_ORIGIN = Origin(
    "The data set SWAG", {"train": ("swag/train.csv",), "dev": ("swag/val.csv",)}, Hub("allenai/swag", "regular")
)
_COLUMNS = ("sent1", "sent2", "label", "ending0", "ending1", "ending2", "ending3")


def rows(split: Split) -> Iterator[Question]:
    """The questions of a split, from the official CSV files or the hub.

    Raises:
        ConfigError: When the data are missing (the message says how to get them) or a line is malformed.
    """
    paths = _ORIGIN.find(split)
    for path in paths:
        yield from made(path, table(path, _COLUMNS, delimiter=",", quoted=True), _question)
    for part in [] if paths else _ORIGIN.from_hub(split):
        lines = (Line(number, [str(row[name]) for name in _COLUMNS]) for number, row in enumerate(part, 1))
        yield from made(_ORIGIN.hub, lines, _question, "row")


def _question(first: str, second: str, label: str, *endings: str) -> Question:
    if label not in ("0", "1", "2", "3"):
        raise Fault(f"the label {label!r} is not one of 0 to 3")
    return Question(first, second, endings, int(label))


ROWS = (
    Task(
        name="swag",
        title="SWAG: which of four endings comes next in the scene?",
        source="Zellers et al. 2018, SWAG: A Large-Scale Adversarial Dataset for Grounded Commonsense Inference",
        shape=Choice(options=4),
        rows=rows,
        files=_ORIGIN,
        licence="MIT",
        official=(73546, 20006),
    ),
)
