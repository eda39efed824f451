"""How a pretrained model is fine-tuned."""

from typing import Literal

from ..config import ConfigError, Settings, knob
from ..optim import Optimizer, Schedule


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
    clip_norm: float = knob(1.0, "Largest global gradient norm; 0 does not clip.", neutral=0.0, ge=0)
    precision: Literal["fp32", "bf16"] = knob("bf16", "fp32, or bfloat16 autocast over fp32 weights.")
    optimizer: Optimizer = knob(Optimizer(peak_lr=2e-5), "The optimiser; its moments start anew.")
    schedule: Schedule = knob(Schedule(warmup_fraction=0.1), "The learning rate over all epochs.")

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
