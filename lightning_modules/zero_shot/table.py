"""The table of all zero-shot tasks. Names differ from those of `tasks.TASKS`: metrics are called by them."""

from typing import Any

from lightning_modules.problems import entry_of
from lightning_modules.tasks import TASKS
from lightning_modules.zero_shot.cloze import Cloze
from lightning_modules.zero_shot.labelled import Answered, Substituted, Threshold, Verbalised
from lightning_modules.zero_shot.last_word import LastWord
from lightning_modules.zero_shot.perplexity import HeldOutText, WikiText, WikiTextWords
from lightning_modules.zero_shot.sources import LAMBADA, WIKITEXT_2
from lightning_modules.zero_shot.speed import ReadingSpeed
from lightning_modules.zero_shot.stream import ReadStream
from lightning_modules.zero_shot.task import ZeroShot


def _of(name: str) -> dict[str, Any]:
    """What a task takes over from the data set that it asks."""
    task = TASKS[name]
    return {"task": name, "source": task.source, "licence": task.licence, "own_split": task.own_split}


_ROWS: tuple[ZeroShot, ...] = (
    LastWord(
        "lambada",
        "LAMBADA: what is the last word of the passage?",
        "Paperno et al. 2016, The LAMBADA dataset",
        own=LAMBADA,
        licence="CC BY 4.0",
    ),
    WikiText(
        "wikitext2",
        "WikiText-2: how probable is its test set, as natural text?",
        "Merity et al. 2017, Pointer Sentinel Mixture Models",
        own=WIKITEXT_2,
        licence="CC BY-SA 3.0",
    ),
    WikiTextWords(
        "wikitext2_words",
        "WikiText-2 by words: how probable is a word of its test set?",
        "Merity et al. 2017, Pointer Sentinel Mixture Models",
        own=WIKITEXT_2,
        licence="CC BY-SA 3.0",
    ),
    HeldOutText("heldout_text", "Held-out text: how probable is it?"),
    ReadStream("heldout_stream", "Held-out stream: how probable is it, read in segments of any length?"),
    ReadingSpeed("reading_speed", "Reading speed: how many times as fast is a stream read with a memory?"),
    Cloze("cloze", "Cloze: which word of the passage stood here?"),
    Verbalised(
        name="sst2_asked",
        title="SST-2 zero-shot: is the review, followed by 'very', followed by 'positive' or 'negative'?",
        words=("negative", "positive"),
        hint="very",
        **_of("sst2"),
    ),
    Threshold(name="cola_asked", title="CoLA zero-shot: are the sentence's tokens probable?", **_of("cola")),
    Answered(name="race_middle_asked", title="RACE-M zero-shot: which option is most probable?", **_of("race_middle")),
    Answered(name="race_high_asked", title="RACE-H zero-shot: which option is most probable?", **_of("race_high")),
    Answered(
        name="copa_asked",
        title="COPA zero-shot: which alternative is the more probable one?",
        splits=("train", "dev"),
        **{**_of("copa"), "own_split": "all dev questions and their mirrored ones, 1,000"},
    ),
    Substituted(
        name="gap_asked",
        title="GAP zero-shot: which name in the pronoun's place makes the rest more probable?",
        splits=("train", "dev"),
        **{**_of("gap"), "own_split": "development and validation set, pronouns for one of the two names only"},
    ),
)
ZERO_SHOT: dict[str, ZeroShot] = {task.name: task for task in _ROWS}


def zero_shot_named(name: str) -> ZeroShot:
    """The zero-shot task of that name.

    Raises:
        ConfigError: For an unknown name, with the nearest valid one.
    """
    return entry_of(ZERO_SHOT, name, "zero-shot task")
