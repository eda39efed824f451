"""One number for many tasks: the averages of papers, by their own rules, of scores called ``<task>.<metric>``.

The rules differ, so that an average compares only with averages by the same one. They take official data sets alone:
a rebuilt one or an own split (``qnli_own``, ``mnli_own``, ``quora``) never stands in for its official one.
"""

from collections.abc import Iterable, Mapping

# The columns of BERT's Table 1 (Devlin et al. 2019): matched and mismatched MNLI count as two, WNLI is left out.
BERT = (
    "mnli.accuracy",
    "mnli.mismatched_accuracy",
    "qqp.f1",
    "qnli.accuracy",
    "sst2.accuracy",
    "cola.matthews",
    "stsb.spearman",
    "mrpc.f1",
    "rte.accuracy",
)

# Of GLUE (Wang et al. 2019, section 3): nine tasks; one with two measures, or two dev sets, counts by their mean.
GLUE = (
    ("cola.matthews",),
    ("sst2.accuracy",),
    ("mrpc.f1", "mrpc.accuracy"),
    ("stsb.pearson", "stsb.spearman"),
    ("qqp.f1", "qqp.accuracy"),
    ("mnli.accuracy", "mnli.mismatched_accuracy"),
    ("qnli.accuracy",),
    ("rte.accuracy",),
    ("wnli.accuracy",),
)


def mean(scores: Mapping[str, float], names: Iterable[str]) -> float | None:
    """The plain mean of the scores with these names; None where one of them is missing, or there is no name.

    >>> mean({"rte.accuracy": 0.5, "cola.matthews": 0.0}, ["rte.accuracy", "cola.matthews"])
    0.25
    """
    found = [scores.get(name) for name in names]
    return None if not found or None in found else sum(found) / len(found)


def bert_average(scores: Mapping[str, float]) -> float | None:
    """The average of BERT's Table 1; None where a score is missing.

    On dev sets here, on the test sets there; RTE, MRPC and QQP differ most between them.
    """
    return mean(scores, BERT)


def glue_average(scores: Mapping[str, float]) -> float | None:
    """The average of GLUE; None where a score is missing. On dev sets here, on the test sets there."""
    tasks = [mean(scores, names) for names in GLUE]
    return None if None in tasks else sum(tasks) / len(tasks)
