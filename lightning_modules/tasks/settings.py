"""How a pretrained model is fine-tuned."""

from typing import Literal, Self

from pydantic import model_validator

from lightning_modules.backbones import Transformer
from lightning_modules.batch import Direction
from lightning_modules.config import ConfigError, Settings, knob
from lightning_modules.data.word_vectors import WordVectors
from lightning_modules.training.optim import Optimizer, Schedule


class Features(Settings):
    """A pretrained encoder used as it is: a mixture of its layers is read by a BiLSTM, and that by the task's head.

    The six choices of layers are those of Devlin et al. (2019, Table 7). Where the paper is silent: weights of sums
    are learned as ELMo's are (`layers.scalar_mix`), and the size of the BiLSTM, "768-dimensional", is that of each
    direction.
    """

    layers: Literal[
        "embeddings", "second_to_last", "last", "weighted_sum_last_four", "concat_last_four", "weighted_sum_all"
    ] = knob("concat_last_four", "Which layers are read; all means all but the embeddings.")
    bilstm_layers: int = knob(2, "Layers of the BiLSTM; 0 lets the head read the mixture itself.", ge=0, le=16)
    bilstm_size: int = knob(768, "Width of each direction of the BiLSTM.", ge=1)

    def resolved(self) -> Self:
        """A BiLSTM without layers has no size."""
        return self if self.bilstm_layers else self.model_copy(update={"bilstm_size": 0})

    @property
    def untouched(self) -> bool:
        """Whether the head reads the last layer itself, as in a fine-tuning."""
        return self.layers == "last" and not self.bilstm_layers

    def chosen(self, depth: int) -> tuple[int, ...]:
        """The layers that are read, of an encoder with so many: 0 is the embeddings' output, ``depth`` the last.

        Raises:
            ConfigError: When the encoder has too few.
        """
        count = {"second_to_last": 2, "weighted_sum_last_four": 4, "concat_last_four": 4}.get(self.layers, 1)
        if depth < count:
            said = f"finetuning.features.layers {self.layers} takes {count} layers; the encoder is {depth} deep"
            raise ConfigError([said])
        if self.layers in ("embeddings", "second_to_last", "last"):
            return ({"embeddings": 0, "second_to_last": depth - 1, "last": depth}[self.layers],)
        return tuple(range(1 if self.layers == "weighted_sum_all" else depth - 3, depth + 1))

    def widths(self, hidden_size: int) -> tuple[int, int]:
        """Widths of the mixture of an encoder's layers, and of what the head reads."""
        mixed = hidden_size * (4 if self.layers == "concat_last_four" else 1)
        return mixed, 2 * self.bilstm_size if self.bilstm_layers else mixed

    def flops_per_sequence(self, hidden_size: int, length: int) -> float:
        """FLOPs of the BiLSTM's matrix products, forward."""
        return _bilstm_flops(self.widths(hidden_size)[0], self.bilstm_size, self.bilstm_layers, length)


def _bilstm_flops(read: int, size: int, layers: int, length: int) -> float:
    """FLOPs of the matrix products of a BiLSTM that reads states of width ``read``, forward."""
    total = 0
    for layer in range(layers):
        total += 2 * 2 * 4 * size * ((2 * size if layer else read) + size)  # two directions of four gates, 2 a weight
    return float(length * total)


class FineTuning(Settings):
    """Everything that determines a fine-tuning but the model, the task and the seed.

    Defaults are BERT's (Devlin et al. 2019, section 4.1 and appendix A.3): 3 epochs in batches of 32, rate 2e-5,
    warm-up over a tenth of the steps. The score of the last epoch counts; no epoch is chosen by the dev set.
    """

    epochs: int = knob(3, "Passes over the training examples.", ge=1, le=64)
    steps: int | None = knob(
        None, "Optimiser steps, where a paper says those; by default as many as the epochs make.", neutral=None, ge=1
    )
    batch_size: int = knob(32, "Examples in an optimiser step.", ge=1)
    max_length: int = knob(128, "Positions of an example at most, special tokens included; longer ones are cut.", ge=8)
    train_examples: int | None = knob(
        None, "How many training examples are used, chosen by the seed; by default all.", neutral=None, ge=1
    )
    dropout: float = knob(0.1, "Dropout on the pooled vector that the classifier reads.", ge=0, lt=1)
    encoder_dropout: float | None = knob(
        None,
        "Dropout of all three kinds inside the encoder while fine-tuning (ALBERT, Table 14); "
        "by default as in pretraining.",
        neutral=None,
        ge=0,
        lt=1,
    )
    from_scratch: bool = knob(
        False,
        "Whether training starts from random weights rather than the pretrained ones, as a control.",
        neutral=False,
    )
    word_vectors: WordVectors | None = knob(
        None,
        "With from_scratch: static word vectors of the pretraining text, from which the embedding table starts; "
        "by default it is random too.",
        neutral=None,
    )
    first: str | None = knob(
        None,
        "A task that the model is fine-tuned on before this one, by the same settings, such as mnli before rte "
        "(Liu et al. 2019, section 5.1).",
        neutral=None,
    )
    features: Features | None = knob(
        None, "The encoder frozen, its layers read as features; by default it is trained with the head.", neutral=None
    )
    pooling: Literal["first", "last", "ends"] | None = knob(
        None,
        "Whose state stands for a text: that of its first position ([CLS]), of its last one ([SEP]), or of two readers "
        "side by side the last of the one and the first of the other. By default whichever has seen all of it.",
        neutral=None,
    )
    bilstm_layers: int = knob(
        0,
        "Layers of a BiLSTM with random weights between the encoder and the head, both trained (Devlin et al. 2019, "
        "Table 5); each direction is half as wide as the states it reads.",
        neutral=0,
        ge=0,
        le=16,
    )
    clip_norm: float = knob(1.0, "Largest global gradient norm; 0 does not clip.", neutral=0.0, ge=0)
    precision: Literal["fp32", "bf16"] = knob("bf16", "fp32, or bfloat16 autocast over fp32 weights.")
    optimizer: Optimizer = knob(Optimizer(peak_lr=2e-5), "The optimiser; its moments start anew.")
    schedule: Schedule = knob(Schedule(warmup_fraction=0.1), "The learning rate over all epochs.")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.first and self.from_scratch:
            raise ValueError("from_scratch starts from random weights, not from those of the task in first")
        if self.first and self.features is not None:
            raise ValueError("a frozen encoder learns nothing from the task in first; leave out first or features")
        if self.bilstm_layers and self.features is not None:
            raise ValueError("a frozen encoder has features.bilstm_layers of its own; leave out bilstm_layers")
        if self.bilstm_layers and self.first:
            raise ValueError("the BiLSTM is new for each task; leave out first or bilstm_layers")
        if self.word_vectors is not None and not self.from_scratch:
            raise ValueError("word_vectors start a training from scratch: set from_scratch to true, or leave them out")
        if self.word_vectors is not None and self.features is not None:
            raise ValueError("a frozen encoder that starts from word_vectors is random above them; leave out features")
        return self

    def resolved(self) -> Self:
        """Without dropout inside an encoder that is frozen: its features are computed without any."""
        settings = super().resolved()
        frozen = settings.features is not None and settings.encoder_dropout is not None
        return settings.model_copy(update={"encoder_dropout": None}) if frozen else settings

    def flops_per_sequence(self, model: Transformer, length: int, passes: float) -> float:
        """FLOPs of presenting a sequence once in training, backward = 2 x forward; the head's are a thousandth.

        A frozen encoder sees each sequence once, forward, however often it is presented.

        Args:
            model: The encoder.
            length: Positions of the sequence.
            passes: How often each sequence is presented in all.
        """
        forward = model.flops_per_sequence(length)
        if self.features is None:
            return 3.0 * (forward + _bilstm_flops(model.width, model.width // 2, self.bilstm_layers, length))
        return forward / passes + 3.0 * self.features.flops_per_sequence(model.width, length)

    def reading(self, direction: Direction) -> Self:
        """These settings with ``pooling`` as it is by default for a model that reads in some direction.

        A BiLSTM has read all of a text at its ends, whatever the model below it has. Frozen features may be several
        layers side by side, whose halves are no two readers: of two stacks the one from the right is read, at its end.
        """
        default = {"left_to_right": "last", "two_way": "ends"}.get(direction, "first")
        if self.bilstm_layers:
            default = "ends"
        elif self.features is not None and default == "ends":
            default = "first"
        return self if self.pooling else self.model_copy(update={"pooling": default})

    def check_length(self, max_positions: int) -> None:
        """Compares ``max_length`` with the rows of a model's position table, 0 where it has none.

        Raises:
            ConfigError: When the table is too short, naming both.
        """
        if max_positions and self.max_length > max_positions:
            raise ConfigError(
                [
                    f"finetuning.max_length {self.max_length} is longer than model.max_positions {max_positions}: "
                    "lower the one, or pretrain with more positions"
                ]
            )
