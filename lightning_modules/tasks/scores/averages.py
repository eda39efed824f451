"""Averages over tasks by the rules of their papers, of scores called ``<task>.<metric>``.

The rules differ, so an average compares only with averages by the same rule. They use official data sets only: a
rebuilt one or an own split (``qnli_own``, ``mnli_own``, ``quora``) never replaces its official one.
"""

from collections.abc import Iterable, Mapping, Sequence

# The columns of BERT's Table 1 (Devlin et al. 2019): matched and mismatched MNLI count separately, WNLI is left out.
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

# GLUE (Wang et al. 2019, section 3): nine tasks; two metrics or dev sets of a task are averaged first.
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
    """The mean of the scores with these names; None if one is missing or there are no names.

    >>> mean({"rte.accuracy": 0.5, "cola.matthews": 0.0}, ["rte.accuracy", "cola.matthews"])
    0.25
    """
    return _mean([scores.get(name) for name in names])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def bert_average(scores: Mapping[str, float]) -> float | None:
    """The average of BERT's Table 1; None if a score is missing.

    It uses dev sets, the paper test sets; RTE, MRPC and QQP differ most between the two.
    """
    return mean(scores, BERT)


def glue_average(scores: Mapping[str, float]) -> float | None:
    """The average of GLUE; None if a score is missing. It uses dev sets, the paper test sets."""
    return _mean([mean(scores, names) for names in GLUE])
