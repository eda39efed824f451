"""BLEU and chrF of translations, as sacrebleu computes them, and what each sentence adds to them.

Scores are of detokenised text with its case, from 0 to 100 (Papineni et al. 2002; Popović 2015; Post 2018). They are
computed from counts that are summed over sentences, so any choice of sentences has a score: a part of a text, or a draw
of a bootstrap (Koehn 2004).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightning_modules.config import ConfigError

BY_LENGTH = ("short", "middle", "long")  # thirds of the sources
_ORDERS = 4  # of the n-grams of BLEU
_BETA = 2  # how much more recall counts in chrF
_STEP = 1e-4  # relative, of a derivative


@dataclass(frozen=True, eq=False)
class Counts:
    """What translations share with their references, sentence by sentence.

    Attributes:
        bleu: Words of the translation and of the reference, matching n-grams of 1 to 4 words, and n-grams of the
            translation ``[n 10]``.
        chrf: For 1 to 6 characters the n-grams of the translation, of the reference, and those that match ``[n 18]``.
        signatures: Score -> the signature of sacrebleu, which says how it counts.
    """

    bleu: np.ndarray
    chrf: np.ndarray
    signatures: dict[str, str]


def counts(translations: Sequence[str], references: Sequence[str]) -> Counts:
    """Counts translations, with one reference each.

    Raises:
        ConfigError: For another number of references, and for none.
    """
    if len(translations) != len(references) or not references:
        text = f"{len(translations)} translations cannot be scored by {len(references)} references"
        raise ConfigError([f"{text}. Give one reference for each translation, and at least one."])
    from sacrebleu.metrics.bleu import BLEU  # a third of a second to import, which planning does without
    from sacrebleu.metrics.chrf import CHRF

    found, signatures = {}, {}
    for name, metric in {"bleu": BLEU(), "chrf": CHRF()}.items():
        metric.corpus_score(translations, [references])  # it has no signature before
        signatures[name] = str(metric.get_signature())
        found[name] = np.array(metric._extract_corpus_statistics(translations, [references]))  # no public name
    return Counts(found["bleu"], found["chrf"], signatures)


def bleu(counts: np.ndarray) -> Any:
    """BLEU of texts with these counts, summed over their sentences ``[... 10]`` -> ``[...]``.

    An order without any match counts as half a match, the next one as a quarter (sacrebleu's ``smooth:exp``). BLEU is 0
    without any matching word, and where no translation has four words.
    """
    sizes, wanted = counts[..., 0], counts[..., 1]
    right, made = counts[..., 2 : 2 + _ORDERS], counts[..., 2 + _ORDERS :]
    missed = right == 0
    smoothed = np.where(missed, 0.5 ** np.cumsum(missed, axis=-1), right)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.log(smoothed / made).mean(axis=-1)
        score = 100 * np.exp(mean + np.minimum(0, 1 - wanted / sizes))
    return np.where(missed.all(axis=-1) | (made == 0).any(axis=-1), 0.0, score)


def paired_bootstrap(ours: np.ndarray, theirs: np.ndarray, draws: int = 1000) -> np.ndarray:
    """BLEU of one system minus that of another in each draw of sentences, the same for both (Koehn 2004) ``[draws]``.

    Args:
        ours: Counts of the same sentences ``[runs n 10]``, whose BLEU is averaged over runs.
        theirs: The same of the other system.
        draws: How often as many sentences are drawn with replacement.
    """
    size = ours.shape[1]
    often = np.random.default_rng(0).multinomial(size, np.full(size, 1 / size), size=draws)
    means = [np.mean([bleu(often @ run) for run in runs], axis=0) for runs in (ours, theirs)]
    return means[0] - means[1]


def chrf(counts: np.ndarray) -> Any:
    """The chrF of texts with these counts, summed over their sentences ``[... 18]`` -> ``[...]``.

    Precision and recall are means over the orders that both sides have.
    """
    made, wanted, right = (counts[..., n::3] for n in range(3))
    used = (made > 0) & (wanted > 0)
    orders = np.maximum(1, used.sum(axis=-1))
    precision, recall = (np.where(used, right / np.maximum(1e-9, by), 0).sum(axis=-1) / orders for by in (made, wanted))
    both = _BETA**2 * precision + recall
    return np.where(both > 0, 100 * (1 + _BETA**2) * precision * recall / np.where(both > 0, both, 1), 0.0)


def influences(score: Callable[[np.ndarray], Any], counts: np.ndarray) -> np.ndarray:
    """What each sentence adds to a score of them all: the values vary as it does over new sentences ``[n]``.

    They are the score plus its influence function, as in `scores.by_example`. The score is their mean.

    Args:
        score: Of counts that are summed over sentences, and as large for a text that is repeated.
        counts: Of each sentence ``[n k]``.
    """
    total = counts.sum(axis=0).astype(float)
    steps = np.diag(total * _STEP)  # what never occurs stays so
    slopes = (score(total + steps) - score(total - steps)) / np.maximum(2 * steps.diagonal(), _STEP)
    around = counts @ slopes
    return score(total) + len(counts) * (around - around.mean())
