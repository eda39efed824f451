"""Argument reasoning comprehension: which warrant leads from the reason to the claim (Habernal et al. 2018)?

Claim and reason are the first text, a warrant the second (Niven and Kao 2019, section 3). ``arct_warrants`` hides
claim and reason: a score above chance comes from cues in the warrants alone. ``arct_adversarial`` is scored on the
dev questions of Niven and Kao (2019, section 5), where each question occurs twice, the second time with its claim
negated and the other warrant right, so that the words of warrants are no cue; training questions occur a second time
with their warrants swapped. Claims were negated by hand, so this task needs the published files:
``train-adv-swapped.csv`` and ``dev-adv-negated.csv``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from lightning_modules.data.corpora.sources import Origin
from lightning_modules.tasks.reading.lines import Fault, made, table
from lightning_modules.tasks.shapes.choice import Choice, Question
from lightning_modules.tasks.task import Split, Task

_COLUMNS = ("warrant0", "warrant1", "correctLabelW0orW1", "reason", "claim")


@dataclass(frozen=True)
class Arguments:
    """A reader of tab-separated questions; call it with a split.

    Attributes:
        quoted: Whether fields that hold a quote character are quoted, as in the files of Niven and Kao.
    """

    origin: Origin
    quoted: bool = False

    def __call__(self, split: Split) -> Iterator[Question]:
        """The questions of a split.

        Raises:
            ConfigError: When the data are missing (the message says how to get them) or a line is malformed.
        """
        for path in self.origin.needed(split):
            yield from made(path, table(path, _COLUMNS, quoted=self.quoted), _question)


def _question(warrant0: str, warrant1: str, label: str, reason: str, claim: str) -> Question:
    if label not in ("0", "1"):
        raise Fault(f"the label {label!r} is neither 0 nor 1")
    return Question(f"{claim} {reason}", "", (warrant0, warrant1), int(label))


def _task(name: str, title: str, shape: Choice, rows: Arguments, source: str, own_split: str = "") -> Task:
    official = None if own_split else (1210, 316)
    return Task(name, title, source, shape, (), rows, "CC BY 4.0", own_split, official)


_OFFICIAL = Arguments(Origin("The data set ARCT", {"train": ("arct/train-full.txt",), "dev": ("arct/dev-full.txt",)}))
_ADVERSARIAL = Arguments(
    Origin(
        "The data set ARCT (adversarial)",
        {"train": ("arct/train-adv-swapped.csv",), "dev": ("arct/dev-adv-negated.csv",)},
    ),
    quoted=True,
)
_HABERNAL = "Habernal et al. 2018, The Argument Reasoning Comprehension Task"
_NIVEN = "Niven and Kao 2019, Probing Neural Network Comprehension of Natural Language Arguments"

ROWS = (
    _task("arct", "ARCT: which warrant leads from the reason to the claim?", Choice(2), _OFFICIAL, _HABERNAL),
    _task(
        "arct_warrants",
        "ARCT, warrants alone: can a model choose without reason and claim?",
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
        "the published adversarial copy, with unchecked sizes",
    ),
)
