"""Every task, a row each. To add a data set of a known shape, add its row and pin it."""

from ..config import ConfigError, did_you_mean
from . import bigram_shift, qnli, squad
from .files import Files, Hub
from .task import Task
from .texts import Texts

_GLUE = "nyu-mll/glue"
_NUMBERED = ("sentence1", "sentence2")

_ROWS = (
    Task(
        name="cola",
        title="CoLA: is the sentence acceptable English?",
        source="Warstadt et al. 2019, Neural Network Acceptability Judgments",
        shape=Texts(labels=("unacceptable", "acceptable")),
        metrics=("matthews", "accuracy"),
        rows=Files("CoLA", label=1, first=3, hub=Hub(_GLUE, "cola", "sentence")),
    ),
    Task(
        name="sst2",
        title="SST-2: is the sentence of a film review positive?",
        source="Socher et al. 2013, Recursive Deep Models for Semantic Compositionality",
        shape=Texts(labels=("negative", "positive")),
        metrics=("accuracy",),
        rows=Files("SST-2", label="label", first="sentence", hub=Hub(_GLUE, "sst2", "sentence")),
    ),
    Task(
        name="mrpc",
        title="MRPC: do the two sentences say the same?",
        source="Dolan and Brockett 2005, Automatically Constructing a Corpus of Sentential Paraphrases",
        shape=Texts(labels=("not_equivalent", "equivalent"), pair=True),
        metrics=("accuracy", "f1"),  # accuracy in the ablations of BERT (Table 5), F1 in its Table 1
        # not from the hub, whose copy is split into tokens ("does n't") and so other text for a model
        rows=Files("MRPC", label="Quality", first="#1 String", second="#2 String"),
    ),
    Task(
        name="stsb",
        title="STS-B: how alike in meaning are the two sentences, from 0 to 5?",
        source="Cer et al. 2017, SemEval-2017 Task 1",
        shape=Texts(pair=True),
        metrics=("spearman", "pearson"),
        rows=Files(
            "STS-B", label=4, first=5, second=6, train="sts-train.csv", dev="sts-dev.csv",
            hub=Hub(_GLUE, "stsb", *_NUMBERED),
        ),
    ),
    Task(
        name="rte",
        title="RTE: does the first text entail the second?",
        source="Dagan et al. 2006 to Bentivogli et al. 2009, as joined by Wang et al. 2019 (GLUE)",
        shape=Texts(labels=("entailment", "not_entailment"), pair=True),
        metrics=("accuracy",),
        rows=Files("RTE", label="label", first=_NUMBERED[0], second=_NUMBERED[1], hub=Hub(_GLUE, "rte", *_NUMBERED)),
    ),
    Task(
        name="wnli",
        title="WNLI: does the sentence follow when its pronoun is replaced?",
        source="Levesque et al. 2012, The Winograd Schema Challenge, as recast by Wang et al. 2019 (GLUE)",
        shape=Texts(labels=("not_entailment", "entailment"), pair=True),
        metrics=("accuracy",),
        rows=Files("WNLI", label="label", first=_NUMBERED[0], second=_NUMBERED[1], hub=Hub(_GLUE, "wnli", *_NUMBERED)),
    ),
    Task(
        name="bigram_shift",
        title="Bigram shift: are two neighbouring words of the sentence swapped?",
        source="after Conneau et al. 2018, What you can cram into a single vector; made from wikipedia-mini",
        shape=Texts(labels=("original", "swapped")),
        metrics=("accuracy",),
        rows=bigram_shift.rows,
    ),
    *squad.ROWS,
    *qnli.ROWS,
)  # fmt: skip

TASKS: dict[str, Task] = {row.name: row for row in _ROWS}


def task_named(name: str) -> Task:
    """The task of that name.

    Raises:
        ConfigError: For an unknown name, with the nearest one.
    """
    if name not in TASKS:
        raise ConfigError([f"there is no task '{name}'.{did_you_mean(name, TASKS)}"])
    return TASKS[name]
