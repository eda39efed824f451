"""How a pretrained model is evaluated on a task without training."""

from typing import Literal, Self

from lightning_modules.config import Settings, knob

RuleName = Literal["sum", "mean", "gain"]


class Measurement(Settings):
    """How a language model is evaluated on a task without training. These are ``measuring.*`` in grids.

    A setting acts on some tasks only (`ZeroShot.reads`); on the others it is neutral.
    """

    rule: RuleName | None = knob(
        None,
        "What the log-probabilities of an option's tokens are made into: their sum, their mean, or what the prompt "
        "adds to their sum (gain). By default the task's own.",
        neutral=None,
    )
    shots: int = knob(0, "Solved examples in the prompt before the question.", neutral=0, ge=0, le=64)
    shots_seed: int = knob(0, "Which of the training examples these are.", neutral=0, ge=0)
    stride: int | None = knob(
        None,
        "Tokens that a further window of running text predicts. By default half of the model's positions. Fewer give "
        "each token more context, at a higher cost.",
        neutral=None,
        ge=1,
    )
    sequence_length: int | None = knob(
        None,
        "Positions of a segment of a stream, all of which predict. By default as in the run's evaluation.",
        neutral=None,
        ge=1,
        le=1 << 20,
    )
    context: int | None = knob(
        None,
        "Positions before a segment of a stream that are read again with it, so that nothing is carried. By default as "
        "in the run's evaluation.",
        neutral=None,
        ge=0,
        le=1 << 20,
    )
    memory_length: int | None = knob(
        None,
        "Positions that the model remembers before a segment of a stream. By default as in the run's evaluation.",
        neutral=None,
        ge=0,
        le=1 << 20,
    )
    memory_from: Literal["own_row", "other_row"] = knob(
        "own_row",
        "Whose text is remembered before a segment of a stream: that of its own row, or of another one. The other is "
        "as long and does not help to predict the segment.",
        neutral="own_row",
    )
    shuffle_from: int | None = knob(
        None,
        "How far before a predicted token of a stream those begin that are in random order, where the last token has "
        "distance 1. By default all are in their own order.",
        neutral=None,
        ge=1,
        le=1 << 20,
    )
    shuffle_to: int | None = knob(
        None,
        "How far before a predicted token of a stream the last of them is. By default as far as is read.",
        neutral=None,
        ge=1,
        le=1 << 20,
    )
    lead: int = knob(
        0, "Positions at the beginning of each row of a stream that predict nothing.", neutral=0, ge=0, le=1 << 20
    )
    examples: int | None = knob(
        None,
        "Number of examples or stretches of text that are evaluated, the first ones. By default all. Of a stream, the "
        "positions of so many sequences of the training.",
        neutral=None,
        ge=2,
    )

    def acting(self, reads: frozenset[str]) -> Self:
        """The settings with those neutral that a task does not read, and ``shots_seed`` without shots."""
        read = reads if self.shots and "shots" in reads else reads - {"shots_seed"}
        idle = {name: info.default for name, info in type(self).model_fields.items() if name not in read}
        return self.model_copy(update=idle)
