"""The data sets of probes, as tasks that no grid fine-tunes on: their dev examples are those that probes are tested on.

Labels of a test set are in files next to the official ones, named below. GLUE publishes none.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning_modules.problems import entry_of
from lightning_modules.tasks import TASKS
from lightning_modules.tasks.datasets.qnli import MadeAgain
from lightning_modules.tasks.pins import Pins, measured
from lightning_modules.tasks.readers.files import Files
from lightning_modules.tasks.readers.own_split import Held
from lightning_modules.tasks.shapes.texts import Texts
from lightning_modules.tasks.task import Split, Task

_files = functools.partial(Files, otherwise="Leave the probe out of evaluation.probes to do without it.")


def _probed(name: str, rows: Callable[[Split], Iterator[Any]], own_split: str) -> Task:
    """A task on other parts of its data, with its main metric alone."""
    task = TASKS[name]
    assert isinstance(task.shape, Texts)
    shape = replace(task.shape, symmetric=False)
    return replace(task, shape=shape, metrics=task.metrics[:1], rows=rows, official=None, own_split=own_split)


SETS: dict[str, Task] = {
    task.name: task
    for task in (
        _probed(
            "sst2", _files("SST-2", label="label", first="sentence", dev=("dev.tsv", "test_labelled.tsv")),
            "tested on dev and test set together, 2,693 sentences",
        ),
        _probed(
            "imdb", _files("imdb", label="label", first="text", train="train.jsonl", dev="test.jsonl", within=""),
            "tested on 10,000 reviews of the test set, of which only the last thirty words are read",
        ),
        _probed(
            "mrpc", _files("MRPC", label="Quality", first="#1 String", second="#2 String", dev="test_labelled.tsv"),
            "tested on the test set, 1,725 pairs",
        ),
        _probed(
            "stsb",
            _files("STS-B", label=4, first=5, second=6, train="sts-train.csv", dev=("sts-dev.csv", "sts-test.csv")),
            "tested on dev and test set together, 2,879 pairs",
        ),
        _probed(
            "qnli", MadeAgain(),
            "tested on the official dev set, 5,463 pairs, with training pairs rebuilt from SQuAD 1.1",
        ),
        _probed(
            "snli", _files("snli", label=2, first=0, second=1, train="dev.txt", dev="test.txt", within=""),
            "trained on the dev set, 9,842 pairs, tested on the test set, 9,824",
        ),
        _probed(
            "mnli",
            Held(
                _files(
                    "mnli", label="gold_label", first="premise", second="hypothesis", identifier="index",
                    train="dev_matched.premise_hypothesis.tsv", within="",
                ),
                share=0.5,
            ),
            "the matched dev set in two halves, by premise",
        ),
    )
}  # fmt: skip


def set_named(name: str) -> Task:
    """The data set of that name.

    Raises:
        ConfigError: For an unknown name, with the nearest valid one.
    """
    return entry_of(SETS, name, "data set of probes")


PINS = Pins("probe", Path(__file__).with_name("pins.json"), set_named, measured)
