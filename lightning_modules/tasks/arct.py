"""Argument reasoning comprehension: which warrant leads from the reason to the claim (Habernal et al. 2018)?

Claim and reason are the first text, a warrant the second (Niven and Kao 2019, section 3). ``arct_warrants`` hides
claim and reason: what it scores above chance is given away by the warrants alone. ``arct_adversarial`` is scored on
the dev questions of Niven and Kao (2019, section 5), each of them there a second time with its claim negated and the
other warrant right, so that words of warrants tell nothing; its training questions are there a second time with the
warrants swapped. Claims were negated by hand, so the published files are needed: ``train-adv-swapped.csv`` and
``dev-adv-negated.csv``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..config import ConfigError
from ..data.sources import Origin
from .choice import Choice, Question
from .sources import Source, fields
from .task import Split, Task

_COLUMNS = ("warrant0", "warrant1", "correctLabelW0orW1", "reason", "claim")


@dataclass(frozen=True)
class Arguments:
    """Tab-separated questions, read by calling with a split.

    Attributes:
        source: Where the files are.
        quoted: Whether fields that hold a quote character are quoted, as in the files of Niven and Kao.
    """

    source: Source
    quoted: bool = False

    @property
    def origin(self) -> Origin:
        """Where the files are."""
        return self.source.origin

    def __call__(self, split: Split) -> Iterator[Question]:
        """The questions of a split.

        Raises:
            ConfigError: When the data are not at hand, naming the ways to get them, or when a line is not as expected.
        """
        for path in self.source.paths(split):
            for where, row in fields(path, _COLUMNS, "question", quoted=self.quoted):
                *warrants, label, reason, claim = row.values()
                if label not in ("0", "1"):
                    raise ConfigError([f"{where}: the label {label!r} is neither 0 nor 1."])
                yield Question(f"{claim} {reason}", "", tuple(warrants), int(label))


def _task(name: str, title: str, shape: Choice, rows: Arguments, source: str, own_split: str = "") -> Task:
    official = None if own_split else (1210, 316)
    return Task(name, title, source, shape, ("accuracy",), rows, "CC BY 4.0", own_split, official)


_OFFICIAL = Arguments(Source("ARCT", "arct", {"train": ("train-full.txt",), "dev": ("dev-full.txt",)}))
_ADVERSARIAL = Arguments(
    Source("ARCT (adversarial)", "arct", {"train": ("train-adv-swapped.csv",), "dev": ("dev-adv-negated.csv",)}),
    quoted=True,
)
_HABERNAL = "Habernal et al. 2018, The Argument Reasoning Comprehension Task"
_NIVEN = "Niven and Kao 2019, Probing Neural Network Comprehension of Natural Language Arguments"

ROWS = (
    _task("arct", "ARCT: which warrant leads from the reason to the claim?", Choice(2), _OFFICIAL, _HABERNAL),
    _task(
        "arct_warrants",
        "ARCT, warrants alone: can the right one be told without reason and claim?",
        Choice(2, context=False),
        _OFFICIAL,
        f"{_HABERNAL}; {_NIVEN}",
    ),
    _task(
        "arct_adversarial",
        "ARCT, adversarial: which warrant, when each is right for one claim and wrong for another?",
        Choice(2),
        _ADVERSARIAL,
        _NIVEN,
        "the published adversarial copy, whose sizes were not at hand to check",
    ),
)
