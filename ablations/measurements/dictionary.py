"""Every metric with its unit, meaning and source. `docs/records.md` explains the parts of a name."""

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache

from ablations.measurements.derived import DERIVED
from ablations.measurements.layer_metrics import LAYER_METRICS
from ablations.measurements.probe_metrics import CONTROLS, GAIN, MEAN_GAIN, OF_RETRIEVAL, PREFIX, probe_of
from ablations.schema.metrics import COST, COSTS, METRICS
from lightning_modules.probing.table import PROBES
from lightning_modules.tasks import TASKS
from lightning_modules.zero_shot.perplexity import RunningText
from lightning_modules.zero_shot.table import ZERO_SHOT
from lightning_modules.zero_shot.task import SAME_TOKENS

_UNITS = {  # unit -> endings of names; others are shares
    "nats": ("loss",),
    "nats/byte": ("nats_per_byte",),
    "perplexity": ("perplexity",),
    "words": (".words",),
    "sentences": (".translations",),
    "times": (".translation_length", "speed_up"),
    "0 or 1": ("plateau", "all_equal"),
    "parameters": ("parameters",),
    "tokens/s": ("tokens_per_second",),
    "tokens": ("tokens",),
    "FLOP": ("flops",),
    "s": ("seconds",),
    "pairs": ("_pairs",),
    "degrees": ("angle", "angle_change"),
    "L2 norm": ("distance", "distance_change"),
    "correlation": ("matthews", "spearman", "pearson"),
    "mean score": ("average", "mean"),
}
_BEGINNINGS = (("heldout.bleu", "points"), ("heldout.chrf", "points"))  # which count before all endings
_PLACEHOLDER = re.compile(r"<\w+>")


@dataclass(frozen=True)
class Meaning:
    """One line of the dictionary.

    Attributes:
        pattern: A metric's name. In it ``<task>``, ``<probe>``, ``<method>``, ``<objective>`` and ``<language>``
            represent one word each.
        unit: The unit of its values.
        text: Its meaning.
        source: The fields of a record that hold it, or how it is derived from them.
    """

    pattern: str
    unit: str
    text: str
    source: str

    @property
    def parts(self) -> re.Pattern[str]:
        """A regular expression for the names that the pattern matches."""
        return re.compile(r"\w+".join(map(re.escape, _PLACEHOLDER.split(self.pattern))))


@cache
def dictionary() -> tuple[Meaning, ...]:
    """Every metric, in the order in which a name is looked up: exact names before patterns."""
    exact = [_meaning(name, text, _source(name)) for name, text in METRICS.items()]
    costs = [_meaning(name, text, "`cost`") for name, text in COSTS.items()]
    more = "seconds of training the word vectors of a fine-tuning"
    costs.append(_meaning(f"{COST}word_vectors_seconds", more, "`cost`"))
    objective = "mean training loss of an objective since the last measurement"
    spoken = "positions of a language that were read in training, of those without padding"
    costs.append(Meaning(f"{COST}tokens.<language>", "tokens", spoken, "`cost`"))
    trained = [Meaning("train.<objective>", "nats", objective, "`metrics` of a pretraining")]
    probing = "seconds of reading the states by probes, not part of the seconds of training"
    costs.append(_meaning(f"{COST}probes_seconds", probing, "`cost`"))
    translating = (
        "seconds of translating held-out sources at the end and of scoring, not part of the seconds of training"
    )
    costs.append(_meaning(f"{COST}translations_seconds", translating, "`cost`"))
    return (*exact, *costs, *trained, *_of_probes(), *_of_zero_shot(), *_of_tasks())


def _of_probes() -> list[Meaning]:
    source, probe = "`metrics` of a pretraining", f"{PREFIX}<probe>"
    scores = "accuracy of a probe of the frozen states, 0 to 1 (rank correlation where labels are real numbers)"
    gain = "the gain of a probe: its score minus that on the initial weights"
    return [
        Meaning(MEAN_GAIN, "share", "mean of the gains of a run's probes", "derived from `metrics`"),
        Meaning(f"{probe}{GAIN}", "share", gain, "derived from `metrics`"),
        *(
            Meaning(f"{probe}_{name}", "share", f"control of a probe: {text}", source)
            for name, text in CONTROLS.items()
        ),
        *(
            Meaning(f"{probe}_{name}", "share", f"simple method of sentence retrieval: {text}", source)
            for name, text in OF_RETRIEVAL.items()
            if name not in CONTROLS
        ),
        Meaning(probe, "share", scores, source),
    ]


def _of_zero_shot() -> list[Meaning]:
    """The metrics of zero-shot tasks by their own names, which patterns of tasks would match too."""
    source, lines = "`metrics` of a measurement", []
    for name, task in ZERO_SHOT.items():
        lines += [_meaning(f"{name}.{metric}", text, source) for metric, text in task.metrics.items()]
        main = f"{name}.{task.main}"
        lines += [_meaning(f"{main}.{method}", f"the same for {text}", source) for method, text in task.methods.items()]
        if isinstance(task, RunningText):
            told = "on the tokens that a model without a start token predicts: all but the first of each text"
            lines += [
                _meaning(f"{main}.{method}{SAME_TOKENS}", f"the same for {text}, {told}", source)
                for method, text in task.methods.items()
            ]
    return lines


def _of_tasks() -> list[Meaning]:
    source = "`metrics` of a fine-tuning"
    measures = [_meaning(f"<task>.{name}", f"dev set: {text}", source) for name, text in sorted(_measures().items())]
    losses = [
        Meaning(f"<task>.{part}_loss", "nats", f"{text} (a squared error where labels are real numbers)", source)
        for part, text in (("dev", "mean loss on the dev set"), ("train", "mean training loss of the last epoch"))
    ]
    beside = "mean training loss of the auxiliary language model per predicted token, in the last epoch"
    losses.append(Meaning("<task>.train_next_loss", "nats", beside, source))
    penalty = "mean penalty on the weights of layers, in the last epoch"
    losses.append(Meaning("<task>.train_mix_penalty_loss", "penalty", penalty, source))
    of_layer = "share of a layer, 0 for the embeddings, in the mixture"
    shares = [
        Meaning(f"<task>.{name}_<layer>", "share", f"{of_layer} {where}", source)
        for name, where in (("mix", "that a BiLSTM reads"), ("mix_above", "that is read with its states"))
    ]
    methods = [
        Meaning(f"{score.pattern}.<method>", score.unit, f"the same for a simple method ({score.pattern[7:]})", source)
        for score in measures
    ]
    silent = "whether all dev examples got the same answer: an outcome, and its scores count in no mean"
    return [*measures, *losses, *shares, _meaning("<task>.all_equal", silent, source), *methods]


def _measures() -> dict[str, str]:
    """Each measure of a task -> what it is; of the shapes that share its name, the text of most tasks counts."""
    texts: dict[str, Counter[str]] = {}
    for task in TASKS.values():
        for measure, text in task.shape.measures.items():
            texts.setdefault(measure, Counter())[text] += 1
    return {measure: max(sorted(counts), key=counts.__getitem__) for measure, counts in texts.items()}


def _meaning(name: str, text: str, source: str) -> Meaning:
    measure = ".".join(name.split(".")[:2])  # a simple method has the unit of its metric
    begun = (unit for beginning, unit in _BEGINNINGS if measure.startswith(beginning))
    ended = (unit for unit, endings in _UNITS.items() if measure.endswith(endings))
    unit = next(begun, next(ended, "share"))
    return Meaning(name, unit, text, source)


def _source(name: str) -> str:
    if name in DERIVED:
        return "averaged over the fine-tunings of a pretraining"
    if name.startswith("heldout.sentence_"):
        return "derived from `metrics` and `format.negatives`"
    return "`layers`, by summary" if name in LAYER_METRICS else "`metrics` of a pretraining"


def meaning(metric: str) -> Meaning:
    """The line of the dictionary for a metric.

    Raises:
        KeyError: If no line matches.
    """
    task, _, measure = metric.partition(".")
    line = _line(metric)
    if probe_of(metric) and not PROBES[probe_of(metric)].shape.labels:
        return replace(line, unit="correlation")
    squared = measure.endswith("_loss") and task in TASKS and TASKS[task].shape.numbers
    return replace(line, unit="squared error") if squared else line


@cache
def _line(metric: str) -> Meaning:
    for line in dictionary():
        if line.parts.fullmatch(metric):
            return line
    raise KeyError(f"the dictionary of metrics has no {metric!r}: add it to ablations/measurements/dictionary.py")


def unit(metric: str) -> str:
    """The unit of a metric; empty if no line matches, as for one that another version of the project measured."""
    try:
        return meaning(metric).unit
    except KeyError:
        return ""


def lines() -> list[str]:
    """The dictionary as a Markdown table."""
    head = ["| metric | unit | meaning | from |", "| :-- | :-- | :-- | :-- |"]
    return head + [f"| `{line.pattern}` | {line.unit} | {line.text} | {line.source} |" for line in dictionary()]
