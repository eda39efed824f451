"""The data sets of probes, as tasks that no grid fine-tunes on: their dev examples are those that probes are tested on.

Labels of a test set are in files next to the official ones, named below. GLUE publishes none.
"""

import functools
from pathlib import Path

from lightning_modules.config import ConfigError, did_you_mean
from lightning_modules.tasks import TASKS
from lightning_modules.tasks.datasets.qnli import MadeAgain
from lightning_modules.tasks.pins import Pins
from lightning_modules.tasks.readers.files import Files
from lightning_modules.tasks.readers.own_split import Held
from lightning_modules.tasks.shapes.texts import Texts
from lightning_modules.tasks.task import Task

_files = functools.partial(Files, otherwise="Leave the probe out of evaluation.probes to do without it.")
_NLI = ("entailment", "neutral", "contradiction")

SETS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            name="sst2",
            title="SST-2: is the sentence of a film review positive?",
            source=TASKS["sst2"].source,
            shape=Texts(labels=("negative", "positive")),
            metrics=("accuracy",),
            rows=_files("SST-2", label="label", first="sentence", dev=("dev.tsv", "test_labelled.tsv")),
            licence=TASKS["sst2"].licence,
            own_split="tested on dev and test set together, 2,693 sentences",
        ),
        Task(
            name="imdb",
            title="IMDb: is the film review positive?",
            source=TASKS["imdb"].source,
            shape=Texts(labels=("negative", "positive")),
            metrics=("accuracy",),
            rows=_files("imdb", label="label", first="text", train="train.jsonl", dev="test.jsonl", within=""),
            licence=TASKS["imdb"].licence,
            own_split="tested on 10,000 reviews of the test set, of which only the last thirty words are read",
        ),
        Task(
            name="mrpc",
            title="MRPC: do the two sentences say the same?",
            source=TASKS["mrpc"].source,
            shape=Texts(labels=("not_equivalent", "equivalent"), pair=True),
            metrics=("accuracy",),
            rows=_files("MRPC", label="Quality", first="#1 String", second="#2 String", dev="test_labelled.tsv"),
            licence=TASKS["mrpc"].licence,
            own_split="tested on the test set, 1,725 pairs",
        ),
        Task(
            name="stsb",
            title="STS-B: how alike in meaning are the two sentences, from 0 to 5?",
            source=TASKS["stsb"].source,
            shape=Texts(pair=True),
            metrics=("spearman",),
            rows=_files(
                "STS-B", label=4, first=5, second=6, train="sts-train.csv", dev=("sts-dev.csv", "sts-test.csv")
            ),
            licence=TASKS["stsb"].licence,
            own_split="tested on dev and test set together, 2,879 pairs",
        ),
        Task(
            name="qnli",
            title="QNLI: does the sentence contain the answer to the question?",
            source=TASKS["qnli_own"].source,
            shape=Texts(labels=("entailment", "not_entailment"), pair=True),
            metrics=("accuracy",),
            rows=MadeAgain(),
            licence=TASKS["qnli_own"].licence,
            own_split="tested on the official dev set, 5,463 pairs, with training pairs rebuilt from SQuAD 1.1",
        ),
        Task(
            name="snli",
            title="SNLI: does the caption entail the sentence, contradict it, or neither?",
            source=TASKS["snli"].source,
            shape=Texts(labels=_NLI, pair=True),
            metrics=("accuracy",),
            rows=_files("snli", label=2, first=0, second=1, train="dev.txt", dev="test.txt", within=""),
            licence=TASKS["snli"].licence,
            own_split="trained on the dev set, 9,842 pairs, tested on the test set, 9,824",
        ),
        Task(
            name="mnli",
            title="MNLI: does the premise entail the hypothesis, contradict it, or neither?",
            source=TASKS["mnli"].source,
            shape=Texts(labels=_NLI, pair=True),
            metrics=("accuracy",),
            rows=Held(
                _files(
                    "mnli", label="gold_label", first="premise", second="hypothesis", identifier="index",
                    train="dev_matched.premise_hypothesis.tsv", within="",
                ),
                share=0.5,
            ),
            licence=TASKS["mnli"].licence,
            own_split="the matched dev set in two halves, by premise",
        ),
    )
}  # fmt: skip


def set_named(name: str) -> Task:
    """The data set of that name.

    Raises:
        ConfigError: For an unknown name, with the nearest valid one.
    """
    if name not in SETS:
        raise ConfigError([f"there is no data set of probes '{name}'.{did_you_mean(name, SETS)}"])
    return SETS[name]


PINS = Pins("probe", Path(__file__).with_name("pins.json"), set_named)
