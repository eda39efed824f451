"""Texts whose only labels are a teacher's answers: which there are, which a fine-tuning sees, and how many."""

from lightning_modules import cached
from lightning_modules.config import did_you_mean, identity
from lightning_modules.data import pins as of_corpora
from lightning_modules.data.corpora.registry import CORPORA, corpus
from lightning_modules.draws import permutation
from lightning_modules.places import cache
from lightning_modules.problems import ConfigError
from lightning_modules.tasks import pins, validation
from lightning_modules.tasks.settings import FineTuning
from lightning_modules.tasks.shapes.shape import Examples
from lightning_modules.tasks.shapes.texts import Texts
from lightning_modules.tasks.table import TASKS

_RECIPE = 1  # raise when the same corpus would give different texts
_WORDS = 512  # of a document that are kept, at most


def fingerprint(source: str) -> str:
    """The fingerprint of the texts of a task or of a corpus."""
    return pins.fingerprint(source) if source in TASKS else of_corpora.fingerprint(source)


def problem(task: str, settings: FineTuning) -> str:
    """Why the texts without labels do not fit a task, worded to follow their knob; empty where nothing is wrong."""
    source = settings.taught and settings.taught.unlabelled
    if not source:
        return ""
    shape, other = TASKS[task].shape, TASKS.get(source)
    if not isinstance(shape, Texts):
        return f"{source} has whole texts, and {task} is answered from single positions or options: leave it out"
    if source == task:
        return "" if settings.train_examples else f"{task} has only texts with labels: set finetuning.train_examples"
    if other is not None:
        if isinstance(other.shape, Texts) and other.shape.pair == shape.pair:
            known = TASKS[task].languages[:1], other.languages[:1]
            return "" if known[0] == known[1] else f"{source} has texts in another language than {task}"
        return f"{source} has no {'pairs' if shape.pair else 'single texts'}, which {task} reads: choose another task"
    if shape.pair:
        return f"{source} is no task, and {task} reads pairs of texts: choose a task of pairs"
    try:
        corpus(source)
    except ConfigError:
        return f"there is no task or corpus {source!r}.{did_you_mean(source, [*TASKS, *CORPORA])}"
    return ""


def available(task: str, settings: FineTuning) -> tuple[int, float]:
    """How many such texts there are, at most, and how many words one has on average; opens no pinned data."""
    taught = settings.taught
    if taught is None or taught.unlabelled is None:
        return 0, 0.0
    source, most = taught.unlabelled, taught.unlabelled_examples
    if source in TASKS:
        part = pins.expected(source)["train"]
        count, words = part.examples, part.words
    else:
        part = of_corpora.expected(source)["train"]
        count, words = part.documents, part.words
    each = words / max(1, count)
    count -= min(count, settings.train_examples or 0) if source == task else 0
    return min(count, most or count), each


def drawn(task: str, settings: FineTuning, seed: int, dev: Examples) -> list[tuple[str, ...]]:
    """The texts without labels that a fine-tuning sees, a text or two each, in the order of their draw.

    Those with a text of the examples that are scored are left out: a teacher's answers to these would be hints.

    Raises:
        ConfigError: When the texts are missing.
        DataMismatch: When they are not the pinned ones.
    """
    taught = settings.taught
    if taught is None or taught.unlabelled is None:
        return []
    source = taught.unlabelled
    if source == task:  # the same draw as that of the examples with labels
        every = validation.examples(source, "train", settings.validation_share).about()
        order = permutation(seed, "few examples", 0, len(every))[settings.train_examples :]
    else:
        every = validation.examples(source, "train", None).about() if source in TASKS else _documents(source)
        order = permutation(seed, "unlabelled", 0, len(every))
    scored = {text for texts in dev.about() for text in texts}
    kept = [every[n] for n in order.tolist() if not scored.intersection(every[n])]
    return kept[: taught.unlabelled_examples]


def _documents(name: str) -> list[tuple[str, ...]]:
    """The beginning of each training document of a corpus, checked against its pin and cached."""

    def read() -> list[str]:
        meter = of_corpora.Meter()
        texts = [" ".join(" ".join(document).split()[:_WORDS]) for document in meter(corpus(name).documents("train"))]
        of_corpora.check(name, "train", meter.part)
        return texts

    path = cache() / "unlabelled" / f"{identity([name, of_corpora.fingerprint(name), _WORDS, _RECIPE])[:24]}.json"
    return [(text,) for text in cached.kept_json(path, read)]
