"""XNLI: inference in languages that have no labels (Conneau et al. 2018, arXiv 1809.05053).

A model is fine-tuned on English pairs and tested in another language, as in section 5.1 of XLM (Conneau and Lample
2019). The English pairs of the paper are the 392,702 of MNLI's training set, which was not available. Here they are the
7,848 that ``mnli_own`` trains on, so that scores do not compare. Other languages are scored on the official test sets.
"""

from lightning_modules.tasks.datasets.glue import MNLI_OWN
from lightning_modules.tasks.readers.files import Files
from lightning_modules.tasks.readers.own_split import EachItsOwn
from lightning_modules.tasks.shapes.texts import Texts
from lightning_modules.tasks.task import Task

_NLI = ("entailment", "neutral", "contradiction")


def _in(language: str, spoken: str, dev: Files) -> Task:
    return Task(
        name=f"xnli_{language}",
        title=f"XNLI, {spoken}, after training in English: is the hypothesis entailed, contradicted, or neither?",
        source="Conneau et al. 2018, XNLI: Evaluating Cross-lingual Sentence Representations",
        shape=Texts(labels=_NLI, pair=True),
        rows=EachItsOwn(train=MNLI_OWN, dev=dev),
        licence="CC BY-NC 4.0, and the English pairs that of mnli_own",
        languages=("en", language),
        own_split=(
            "the English pairs of mnli_own to train, a fiftieth of the official ones, and the official "
            f"{spoken} test set"
        ),
    )


ROWS = (
    _in("de", "German", Files("xnli", label=2, first=0, second=1, dev="de.test.txt", within="")),
    _in("zh", "Chinese", Files("xnli", label="label", first="text_a", second="text_b", dev="zh.test.tsv", within="")),
)
