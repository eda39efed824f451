"""Named entities and noun phrases (Joshi et al. 2020, section 6.1, and the released code)."""

from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from lightning_modules.batch import Annotation, Tags
from lightning_modules.config import knob
from lightning_modules.draws import Draws
from lightning_modules.objectives.choosing.spans import Anchored, hide
from lightning_modules.objectives.choosing.text import Stretches, Text, runs
from lightning_modules.objectives.choosing.units import Units

RULE = "capitalised"


class Tagged(Units):
    """Tagged spans, such as named entities, and for the other half random whole words (SpanBERT's comparisons).

    Each draw is a tagged span with the given probability, uniform over those of the text, else the word of a random
    visible piece. A draw that would hide nothing new is drawn again, so that a text without tags hides words alone. The
    last one is cut where the budget ends. What touches is one group. Lower rates hide subsets.
    """

    spans: ClassVar[bool] = True

    kind: Literal["tagged"] = knob("tagged", "")
    tags: Tags = knob("entities", "What is tagged.")
    share: float = knob(0.5, "Probability that a draw is a tagged span.", ge=0, le=1)
    annotator: str = knob(
        "en_core_web_sm",
        "Who tagged the text: an installed pipeline of spaCy. For entities it may be the rule 'capitalised' instead: "
        "runs of words with a capital that do not begin a sentence.",
        min_length=1,
    )

    @model_validator(mode="after")
    def _rule_for_entities(self) -> Self:
        if self.annotator == RULE and self.tags != "entities":
            raise ValueError(f"annotator {RULE} is a rule for entities. For {self.tags} name a pipeline of spaCy.")
        return self

    @property
    def reads(self) -> frozenset[Annotation]:
        """The annotation that it needs."""
        return frozenset({(self.annotator, self.tags)})

    def choose(self, text: Text, budget: np.ndarray, draws: Draws) -> np.ndarray:
        """Each run of hidden positions, a group."""
        columns = text.candidates.shape[1]
        tagged = text.tagged((self.annotator, self.tags))
        words = Anchored(text, np.ones(text.candidates.shape, dtype=np.int64), draws)
        coin, which = draws.uniform("tagged or word", columns), draws.uniform("which tag", columns)
        hidden, rest = np.zeros_like(text.candidates), budget.copy()
        for step in range(columns):  # each hides something
            left = _visible(tagged, hidden)
            start, end = words.next(hidden)
            some = left.sum(1)
            # chances of a tag and of a word that hide something new
            chance = self.share * some / np.maximum((tagged.size > 0).sum(1), 1)
            other = (1 - self.share) * (text.candidates & ~hidden).sum(1) / np.maximum(text.candidates.sum(1), 1)
            tag = (some > 0) & (coin[:, step] * (chance + other) < chance)
            nth = np.minimum((which[:, step] * some).astype(np.int64), np.maximum(some - 1, 0))
            place = (left.cumsum(1) == nth[:, None] + 1).argmax(1)
            row = np.arange(len(tag))
            start = np.where(tag, tagged.first[row, place], start)
            end = np.where(tag, tagged.end[row, place], end)
            rest -= hide(hidden, start, end, rest)
            if not rest.any():
                break
        return runs(hidden)


def _visible(stretches: Stretches, hidden: np.ndarray) -> np.ndarray:
    """The stretches that are not hidden as a whole ``[b w]``."""
    upto = np.zeros((hidden.shape[0], hidden.shape[1] + 1), dtype=np.int64)
    np.cumsum(hidden, axis=1, out=upto[:, 1:])
    row, longest = np.arange(len(hidden))[:, None], hidden.shape[1]
    covered = upto[row, np.minimum(stretches.end, longest)] - upto[row, np.minimum(stretches.first, longest)]
    return (stretches.size > 0) & (covered < stretches.size)
