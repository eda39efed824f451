"""The settings of a training that are no optimiser's."""

from typing import Any, Literal, Self

from pydantic import model_validator

from lightning_modules.config import Settings, canonical, knob


class Training(Settings):
    """Length, batch size and precision of a training."""

    steps: int = knob(1_000_000, "Optimiser steps.", ge=1)
    stop_after: int = knob(
        0,
        "Steps after which the training ends, with the schedule of all its steps. So a checkpoint on the way is a run "
        "of its own. With 0 it ends after the last step.",
        neutral=0,
        ge=0,
    )
    batch_size: int = knob(256, "Sequences per optimiser step, over all micro-batches and devices.", ge=1, le=1 << 20)
    batch_by: Literal["sequences", "tokens"] = knob(
        "sequences",
        "What batch_size counts: sequences, or the tokens of so many sequences of full length (tokens). Then a step "
        "shows more sequences where they are shorter (Liu et al. 2019, section 4.2).",
        neutral="sequences",
    )
    bucket_steps: int = knob(
        1,
        "With batch_by tokens: steps whose sequences are sorted by length together, so that those of a step have "
        "similar lengths and little padding. The order of these steps is random. With 1 nothing is sorted.",
        neutral=1,
        ge=1,
        le=1 << 16,
    )
    micro_batch_size: int | None = knob(
        None, "Sequences per forward pass, to save memory. By default the whole batch.", neutral=None, ge=1
    )
    warm_start: tuple[int, ...] = knob(
        (),
        "Depths, in ascending order, of shallower runs of this system. Each run starts from the stacked weights of the "
        "one before, this one from the last (ALBERT, section 4.8).",
        neutral=(),
        max_length=16,
    )
    start: dict[str, Any] = knob(
        {},
        "Knob -> value: in what the pretraining differs whose weights this one starts from, all else being as here. "
        "Empty for random weights. That one may have a training.start of its own, and another seed (seed). Both have "
        "the same backbone, and the same tokenizer unless vocabulary is remapped. Optimiser and schedule start from "
        "the beginning.",
        neutral={},
    )
    start_layers: tuple[int, ...] = knob(
        (),
        "Layers of the model in start that the layers of this one start from, counted from 0, one for each. DistilBERT "
        "takes 0, 2, 4, 7, 9 and 11 of 12. By default both have the same layers.",
        neutral=(),
        max_length=1000,
    )
    start_parts: dict[str, str] | None = knob(
        None,
        "Part of the model -> part of the model in start that it starts from. The two may be of other kinds. All "
        "other parts are random. XLM's translators have {words: words, positions: positions, encoder: layers, decoder: "
        "layers, output: output}, and a new source_attention. A mapping that names nothing is a random start. By "
        "default all is taken over.",
        neutral=None,
    )
    vocabulary: Literal["same", "remapped"] = knob(
        "same",
        "Tokenizer of the training in start: the same, or another one of the same kind (remapped). Then pieces that "
        "both have keep their embeddings and output biases. New ones start from the mean over all of them (Howard and "
        "Ruder 2018, released code).",
        neutral="same",
    )
    clip_norm: float = knob(1.0, "Maximum global gradient norm. No clipping with 0.", neutral=0.0, ge=0)
    averaged_checkpoints: int = knob(
        1,
        "Checkpoints of which the weights are averaged, the last after the last step. Vaswani et al. (2017, section "
        "6.1) average 5 of the base Transformer and 20 of the big one. From the first of them on the mean so far is "
        "evaluated, and it is kept at the end. 1 averages nothing.",
        neutral=1,
        ge=1,
        le=1 << 10,
    )
    averaging_interval: float = knob(
        0.015,
        "With averaged_checkpoints: steps from one to the next, as a share of all steps. By 0.015 these are about 10 "
        "minutes of the 12 hours of the base Transformer.",
        neutral=0.015,
        gt=0,
        lt=1,
    )
    precision: Literal["fp32", "bf16"] = knob(
        "bf16",
        "fp32, or bf16 for bfloat16 autocast over fp32 weights. --set also takes auto: the precision of the study's "
        "records, or else the faster one on this machine.",
    )
    kept_as: Literal["fp32", "bf16"] = knob(
        "fp32",
        "fp32, or bf16 for weights that are rounded to bfloat16 when the training ends, before what is measured then. "
        "All runs that start from it start from these, and keeping them (`ablations keep`) takes half the bytes.",
        neutral="fp32",
    )

    def __hash__(self) -> int:
        return hash(canonical(self.essence()))  # a mapping has no hash of its own

    @property
    def is_continued(self) -> bool:
        """Whether it starts from weights of the training in ``start``."""
        return bool(self.start) and self.start_parts != {}

    @property
    def last_step(self) -> int:
        """The step after which the training ends."""
        return min(self.stop_after or self.steps, self.steps)

    @property
    def averaged_steps(self) -> range:
        """The numbers of steps after which weights are added to the mean that is kept; empty without one."""
        if self.averaged_checkpoints == 1:
            return range(0)
        every = max(1, round(self.averaging_interval * self.steps))
        return range(self.last_step - (self.averaged_checkpoints - 1) * every, self.last_step + 1, every)

    def resolved(self) -> Self:
        """The settings in full: no stop after the last step, no start of which nothing is taken, no idle interval."""
        update: dict[str, Any] = {"stop_after": 0} if self.stop_after >= self.steps else {}
        if self.averaged_checkpoints == 1:
            update["averaging_interval"] = type(self).model_fields["averaging_interval"].default
        if self.start_parts == {}:
            update |= {"start": {}, "start_parts": None, "vocabulary": "same"}
        return self.model_copy(update=update)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        nothing = "and start is empty: name its training in start, or set"
        wrong = {
            f"start_layers chooses layers of another model, {nothing} start_layers to []": (
                self.start_layers and not self.start
            ),
            f"start_parts names parts of another model, {nothing} start_parts to null": (
                self.start_parts and not self.start
            ),
            "start_layers chooses layers of a model that is taken over whole, and start_parts says which parts are: "
            "set start_layers to [], or start_parts to null": self.start_parts is not None and self.start_layers,
            "vocabulary remapped takes over the words of another training, and start is empty: name that training in "
            "start, or set vocabulary to same": self.vocabulary == "remapped" and not self.start,
            f"bucket_steps {self.bucket_steps} sorts sequences by length, and with batch_by {self.batch_by} all are "
            "padded to the same: set batch_by to tokens, or bucket_steps to 1": (
                self.bucket_steps > 1 and self.batch_by != "tokens"
            ),
            f"batch_size {self.batch_size} is not a multiple of micro_batch_size {self.micro_batch_size}": (
                self.micro_batch_size and self.batch_size % self.micro_batch_size
            ),
        }
        for text in (text for text, is_so in wrong.items() if is_so):
            raise ValueError(text)
        return self
