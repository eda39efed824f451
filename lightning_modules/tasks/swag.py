"""SWAG: what happens next in the scene (Zellers et al. 2018).

The first sentence is the given one; the second sentence is its beginning, which all endings share, and an ending. So
sentence A of BERT's input is a caption and sentence B a whole continuation ("the given sentence" and "a possible
continuation", Devlin et al. 2019, section 4.4).
"""

from collections.abc import Iterator, Mapping

from ..config import ConfigError
from .choice import Choice, Question
from .sources import Source, fields
from .task import Split, Task

_SOURCE = Source("SWAG", "swag", {"train": ("train.csv",), "dev": ("val.csv",)}, hub=("allenai/swag", "regular"))
_ENDINGS = ("ending0", "ending1", "ending2", "ending3")
_COLUMNS = ("sent1", "sent2", *_ENDINGS, "label")


def rows(split: Split) -> Iterator[Question]:
    """The questions of a split, from the official CSV files or the hub.

    Raises:
        ConfigError: When the data are not at hand, naming the ways to get them, or when a line is not as expected.
    """
    paths = _SOURCE.paths(split)
    for path in paths:
        for where, row in fields(path, _COLUMNS, "question", delimiter=",", quoted=True):
            if row["label"] not in ("0", "1", "2", "3"):
                raise ConfigError([f"{where}: the label {row['label']!r} is none of 0 to 3."])
            yield _question(row)
    for row in [] if paths else _SOURCE.on_hub(split):
        yield _question(row)


def _question(row: Mapping[str, str | int]) -> Question:
    return Question(row["sent1"], row["sent2"], tuple(row[name] for name in _ENDINGS), int(row["label"]))


ROWS = (
    Task(
        name="swag",
        title="SWAG: which of four endings comes next in the scene?",
        source="Zellers et al. 2018, SWAG: A Large-Scale Adversarial Dataset for Grounded Commonsense Inference",
        shape=Choice(options=4),
        metrics=("accuracy",),
        rows=rows,
        files=_SOURCE.origin,
        licence="MIT",
        official=(73546, 20006),
    ),
)
