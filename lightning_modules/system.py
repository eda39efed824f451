"""A system: a published model as a frozen value.

Backbone, objectives, input format, data, optimisation and evaluation together determine a training down to its
seed. Two systems can be compared field by field (`config.diff`), and any field can be changed (``but``).
"""

import functools
import itertools
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lightning_modules.backbones import Transformer
from lightning_modules.batch import Direction, Example, Tokens, Vocabulary
from lightning_modules.config import Settings, canonical, knob, label
from lightning_modules.data import Data, InputFormat
from lightning_modules.draws import Draws
from lightning_modules.objectives import LanguageModel, MaskedLM, Masking, Objectives, SentencePair
from lightning_modules.training.optim import Optimizer, Schedule

if TYPE_CHECKING:
    from lightning_modules.data.loader import PretrainingData
    from lightning_modules.data.order.prepare import Prepare
    from lightning_modules.training.pretrain import Pretrain


class Training(Settings):
    """How long, in which batches, in which precision."""

    steps: int = knob(1_000_000, "Optimiser steps.", ge=1)
    batch_size: int = knob(256, "Sequences in an optimiser step, over all micro-batches and devices.", ge=1)
    micro_batch_size: int | None = knob(
        None, "Sequences in one forward pass, for small memories; by default the whole batch.", neutral=None, ge=1
    )
    warm_start: tuple[int, ...] = knob(
        (),
        "Depths of the runs of this system, each shallower, whose weights are stacked to start this one; each run of "
        "the chain starts from the one before (ALBERT, section 4.8).",
        neutral=(),
    )
    clip_norm: float = knob(1.0, "Largest global gradient norm; 0 does not clip.", neutral=0.0, ge=0)
    precision: Literal["fp32", "bf16"] = knob("bf16", "fp32, or bfloat16 autocast over fp32 weights.")

    @model_validator(mode="after")
    def _whole_micro_batches(self) -> Self:
        if self.micro_batch_size and self.batch_size % self.micro_batch_size:
            raise ValueError(
                f"batch_size {self.batch_size} is not a multiple of micro_batch_size {self.micro_batch_size}"
            )
        return self


class Evaluation(Settings):
    """The held-out measurement, the same for every variant of a grid whatever it trains on."""

    sequences: int = knob(1024, "Held-out sequences.", ge=1)
    rate: float = knob(0.15, "Share of their tokens hidden, all shown as [MASK].", gt=0, le=1)
    pairs: int = knob(
        0,
        "Held-out segment pairs of each construction, random and swapped, on which sentence accuracies are measured.",
        neutral=0,
        ge=0,
    )
    direction: Literal["both", "left_to_right", "right_to_left"] = knob(
        "both",
        "Which way the held-out text may be looked at; one way is a control that takes a side from a model that was "
        "trained with both.",
        neutral="both",
    )
    points: int = knob(12, "Measurements during a training, evenly spaced, the last at its end.", ge=1, le=64)

    @property
    def objective(self) -> MaskedLM:
        """The corruption of the held-out text: [MASK] only, which every mixture has seen."""
        return MaskedLM(masking=Masking(rate=self.rate, mask=1.0, same=0.0, random=0.0))


class System(Settings):
    """Everything that determines a pretraining but its seed."""

    name: str = label("", "What the system is called.")
    paper: str = label("", "Where it was published.")
    model: Transformer = Transformer()
    objectives: Objectives = Objectives(mlm=MaskedLM())
    format: InputFormat = InputFormat()
    data: Data = Data()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    training: Training = Training()
    evaluation: Evaluation = Evaluation()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        length, table = self.format.sequence_length, self.model.resolved().max_positions
        if table and length > table:
            raise ValueError(
                f"format.sequence_length {length} is longer than model.max_positions {table}: "
                "raise the one or lower the other"
            )
        if self.objectives.sentence is not None and self.format.kind != "segment_pairs":
            raise ValueError("objectives.sentence needs pairs: format.kind must be 'segment_pairs'")
        self._check_directions()
        chain = (*self.training.warm_start, self.model.num_layers)
        if any(deeper <= shallower for shallower, deeper in itertools.pairwise((0, *chain))):
            raise ValueError(
                f"training.warm_start {list(self.training.warm_start)} must name depths that grow, "
                f"each below model.num_layers {self.model.num_layers}"
            )
        if chain[0] < self.model.sharing_groups:
            raise ValueError(f"{self.model.sharing_groups} groups of layers cannot start from {chain[0]} layers")
        return self

    def _check_directions(self) -> None:
        """What is asked must be seen, and nothing that is asked for."""
        model, lm = self.model.direction, self.objectives.lm
        if lm is not None and lm.direction != model:
            raise ValueError(f"objectives.lm reads {lm.direction}: model.direction must be the same, not {model}")
        if self.objectives.sentence is not None and model == "left_to_right":
            raise ValueError(
                "objectives.sentence is read from the first position, which sees nothing but itself: "
                "model.direction cannot be left_to_right"
            )
        if self.evaluation.direction != "both" and (lm is not None or model in ("left_to_right", "right_to_left")):
            raise ValueError(
                f"evaluation.direction {self.evaluation.direction} takes a side from a model that looks both ways; "
                "one that looks one way is measured as it is"
            )
        if self.training.warm_start and model == "two_way":
            raise ValueError("training.warm_start stacks the layers of one stack: model.direction cannot be two_way")

    def shallower(self) -> Self | None:
        """The system whose weights start this one; None where training starts from scratch."""
        *earlier, depth = self.training.warm_start or (None,)
        if depth is None:
            return None
        return self.but(**{"model.num_layers": depth, "training.warm_start": list(earlier)})

    def build(self, seed: int) -> "Pretrain":
        """The Lightning module, its weights drawn from ``seed`` without touching the caller's generator."""
        from lightning_modules.training.pretrain import (
            Pretrain,  # imports Lightning (seconds), which planning does without
        )

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            backbone, heads = self._networks()
        training = self.training
        return Pretrain(
            backbone, self.objectives, heads, self.optimizer, self.schedule, training.steps, training.clip_norm
        )

    def data_module(self, seed: int) -> "PretrainingData":
        """The Lightning data module: batches in an order, and with a noise, that depend on ``seed`` alone."""
        from lightning_modules.data.loader import PretrainingData

        return PretrainingData(
            data=self.data,
            format=self.format,
            prepare=functools.partial(_prepare, self.objectives),
            prepare_heldout=functools.partial(_prepare, self.heldout_objective, direction=self.looks),
            seed=seed,
            steps=self.training.steps,
            batch_size=self.training.batch_size,
            micro_batch_size=self.training.micro_batch_size,
            heldout_sequences=self.evaluation.sequences,
        )

    @property
    def heldout_objective(self) -> MaskedLM | LanguageModel:
        """What is asked of held-out text: hidden tokens, the same for all masked models; else the model's own task."""
        return self.objectives.lm or self.evaluation.objective

    @property
    def looks(self) -> Direction:
        """Which way held-out text is looked at."""
        return self.model.direction if self.evaluation.direction == "both" else self.evaluation.direction

    def prepare_pairs(self) -> "Prepare":
        """The corruption of held-out pairs: what is asked of all held-out text, and the question about the pair."""
        name = "mlm" if self.objectives.lm is None else "lm"
        asked = Objectives(**{name: self.heldout_objective, "sentence": SentencePair()})
        return functools.partial(_prepare, asked, direction=self.looks)

    def parameters(self) -> int:
        """Trainable parameters of backbone and heads; tied tables count once."""
        return sum(self.parameters_by_part().values())

    def parameters_by_part(self) -> dict[str, int]:
        """Parameters of each part of the network, counted on the meta device: no memory is taken."""
        vocab_size = self.data.tokenizer.vocab_size
        architecture = canonical([self.model.essence(), self.objectives.essence(), vocab_size])
        if architecture not in _counted:
            with torch.device("meta"), _Undrawn():
                backbone, heads = self._networks()
            parts = {**dict(backbone.named_children()), **{f"{name} head": head for name, head in heads.items()}}
            counts = {name: sum(p.numel() for p in part.parameters()) for name, part in parts.items()}
            _counted[architecture] = {name: count for name, count in counts.items() if count}
        return _counted[architecture]

    def _networks(self) -> tuple[nn.Module, nn.ModuleDict]:
        vocab_size = self.data.tokenizer.vocab_size
        return self.model.build(vocab_size), self.objectives.heads(self.model.size(vocab_size))

    def tokens_per_step(self) -> int:
        """Positions presented in one optimiser step, padding included."""
        return self.training.batch_size * self.format.sequence_length

    def flops_per_step(self) -> float:
        """Floating-point operations of the matrix products of one optimiser step, backward = 2 x forward.

        By formula, so that ten thousand cells are planned in seconds; the tests hold it to torch's own counter.
        """
        length, size = self.format.sequence_length, self.model.size(self.data.tokenizer.vocab_size)
        forward = self.model.flops_per_sequence(length)
        forward += sum(objective.flops_per_sequence(length, size) for _, objective in self.objectives.present())
        return 3.0 * forward * self.training.batch_size

    def flops_per_token(self) -> float:
        """Those operations for each position presented."""
        return self.flops_per_step() / self.tokens_per_step()


class _Undrawn(TorchFunctionMode):
    """Leaves out the random numbers of new weights, where only their shapes are asked for."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return kwargs.get("tensor", *args[:1]) if func in _RANDOM else func(*args, **kwargs)


_RANDOM = (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_, Tensor.normal_, Tensor.uniform_)


def _prepare(
    objective: Objectives | MaskedLM | LanguageModel,
    tokens: Tokens,
    draws: Draws,
    vocabulary: Vocabulary,
    direction: Direction = "both",
) -> Example:
    """Corruption as the loader calls it; a module-level function, so that loader workers can receive it."""
    example = Example.of(tokens)
    example.visible = example.visible.toward(direction)
    return objective.corrupt(example, draws, vocabulary)


_counted: dict[str, dict[str, int]] = {}  # architecture -> parameters by part: a plan asks for each thousands of times
