"""The tasks of GLUE (Wang et al. 2019) with one text or two; sizes are those of its Table 1, as released.

``sst2_dev_test`` and ``mrpc_dev_test`` are scored on the labelled test set as well, whose labels GLUE does not publish.
They have their own rows, so that what was trained on ``sst2`` and ``mrpc`` stays as it is. No scored example is trained
on: 15 phrases ("no .") of SST-2 and 13 pairs of MRPC, most of them turned round, are left out of training. A single
sentence of a pair may recur, as in the official splits: 279 of the 2,133 scored pairs have one of a training pair.
"""

from dataclasses import replace

from lightning_modules.tasks.readers.files import Files, Hub
from lightning_modules.tasks.readers.own_split import DevAndTest, EachItsOwn, Held, nearest
from lightning_modules.tasks.shapes.texts import Texts
from lightning_modules.tasks.task import Task

_GLUE = "nyu-mll/glue"
_NUMBERED = ("sentence1", "sentence2")
_DEV_AND_TEST = ("dev.tsv", "test_labelled.tsv")
_NLI = ("entailment", "neutral", "contradiction")


def _numbered(folder: str, config: str) -> Files:
    """A file with the headings index, sentence1, sentence2, label."""
    return Files(
        folder, label="label", first="sentence1", second="sentence2", identifier="index",
        hub=Hub(_GLUE, config, *_NUMBERED),
    )  # fmt: skip


MNLI_OWN = Held(
    Files(
        "mnli", label="gold_label", first="premise", second="hypothesis", identifier="index",
        train="dev_matched.premise_hypothesis.tsv", within="",
    ),
    share=0.2,
)  # fmt: skip

_SST2 = Task(
    name="sst2",
    title="SST-2: is the sentence of a film review positive?",
    source="Socher et al. 2013, Recursive Deep Models for Semantic Compositionality",
    shape=Texts(labels=("negative", "positive")),
    rows=Files("SST-2", label="label", first="sentence", hub=Hub(_GLUE, "sst2", "sentence")),
    licence="no licence stated (film reviews, for research)",
    official=(67349, 872),
)
_MRPC = Task(
    name="mrpc",
    title="MRPC: do the two sentences say the same?",
    source="Dolan and Brockett 2005, Automatically Constructing a Corpus of Sentential Paraphrases",
    shape=Texts(labels=("not_equivalent", "equivalent"), pair=True, symmetric=True),
    metrics=("accuracy", "f1"),  # accuracy in the ablations of BERT (Table 5), F1 in its Table 1
    # not from the hub, whose copy is tokenised ("does n't") and therefore another text
    rows=Files("MRPC", label="Quality", first="#1 String", second="#2 String"),
    licence="Microsoft Research licence: research only, not passed on",
    official=(3668, 408),
)
_MNLI = Task(
    name="mnli",
    title="MNLI: does the premise entail the hypothesis, contradict it, or neither?",
    source="Williams et al. 2018, A Broad-Coverage Challenge Corpus for Sentence Understanding through Inference",
    shape=Texts(labels=_NLI, pair=True),
    metrics=("accuracy", "mismatched_accuracy"),  # one model answers both dev sets; the first is the matched one
    rows=Files(
        "MNLI", label="gold_label", first="sentence1", second="sentence2", identifier="index",
        dev=("dev_matched.tsv", "dev_mismatched.tsv"), parts=("", "mismatched"),
        hub=Hub(_GLUE, "mnli", "premise", "hypothesis",
                splits={"dev": ("validation_matched", "validation_mismatched")}),
        otherwise=nearest("mnli_own", "which divides the matched dev set in two"),
    ),
    licence="OANC licence, CC BY 3.0 and CC BY-SA 3.0 by genre",
    official=(392702, 9815 + 9832),
)  # fmt: skip
ROWS = (
    Task(
        name="cola",
        title="CoLA: is the sentence acceptable English?",
        source="Warstadt et al. 2019, Neural Network Acceptability Judgments",
        shape=Texts(labels=("unacceptable", "acceptable")),
        metrics=("matthews", "accuracy"),
        rows=Files("CoLA", label=1, first=3, hub=Hub(_GLUE, "cola", "sentence")),
        licence="no licence stated (sentences quoted from linguistics books, for research)",
        official=(8551, 1043),
    ),
    _SST2,
    replace(
        _SST2,
        name="sst2_dev_test",
        title="SST-2, dev and test set together: is the sentence of a film review positive?",
        rows=DevAndTest(Files("SST-2", label="label", first="sentence", dev=_DEV_AND_TEST)),
        own_split="scored on the 872 dev and 1,821 test sentences, with 15 training phrases that have their words "
                  "left out",
        official=None,
    ),
    _MRPC,
    replace(
        _MRPC,
        name="mrpc_dev_test",
        title="MRPC, dev and test set together: do the two sentences say the same?",
        rows=DevAndTest(Files("MRPC", label="Quality", first="#1 String", second="#2 String", dev=_DEV_AND_TEST)),
        own_split="scored on the 408 dev and 1,725 test pairs, with 13 training pairs that have their words left out",
        official=None,
    ),
    Task(
        name="stsb",
        title="STS-B: how alike in meaning are the two sentences, from 0 to 5?",
        source="Cer et al. 2017, SemEval-2017 Task 1",
        shape=Texts(pair=True, symmetric=True),
        rows=Files(
            "STS-B", label=4, first=5, second=6, train="sts-train.csv", dev="sts-dev.csv",
            hub=Hub(_GLUE, "stsb", *_NUMBERED),
        ),
        licence="CC BY-SA 4.0, with other terms for some of its sources",
        official=(5749, 1500),
    ),
    Task(
        name="qqp",
        title="QQP: do the two questions ask the same?",
        source="Iyer et al. 2017, First Quora Dataset Release: Question Pairs",
        shape=Texts(labels=("not_duplicate", "duplicate"), pair=True, symmetric=True),
        metrics=("f1", "accuracy"),
        # a few questions of the released training file contain a line break, which splits their line
        rows=Files(
            "QQP", label="is_duplicate", first="question1", second="question2", identifier="id", broken=16,
            hub=Hub(_GLUE, "qqp", "question1", "question2"),
            otherwise=nearest("quora", "which has other pairs of the same release"),
        ),
        licence="Quora's terms of service: not commercial",
        official=(363846, 40430),
    ),
    Task(
        name="quora",
        title="Quora pairs: do the two questions ask the same?",
        source="part of Iyer et al. 2017, First Quora Dataset Release, and of its split by Wang et al. 2017",
        shape=Texts(labels=("not_duplicate", "duplicate"), pair=True, symmetric=True),
        metrics=("f1", "accuracy"),
        rows=EachItsOwn(
            train=Files(
                "quora", label="is_duplicate", first="question1", second="question2", train="extra_untokenised.tsv",
                within="", identifier="id",
            ),
            dev=Files("quora", label=2, first=0, second=1, dev="dev.txt", within=""),
        ),
        licence="Quora's terms of service: not commercial",
        own_split=(
            "18,840 of the released pairs to train, the 10,000 dev pairs of Wang et al. 2017, tokenised, to "
            "evaluate. Their test pairs are not used. Half of these are duplicates, a third of QQP"
        ),
    ),
    _MNLI,
    replace(
        _MNLI,
        name="mnli_own",
        title="MNLI, own split of the matched dev set: is the hypothesis entailed, contradicted, or neither?",
        metrics=("accuracy",),
        rows=MNLI_OWN,
        languages=("en", "en"),
        own_split="four fifths of the premises of the matched dev set to train, a fiftieth of the official size",
        official=None,
    ),
    Task(
        name="rte",
        title="RTE: does the first text entail the second?",
        source="Dagan et al. 2006 to Bentivogli et al. 2009, as joined by Wang et al. 2019 (GLUE)",
        shape=Texts(labels=("entailment", "not_entailment"), pair=True),
        rows=_numbered("RTE", "rte"),
        licence="no licence stated (news and Wikipedia text, for research)",
        official=(2490, 277),
    ),
    Task(
        name="wnli",
        # The dev set is adversarial: its sentences occur in training with the other label, so a model that memorises
        # scores below the majority class, 56.3 %. BERT leaves the task out; RoBERTa recasts it.
        title="WNLI (adversarial dev set: compare with the majority class): does the sentence follow when its "
        "pronoun is replaced?",
        source="Levesque et al. 2012, The Winograd Schema Challenge, as recast by Wang et al. 2019 (GLUE)",
        shape=Texts(labels=("not_entailment", "entailment"), pair=True),
        rows=_numbered("WNLI", "wnli"),
        licence="CC BY 4.0",
        official=(635, 71),
    ),
)  # fmt: skip
