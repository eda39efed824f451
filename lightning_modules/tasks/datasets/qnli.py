"""QNLI: does the sentence contain the answer to the question?

``qnli`` has the official pairs. ``qnli_own`` has the official dev pairs, and training pairs rebuilt from SQuAD 1.1.
Wang et al. (2019, section 3.3) pair each question of SQuAD with sentences of its paragraph, filter out pairs with
little lexical overlap, and balance the classes. Here each question makes two pairs: one with the sentence that contains
the marked answer, and one with the sentence, of those without the answer's text, that shares most words with the
question. Questions whose answer crosses sentences, or without a second sentence, are left out, as is every paragraph
with a sentence of the dev set. The official pairs are 104,743; their overlap threshold and selection are not published.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from lightning_modules import cached, files
from lightning_modules.data.corpora.sources import Origin
from lightning_modules.places import cache
from lightning_modules.tasks.datasets.squad import PUBLISHED, REBUILT, placed, read
from lightning_modules.tasks.readers.files import Files, Hub
from lightning_modules.tasks.readers.own_split import nearest
from lightning_modules.tasks.reading.passages import Question
from lightning_modules.tasks.scores.squad_scores import normalised
from lightning_modules.tasks.shapes.texts import Row, Texts
from lightning_modules.tasks.task import Split, Task

_RECIPE = 1  # bumped when the same files would give other pairs
_LABELS = ("entailment", "not_entailment")
OFFICIAL = Files(
    "QNLI", label="label", first="question", second="sentence", hub=Hub("nyu-mll/glue", "qnli", "question", "sentence"),
    otherwise=nearest("qnli_own", "whose training pairs are rebuilt from SQuAD 1.1"),
)  # fmt: skip


class MadeAgain:
    """A reader of the official dev pairs, and of training pairs made from SQuAD 1.1; call it with a split.

    The rebuilt copy of SQuAD's training file takes precedence over the official one, since the pin is of that copy.
    """

    @property
    def origin(self) -> Origin:
        """Where both files come from."""
        squad = next((reader for reader in (REBUILT, PUBLISHED) if reader.origin.find("train")), PUBLISHED)
        files = {"train": squad.origin.files["train"], "dev": OFFICIAL.origin.files["dev"]}
        return Origin("QNLI made from SQuAD 1.1", files, otherwise="The official pairs are the task 'qnli'.")

    def __call__(self, split: Split) -> Iterator[Row]:
        """The pairs of a split; the training pairs are cached.

        Raises:
            ConfigError: When a file is missing or malformed.
        """
        self.origin.needed("dev")
        if split == "dev":
            return OFFICIAL("dev")
        (source,) = self.origin.needed("train")
        dev = list(OFFICIAL("dev"))
        key = hashlib.sha256(files.read(source) + json.dumps([_RECIPE, dev]).encode()).hexdigest()
        path = cache() / "tasks" / f"qnli-train-{key[:16]}.json"
        held = cached.kept_json(path, lambda: list(_from_squad(source, dev)))
        return (Row(*row) for row in held)


def _from_squad(source: Path, dev: list[Row]) -> Iterator[Row]:
    questions = placed((row for _, row in read(source)), "train", str(source))
    held_out = {_key(row.second or "") for row in dev}
    for context, group in groupby(questions, lambda row: row.context):
        sentences = segmented(context)
        if not held_out & {_key(context[start:end]) for start, end in sentences}:
            for question in group:
                yield from pairs(question, sentences)


def _key(sentence: str) -> str:
    return " ".join(sentence.split())


def segmented(context: str) -> list[tuple[int, int]]:
    """Start and end of each sentence of a passage."""
    from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]  # its types do not name it

    spans, place = [], 0
    for sentence in segment("en", context):
        if text := sentence.strip():
            start = context.index(text, place)
            place = start + len(text)
            spans.append((start, place))
    return spans


def pairs(question: Question, sentences: list[tuple[int, int]]) -> list[Row]:
    """A question with the sentence that contains its answer and the most similar one that does not; [] if either lacks.

    >>> context = "Ann left. Bob came home. Tim slept."
    >>> where = [(0, 9), (10, 24), (25, 35)]
    >>> [(row.second, row.label) for row in pairs(Question("1", "Who came home?", context, ((10, "Bob"),)), where)]
    [('Bob came home.', 'entailment'), ('Ann left.', 'not_entailment')]
    """
    start, answer = question.answers[0]
    texts = [question.context[a:b] for a, b in sentences]
    right = [text for text, (a, b) in zip(texts, sentences, strict=True) if a <= start and start + len(answer) <= b]
    others = [text for text in texts if answer.lower() not in text.lower()]
    if not right or not others:
        return []
    words = set(normalised(question.text).split())
    nearest_other = max(others, key=lambda text: len(words & set(normalised(text).split())))
    return [Row(question.text, right[0], _LABELS[0]), Row(question.text, nearest_other, _LABELS[1])]


_SOURCE = "Rajpurkar et al. 2016, as recast by Wang et al. 2019 (GLUE)"

_QNLI = Task(
    name="qnli",
    title="QNLI: does the sentence contain the answer to the question?",
    source=_SOURCE,
    shape=Texts(labels=_LABELS, pair=True),
    rows=OFFICIAL,
    licence="CC BY-SA 4.0",
    official=(104_743, 5_463),
)
ROWS = (
    _QNLI,
    replace(
        _QNLI,
        name="qnli_own",
        title="QNLI, training pairs rebuilt from SQuAD 1.1: does the sentence contain the answer to the question?",
        rows=MadeAgain(),
        own_split="official dev, with training pairs rebuilt from SQuAD 1.1, two per question",
        official=None,
    ),
)
