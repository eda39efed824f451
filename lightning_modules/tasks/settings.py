"""The settings of a fine-tuning."""

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import AliasChoices, model_validator

from lightning_modules.batch import Direction
from lightning_modules.config import ConfigError, Problem, Settings, knob
from lightning_modules.data.word_vectors import WordVectors
from lightning_modules.objectives import LanguageModel
from lightning_modules.parents import ALONE, OF_TASK, Role, parts, replaced
from lightning_modules.tasks.distillation import TaskDistillation
from lightning_modules.tasks.reading.layout import LAYOUTS, LayoutName
from lightning_modules.tasks.reading.text_vectors import FOLDED, ReaderName
from lightning_modules.training.optimizers import Freezing, Optimizer, Schedule, trained

if TYPE_CHECKING:
    from lightning_modules.system import System

# settings that act on some shapes of tasks alone (`Shape.idle`) -> their neutral values
_MOMENTS = 64  # of an epoch at which is looked up what learns
OF_SOME_SHAPES = {
    "reader": None, "pooler": True, "hidden_layer": None, "mean_label": False, "both_orders": False, "span_beam": None,
}  # fmt: skip


_PRETRAINED: dict[str, Any] = {"task": ""}
_UNPRUNED: dict[str, Any] = {"finetuning.weight_pruning": None}


class Features(Settings):
    """A frozen pretrained encoder: a mixture of its layers feeds a BiLSTM, and that the task's head.

    Six choices of layers are those of Devlin et al. (2019, Table 7). Two choices fill gaps of the paper: weights
    of sums are learned as in ELMo (`layers.scalar_mix`), and the "768-dimensional" size of the BiLSTM is that of each
    direction. The sum with embeddings, its places and what else acts on it are those of Peters et al. (2018, sections
    3.2 and 3.3), whose network reads static word vectors as well.
    """

    layers: Literal[
        "embeddings",
        "second_to_last",
        "last",
        "weighted_sum_last_four",
        "concat_last_four",
        "weighted_sum_all",
        "weighted_sum_with_embeddings",
        "none",
    ] = knob(
        "concat_last_four",
        "Layers that serve as features. With weighted_sum_all these are all but the embeddings. With none the network "
        "reads the static vectors alone.",
    )
    place: Literal["input", "output", "both"] = knob(
        "input",
        "Where the mixture is read: by the BiLSTM (input), by the head with the BiLSTM's states (output), or both. "
        "Each place has weights of its own.",
        neutral="input",
    )
    vectors: WordVectors | None = knob(
        None,
        "Static word vectors of the pretraining text, which the BiLSTM reads with the mixture. They are as wide as the "
        "model's embeddings and do not learn.",
        neutral=None,
    )
    mix_norm: bool = knob(
        False,
        "Normalise each layer of a weighted sum before it is weighed, over all positions and units of a batch.",
        neutral=False,
    )
    mix_decay: float = knob(
        0.0,
        "L2 penalty on the weights of a weighted sum, lambda: 0.001 leaves them free in ELMo, and 1 makes a mean of "
        "the layers.",
        neutral=0.0,
        ge=0,
    )
    mix_dropout: float = knob(0.0, "Dropout on the mixture (0.5 in ELMo).", neutral=0.0, ge=0, lt=1)
    carried: bool = knob(
        False,
        "Read each batch of an LSTM from the states after the batch before, as the released code of ELMo does. A text "
        "then has other features in another place. By default each text begins from zero.",
        neutral=False,
    )
    bilstm_layers: int = knob(2, "Layers of the BiLSTM. With 0 the head reads the mixture directly.", ge=0, le=16)
    bilstm_size: int = knob(768, "Width of each direction of the BiLSTM.", ge=1, le=1 << 16)

    @model_validator(mode="after")
    def _has_what_it_reads(self) -> Self:
        if self.layers == "none" and (self.vectors is None or self.place != "input"):
            raise ValueError("layers none reads static vectors alone: give vectors and leave place at input")
        if self.place != "input" and not self.bilstm_layers:
            raise ValueError(f"place {self.place} is at the output of a BiLSTM: set bilstm_layers to 1 or more")
        if self.place == "output" and self.vectors is None:
            raise ValueError("with place output the BiLSTM reads static vectors alone: give vectors, or set it to both")
        return self

    def resolved(self) -> Self:
        """A BiLSTM without layers has no size, and layers that are not weighed have no weights."""
        full: dict[str, Any] = {} if self.bilstm_layers else {"bilstm_size": 0}
        if "weighted" not in self.layers:
            full |= {"mix_norm": False, "mix_decay": 0.0}
        if self.layers == "none":
            full |= {"mix_dropout": 0.0, "carried": False}
        return self.model_copy(update=full) if full else self

    @property
    def untouched(self) -> bool:
        """Whether the head reads the last layer directly, as in fine-tuning."""
        return self.layers == "last" and not self.bilstm_layers and self.vectors is None

    def chosen(self, depth: int) -> tuple[int, ...]:
        """The chosen layers of an encoder of that depth: 0 is the embeddings' output, ``depth`` the last layer.

        Raises:
            ConfigError: When the encoder has too few layers.
        """
        count = {"second_to_last": 2, "weighted_sum_last_four": 4, "concat_last_four": 4}.get(self.layers, 1)
        if depth < count:
            text = f"finetuning.features.layers {self.layers} takes {count} layers. The encoder is {depth} deep."
            raise ConfigError([text])
        if self.layers == "none":
            return ()
        if self.layers == "weighted_sum_with_embeddings":
            return tuple(range(depth + 1))
        if self.layers in ("embeddings", "second_to_last", "last"):
            return ({"embeddings": 0, "second_to_last": depth - 1, "last": depth}[self.layers],)
        return tuple(range(1 if self.layers == "weighted_sum_all" else depth - 3, depth + 1))

    def widths(self, hidden_size: int, of_vectors: int = 0) -> tuple[int, int]:
        """Widths of what the BiLSTM reads and of the head's input."""
        mixed = hidden_size * {"concat_last_four": 4, "none": 0}.get(self.layers, 1)
        read = mixed * (self.place != "output") + of_vectors * (self.vectors is not None)
        return read, 2 * self.bilstm_size + mixed * (self.place != "input") if self.bilstm_layers else read

    def flops_per_sequence(self, hidden_size: int, length: int, of_vectors: int = 0) -> float:
        """FLOPs of the BiLSTM's matrix products in a forward pass."""
        return _bilstm_flops(self.widths(hidden_size, of_vectors)[0], self.bilstm_size, self.bilstm_layers, length)


def _bilstm_flops(read: int, size: int, layers: int, length: int) -> float:
    """FLOPs of the matrix products of a BiLSTM with inputs of width ``read`` in a forward pass."""
    total = 0
    for layer in range(layers):
        total += 2 * 2 * 4 * size * ((2 * size if layer else read) + size)  # two directions of four gates, 2 a weight
    return float(length * total)


class SpanBeam(Settings):
    """Answers whose ends are predicted given their starts (XLNet's released code, see `SpanBeamHead`)."""

    starts: int = knob(5, "Best starts of a row that are gone on from (start_n_top).", ge=1, le=512)
    ends: int = knob(5, "Best ends that are kept for each of them (end_n_top).", ge=1, le=512)


class HiddenLayer(Settings):
    """A layer of ULMFiT's classifier: batch norm, dropout, linear, ReLU, batch norm (Howard and Ruder 2018, 3.3).

    Sizes and order are those of the released code.
    """

    units: int = knob(50, "Its units.", ge=1, le=1 << 16)
    dropout: float = knob(0.4, "Dropout on what it reads.", ge=0, lt=1)


class HeadPruning(Settings):
    """Attention heads that are removed after a fine-tuning, which is not trained on (Michel et al. 2019)."""

    share: float = knob(0.5, "Share of all heads that are removed, rounded to whole heads. None with 0.", ge=0, le=1)
    order: Literal["importance", "random"] = knob(
        "importance",
        "Which go first. By importance these are the heads that change the loss of the training examples least, by its "
        "gradient. It is computed again after each tenth of the heads. A random order is drawn by the seed.",
    )

    def removed(self, heads: int) -> int:
        """How many of so many heads are removed."""
        return round(self.share * heads)

    def each_round(self, heads: int) -> int:
        """How many a round removes: a tenth of all heads, at least one."""
        return max(1, round(heads / 10))

    def passes(self, heads: int) -> int:
        """Passes over the training examples, one a round where importances are computed."""
        return -(-self.removed(heads) // self.each_round(heads)) if self.order == "importance" else 0


class WeightPruning(Settings):
    """Weights that are removed before a fine-tuning and stay 0 in it (Chen et al. 2020, Renda et al. 2020)."""

    share: float = knob(
        0.5,
        "Share of the weights of attention and feed-forward matrices that is removed. None with 0. All with 1, the "
        "control without a layer.",
        ge=0,
        le=1,
    )
    mask_from: str = knob(
        "task",
        "Whose smallest weights are removed, all matrices together. With task it is the same fine-tuning without "
        "pruning. With pretraining it is the pretrained model. The name of another task is that fine-tuning there.",
    )
    choose: Literal["magnitude", "random"] = knob(
        "magnitude",
        "Remove the smallest weights, or the same number of each matrix at random, drawn by the seed, as a control.",
    )
    weights: Literal["rewound", "kept", "redrawn"] = knob(
        "rewound",
        "What the weights that stay start from. Rewound ones are pretrained. Kept ones are those that the mask is made "
        "from, with the head. Redrawn ones are random, as a control.",
    )
    rewind_to: int | None = knob(
        None,
        "Rewind to the pretraining after so many of its steps, which is trained as a run of its own. By default to its "
        "end.",
        neutral=None,
        ge=1,
    )
    rate: float = knob(
        1.0,
        "Factor on the learning rate of trainings under a mask. With 1.0, kept weights see the whole schedule again. "
        "That rewinds the rate. With 0.1 they are trained on gently.",
        neutral=1.0,
        gt=0,
        le=1,
    )
    rounds: int = knob(
        1,
        "Rounds in which the share is reached, each a training whose weights make the next mask. All remove the same "
        "number of weights.",
        neutral=1,
        ge=1,
        le=64,
    )
    round: int | None = knob(
        None, "Which of the rounds this is, as a training of its own. By default the last one.", neutral=None, ge=1
    )

    @model_validator(mode="after")
    def _has_the_round(self) -> Self:
        if self.round is not None and self.round > self.rounds:
            raise ValueError(
                f"round {self.round} is after the last of rounds {self.rounds}: give at most {self.rounds}"
            )
        if self.rounds > 1 and (self.mask_from, self.choose) != ("task", "magnitude"):
            raise ValueError(
                "every round makes its mask from the training before it. With rounds above 1, set mask_from to task "
                "and choose to magnitude."
            )
        if self.weights == "kept" and self.mask_from == "pretraining":
            raise ValueError("the weights that a mask from pretraining is made from are the pretrained: use rewound")
        if self.weights == "kept" and self.mask_from != "task":
            raise ValueError("weights that another task has trained, with its head, cannot be kept: use rewound")
        if self.rewind_to is not None and self.weights != "rewound":
            raise ValueError(f"weights {self.weights} are not rewound, so rewind_to has no effect. Leave it out.")
        return self

    def resolved(self) -> Self:
        """Without the number of the last round."""
        return self.model_copy(update={"round": None}) if self.round == self.rounds else self

    @property
    def number(self) -> int:
        """The number of this round."""
        return self.rounds if self.round is None else self.round

    @property
    def sparsity(self) -> float:
        """The share that this round has removed."""
        return self.share * self.number / self.rounds

    @property
    def parents(self) -> dict[Role, dict[str, Any]]:
        """The runs whose weights make the mask and are started from."""
        before = {"finetuning.weight_pruning.round": self.number - 1} if self.number > 1 else _UNPRUNED
        others: dict[str, dict[str, Any]] = {"task": before, "pretraining": _PRETRAINED}
        untaught = {"task": self.mask_from, "finetuning.distillation": None}
        mask = others.get(self.mask_from, untaught | _UNPRUNED)
        if self.weights == "redrawn":
            return {"mask": mask}
        early = {} if self.rewind_to is None else {"training.stop_after": self.rewind_to}
        return {"start": mask if self.weights == "kept" else _PRETRAINED | early, "mask": mask}

    @property
    def mask_task(self) -> str:
        """The other task whose fine-tuning makes the mask; empty without one."""
        return "" if self.mask_from in ("task", "pretraining") else self.mask_from


class FineTuning(Settings):
    """Everything that determines a fine-tuning except model, task and seed.

    Defaults are BERT's (Devlin et al. 2019, section 4.1 and appendix A.3): 3 epochs in batches of 32, rate 2e-5,
    warm-up over a tenth of the steps. The score of the last epoch counts; no epoch is chosen by the dev set.
    """

    epochs: int = knob(3, "Passes over the training examples.", ge=1, le=64)
    steps: int | None = knob(
        None,
        "Optimiser steps, for papers that give these instead of epochs. By default those of the epochs.",
        neutral=None,
        ge=1,
    )
    batch_size: int = knob(32, "Examples per optimiser step.", ge=1, le=1 << 20)
    max_length: int = knob(
        128, "Maximum positions of an example, special tokens included. Longer examples are cut.", ge=8, le=1 << 20
    )
    window: int | None = knob(
        None,
        "Positions that are read at a time, with the states carried to the next ones. Documents of any length then "
        "take bounded memory, and gradients stay within a window (Howard and Ruder 2018, section 3.3). By default a "
        "row is read as a whole. Needs an LSTM that reads from left to right.",
        neutral=None,
        ge=8,
        le=1 << 20,
    )
    train_examples: int | None = knob(
        None, "Number of training examples, sampled by the seed. By default all.", neutral=None, ge=1
    )
    validation_share: float | None = knob(
        None,
        "Share of the training examples, 2,000 at most, that is not trained on and scored in place of the dev set. "
        "Only for the trials of a search (search.set), so that no reported score chooses a recipe.",
        neutral=None,
        gt=0,
        lt=1,
    )
    dropout: float = knob(0.1, "Dropout on the pooled vector that the classifier reads.", ge=0, lt=1)
    encoder_dropout: float | None = knob(
        None,
        "All dropout rates of the encoder during fine-tuning (ALBERT, Table 14). By default those of pretraining.",
        neutral=None,
        ge=0,
        lt=1,
    )
    from_scratch: bool = knob(
        False,
        "Start from random instead of pretrained weights, as a control.",
        neutral=False,
    )
    word_vectors: WordVectors | None = knob(
        None,
        "With from_scratch: initialise the embedding table with static word vectors of the pretraining text. "
        "By default it is random.",
        neutral=None,
    )
    first: str | None = knob(
        None,
        "Fine-tune on this task first, with the same settings, for example mnli before rte "
        "(Liu et al. 2019, section 5.1).",
        neutral=None,
    )
    layers_kept: tuple[int, ...] | None = knob(
        None,
        "Layers of the pretrained encoder that are kept, from 0: a student cut out of it, as DistilBERT is. By default "
        "all. Needs a transformer.",
        neutral=None,
        min_length=1,
    )
    layers_transferred: int | None = knob(
        None,
        "Layers that start from pretrained weights, counted from the first: the embeddings and these. Those above and "
        "a last normalisation start as random as in from_scratch (Radford et al. 2018, Figure 2). By default all.",
        neutral=None,
        ge=0,
    )
    freezing: Freezing = knob(
        "none",
        "Layers that do not learn. All learn (none), or only the head and what is above the last layer (last). "
        "With gradual these learn in the first epoch, and one more layer from the top in each further one (ULMFiT). "
        "With chain_thaw the head learns, then each layer alone from the embeddings upwards, then all. Each takes the "
        "same share of the steps, and all but the head learn at a tenth of the rate (Felbo et al. 2017).",
        neutral="none",
    )
    features: Features | None = knob(
        None, "Freeze the encoder and use its layers as features. By default it is trained with the head.", neutral=None
    )
    layout: LayoutName = knob(
        "cls_sep",
        "The symbols of a row: [CLS] a [SEP] b [SEP]. With cls_last a [SEP] b [SEP] [CLS], where [CLS] is a segment "
        "of its own (XLNet). With extract three new ones, [start] a [delimiter] b [extract], whose embeddings start "
        "random (Radford et al. 2018, section 3.3).",
        neutral="cls_sep",
    )
    both_orders: bool = knob(
        False,
        "Show two texts that may change places (MRPC, STS-B, QQP) in both orders, a row each. The classifier reads "
        "the sum of both rows (Radford et al. 2018, section 3.3).",
        neutral=False,
    )
    auxiliary_lm: float = knob(
        0.0,
        "Weight of the pretrained language model's loss on the rows of the task, wrong options included, next to the "
        "task's loss (0.5 in GPT). The model must have been pretrained to predict next tokens.",
        neutral=0.0,
        ge=0,
    )
    reader: ReaderName | None = knob(
        None,
        "What represents a text: the state of the first position ([CLS]) or of the last ([SEP]). With ends it is the "
        "last of the left-to-right stack and the first of the right-to-left one. With mean or max it is that of all "
        "states but padding. With concat last, max and mean are concatenated (Howard and Ruder 2018). With "
        "mean_per_text it is the mean of a single text. Of two, u and v, it has their absolute difference and u * v "
        "besides (Conneau et al. 2017). By default it is a position that has seen the whole text: [extract] or the "
        "last [CLS] in these layouts. Tasks answered from single positions, such as spans and tags, read no text.",
        neutral=None,
        validation_alias=AliasChoices("reader", "pooling"),  # as earlier records call it
    )
    pooler: bool = knob(
        True,
        "A dense layer as wide as the encoder, with tanh, between what represents a text and the classifier (BERT's "
        "pooler).",
        neutral=True,
    )
    hidden_layer: HiddenLayer | None = knob(
        None,
        "A layer between what represents a text and the last linear one, with ReLU and batch norm (ULMFiT). By default "
        "there is none.",
        neutral=None,
    )
    mean_label: bool = knob(
        False,
        "In regression, answer the mean training label at the start (the bias of the last layer) instead of 0. "
        "Moving all answers that far can cost a small encoder what it knew.",
        neutral=False,
    )
    span_beam: SpanBeam | None = knob(
        None,
        "Spans of a passage: predict the end of an answer given its start, by a beam, and apart from both whether "
        "there is one (XLNet). By default start and end are predicted independently (BERT).",
        neutral=None,
    )
    bilstm_layers: int = knob(
        0,
        "Layers of a randomly initialised BiLSTM between encoder and head, trained with both (Devlin et al. 2019, "
        "Table 5). Each direction is half as wide as its input.",
        neutral=0,
        ge=0,
        le=16,
    )
    head_pruning: HeadPruning | None = knob(
        None,
        "Remove attention heads from the model that the other settings train, with their weights, and score what is "
        "left without more training. By default all heads stay. Needs a transformer.",
        neutral=None,
    )
    weight_pruning: WeightPruning | None = knob(
        None,
        "Remove weights of the encoder's matrices before the training, and keep them 0 in it. By default all stay.",
        neutral=None,
    )
    distillation: TaskDistillation | None = knob(
        None, "Learn from the answers of a fine-tuned teacher as well. By default from labels alone.", neutral=None
    )
    quantization: Literal["int8"] | None = knob(
        None,
        "Score the model that the other settings train, without more training, with linear layers of its encoder in "
        "int8. By default they are fp32. This is dynamic quantisation, on a CPU. Needs a transformer.",
        neutral=None,
    )
    clip_norm: float = knob(1.0, "Maximum global gradient norm. No clipping with 0.", neutral=0.0, ge=0)
    precision: Literal["fp32", "bf16"] = knob("bf16", "fp32, or bf16 for bfloat16 autocast over fp32 weights.")
    optimizer: Optimizer = knob(Optimizer(peak_lr=2e-5), "The optimiser. Its moments start from zero.")
    schedule: Schedule = knob(Schedule(warmup_fraction=0.1), "The learning rate over all epochs.")

    def cut(self, system: "System") -> "System":
        """The pretrained system with the layers that are kept."""
        kept = self.layers_kept
        return system if kept is None else replaced(system, "model", system.model.but(num_layers=len(kept)))

    @property
    def keeps_weights(self) -> bool:
        """Whether weights under a mask go on from where they were trained, with the head."""
        return self.masking is not None and self.masking.weights == "kept"

    @property
    def vectors(self) -> WordVectors | None:
        """Static word vectors of the pretraining text that it reads, in its embedding table or as features."""
        return self.word_vectors or (self.features and self.features.vectors)

    @property
    def masking(self) -> WeightPruning | None:
        """The removal of weights; None where all of them stay."""
        return self.weight_pruning if self.weight_pruning is not None and self.weight_pruning.share else None

    @property
    def taught(self) -> TaskDistillation | None:
        """What is learned from a teacher; None where labels alone teach, or nothing is trained."""
        return self.distillation if self.trains and self.distillation is not None and self.distillation.weight else None

    @property
    def trains(self) -> bool:
        """Whether steps are made: not where the model of another fine-tuning is changed and scored."""
        return self.removal is None and self.quantization is None

    @property
    def removal(self) -> HeadPruning | None:
        """The removal of heads; None where all of them stay."""
        return self.head_pruning if self.head_pruning is not None and self.head_pruning.share else None

    @property
    def parents(self) -> dict[Role, dict[str, Any]]:
        """The descriptions of the runs whose weights a fine-tuning reads (`lightning_modules.parents`)."""
        if self.quantization is not None:
            return {"start": {"finetuning.quantization": None}}
        if self.removal is not None:
            return {"start": {"finetuning.head_pruning": None}}
        teacher: dict[Role, dict[str, Any]] = {} if self.taught is None else {"teacher": self._teacher(self.taught)}
        return self._starts | teacher

    @property
    def _starts(self) -> dict[Role, dict[str, Any]]:
        """The descriptions of the runs that a training starts from, and has its mask from."""
        if self.masking is not None:
            return self.masking.parents
        if self.from_scratch:
            return {}
        first = {"task": self.first, **dict.fromkeys((f"{OF_TASK}first", f"{OF_TASK}distillation"))}
        return {"start": first if self.first else _PRETRAINED}

    def _teacher(self, taught: TaskDistillation) -> dict[str, Any]:
        alone = ALONE if parts(taught.teacher).system else {}
        return {**alone, **dict.fromkeys((f"{OF_TASK}distillation", f"{OF_TASK}weight_pruning")), **taught.teacher}

    def teacher_of(self, system: "System", task: str) -> "tuple[System, str, Self] | None":
        """The teacher's system, task and settings; None without a teacher.

        Raises:
            ConfigError: With every bad knob, its path as in the description.
        """
        if self.taught is None:
            return None
        described = parts(self._teacher(self.taught))
        try:
            settings = self.but(**described.finetuning)
        except ConfigError as error:
            raise ConfigError(
                [Problem(OF_TASK + problem.path, problem.message) for problem in error.problems]
            ) from None
        system = system.but(**described.system) if described.system else system
        return system, task if described.task is None else described.task, settings

    @model_validator(mode="after")
    def _is_one_pass_after_another(self) -> Self:
        if self.optimizer.nonmonotone_interval:
            raise ValueError(
                "optimizer.nonmonotone_interval reads the held-out losses of a pretraining, and a fine-tuning has "
                "none. Set it to 0."
            )
        if self.schedule.by_length:
            raise ValueError(
                "schedule.by_length is of a pretraining whose lengths are drawn. Set schedule.by_length to false."
            )
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.first and self.from_scratch:
            raise ValueError(
                "from_scratch starts from random weights, not from the task in first. Leave out one of the two."
            )
        if self.first and self.features is not None:
            raise ValueError("a frozen encoder learns nothing from the task in first. Leave out first or features.")
        if self.bilstm_layers and self.features is not None:
            raise ValueError("a frozen encoder has features.bilstm_layers of its own. Leave out bilstm_layers.")
        if self.bilstm_layers and self.first:
            raise ValueError("the BiLSTM is new for each task. Leave out first or bilstm_layers.")
        if self.word_vectors is not None and not self.from_scratch:
            raise ValueError("word_vectors need from_scratch: set from_scratch to true, or leave out word_vectors")
        self._check_freezing()
        self._check_windows()
        self._check_pruning()
        self._check_frozen()
        if self.layout == "cls_last" and self.reader == "first":
            raise ValueError("reader first reads a word, since layout cls_last has [CLS] last. Set reader to last.")
        if self.layers_transferred is not None and self.from_scratch:
            raise ValueError("from_scratch transfers no layer. Leave out layers_transferred, or from_scratch.")
        if self.layers_transferred is not None and self.first:
            raise ValueError(
                "the task in first has trained all layers, and layers_transferred would discard those above. Leave out "
                "one of the two."
            )
        if self.auxiliary_lm and self.bilstm_layers:
            raise ValueError(
                "the language model's head reads the encoder and not a BiLSTM. Set auxiliary_lm to 0, or leave out "
                "bilstm_layers."
            )
        return self

    def _check_freezing(self) -> None:
        if self.freezing == "none":
            return
        if self.from_scratch or self.features is not None:
            has = "features freeze it whole" if self.features is not None else "from_scratch it starts random"
            raise ValueError(
                f"freezing {self.freezing} keeps what a pretrained encoder knows, and with {has}. Set it to none."
            )
        if self.optimizer.algorithm == "lamb":
            raise ValueError(
                f"freezing {self.freezing} gives layers different steps, and lamb counts one for all. Set it to none."
            )
        if self.freezing == "chain_thaw" and self.optimizer.rate_divisor > 1:
            raise ValueError("freezing chain_thaw has rates of its own. Set optimizer.rate_divisor to 1.")
        if self.freezing == "last" and LAYOUTS[self.layout].new:
            raise ValueError(
                f"the new symbols of layout {self.layout} would stay random with freezing last. Set layout to cls_sep."
            )

    def _check_windows(self) -> None:
        if self.window is None:
            return
        others = {
            "features": self.features is not None,
            "bilstm_layers": self.bilstm_layers,
            "auxiliary_lm": self.auxiliary_lm,
            "first": self.first,
        }
        if given := [name for name, value in others.items() if value]:
            raise ValueError(f"{given[0]} needs all states of a row, and window keeps none. Leave one of the two out.")
        if self.reader is not None and self.reader not in FOLDED:
            allowed = ", ".join(FOLDED)
            raise ValueError(f"reader {self.reader} needs all states of a row, and window keeps none. Use {allowed}.")

    def trained_share(self, depth: int, epochs: float) -> float:
        """The mean share of an encoder's layers that gradients pass through; layers that share weights count apart."""
        if self.freezing == "none":
            return 1.0
        steps = max(1, round(epochs * _MOMENTS))
        lowest = [trained(self.freezing, depth + 2, step, steps, _MOMENTS)[-1] for step in range(steps)]
        return sum(min(group, depth) for group in lowest) / (depth * steps)

    def _check_pruning(self) -> None:
        if self.masking is None:
            return
        others = {
            "features": self.features is not None,
            "head_pruning": self.removal is not None,
            "from_scratch": self.from_scratch,
            "first": self.first,
            "layers_transferred": self.layers_transferred is not None,
            "layers_kept": self.layers_kept is not None,
            "window": self.window is not None,
            "bilstm_layers": self.bilstm_layers,
        }
        if given := [name for name, value in others.items() if value]:
            raise ValueError(
                f"weight_pruning masks an encoder that starts from pretrained weights and is trained whole, which "
                f"{given[0]} is not made for. Leave one of the two out."
            )

    def _check_frozen(self) -> None:
        if self.features is None:
            return
        if self.distillation is not None:
            raise ValueError(
                "features of a frozen encoder are read in place of texts, which a teacher reads. Leave out features or "
                "distillation."
            )
        if self.quantization is not None:
            raise ValueError(
                "a frozen encoder is not kept, so nothing is quantised. Leave out features or quantization."
            )
        if self.removal is not None:
            raise ValueError(
                "head_pruning removes heads of a fine-tuned encoder, and features freeze it. Leave out one of the two."
            )
        if self.word_vectors is not None:
            raise ValueError("with word_vectors the layers of a frozen encoder would stay random. Leave out features.")
        if self.layers_transferred is not None:
            raise ValueError(
                "layers above those in layers_transferred would stay random in a frozen encoder. Leave out features."
            )
        if LAYOUTS[self.layout].new:
            raise ValueError(
                f"the new symbols of layout {self.layout} would stay random in a frozen encoder. Leave out features, "
                "or set layout to cls_sep."
            )
        if self.auxiliary_lm:
            raise ValueError("a frozen encoder learns from no loss. Set auxiliary_lm to 0, or leave out features.")

    def resolved(self) -> Self:
        """Without a removal of nothing, a teacher of no weight, and ``encoder_dropout`` for a frozen encoder.

        Its features are computed without dropout.
        """
        settings = super().resolved()
        if settings.removal is None:
            settings = settings.model_copy(update={"head_pruning": None})
        if settings.masking is None:
            settings = settings.model_copy(update={"weight_pruning": None})
        if settings.distillation is not None and not settings.distillation.weight:
            settings = settings.model_copy(update={"distillation": None})
        frozen = settings.features is not None and settings.encoder_dropout is not None
        return settings.model_copy(update={"encoder_dropout": None}) if frozen else settings

    def flops_per_sequence(self, system: "System", length: int, passes: float) -> float:
        """FLOPs of presenting a sequence once in training, backward = 2 x forward; those of the head are negligible.

        Layers below those that learn have no backward pass (``freezing``).

        A frozen encoder processes each sequence in one forward pass, however often it is presented. The language
        model's head of ``auxiliary_lm`` counts as in pretraining.

        Args:
            passes: How often each sequence is presented in total.
        """
        model = self.cut(system).model
        forward = model.flops_per_sequence(length, memory=0)
        above = _bilstm_flops(model.width, model.width // 2, self.bilstm_layers, length)
        if lm := self.language_model(system):
            above += lm.flops_per_sequence(length, model.size(system.data.tokenizer.vocab_size))
        if self.features is None:
            return 3.0 * (forward + above) - 2.0 * (1.0 - self.trained_share(model.depth, passes)) * forward
        chosen = self.features.chosen(model.depth)
        width = model.layer_width(chosen[0]) if chosen else 0
        above = 3.0 * self.features.flops_per_sequence(width, length, model.table_width)
        return (forward / passes if chosen else 0.0) + above

    def teacher_flops(self, system: "System", length: int) -> float:
        """FLOPs of the teacher's forward pass over a sequence; 0 without a teacher."""
        if (teacher := self.teacher_of(system, "")) is None:
            return 0.0
        model = teacher[2].cut(teacher[0]).model
        above = _bilstm_flops(model.width, model.width // 2, teacher[2].bilstm_layers, length)
        return model.flops_per_sequence(length, memory=0) + above

    def language_model(self, system: "System") -> LanguageModel | None:
        """The objective of pretraining that continues next to the task, with the weight it has here. None without one.

        All tokens of a row predict, whatever part did in pretraining.
        """
        lm = system.objectives.lm
        return lm.but(weight=self.auxiliary_lm, scored="all") if lm and self.auxiliary_lm else None

    def reading(self, direction: Direction) -> Self:
        """These settings with the default ``reader`` of a model that reads in some direction.

        A BiLSTM has read the whole text at its ends, whatever the encoder has. Frozen features may be several
        concatenated layers, whose halves are not the two directions: of two stacks only the right-to-left one is then
        used, at its end.
        """
        return self if self.reader else self.model_copy(update={"reader": self._default_reader(direction)})

    def read_by_default(self, direction: Direction) -> Self:
        """These settings without a ``reader`` that is the default of a model that reads in that direction."""
        spelled_out = self.reader is not None and self.reader == self._default_reader(direction)
        return self.model_copy(update={"reader": None}) if spelled_out else self

    def _default_reader(self, direction: Direction) -> ReaderName:
        seen_all: dict[Direction, ReaderName] = {"left_to_right": "last", "two_way": "ends"}
        default = seen_all.get(direction, "last" if self.layout != "cls_sep" and direction == "both" else "first")
        if self.bilstm_layers:
            return "ends"
        return "first" if self.features is not None and default == "ends" else default

    def check_length(self, max_positions: int) -> None:
        """Checks ``max_length`` against the rows of a model's position table, 0 without a table.

        Raises:
            ConfigError: When the table is too short, naming both.
        """
        if max_positions and self.max_length > max_positions:
            raise ConfigError(
                [
                    f"finetuning.max_length {self.max_length} is longer than model.max_positions {max_positions}: "
                    f"set finetuning.max_length={max_positions}, or pretrain with more positions"
                ]
            )
