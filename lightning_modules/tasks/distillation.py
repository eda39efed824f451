"""Distillation at the task: a fine-tuned teacher's answers, with the labels (Hinton et al. 2015, Sanh et al. 2019)."""

from typing import Any, Self

from pydantic import model_validator

from lightning_modules.config import Settings, canonical, knob


class TaskDistillation(Settings):
    """Learn a task from the answers of a fine-tuned teacher, which reads the same batch, as well as from labels.

    With p the teacher's distribution over answers at temperature T, and q the student's, the loss is::

        (1 - weight) * (loss of the labels)  +  weight * T^2 * KL(p || q)

    The first is the mean over examples with a label, the second over all. In regression the second is the squared
    difference of both answers, without a temperature. Of a span it is the mean of both ends. T^2 keeps the size of the
    gradient (Hinton et al. 2015, section 2). Defaults are those of DistilBERT's second step (Sanh et al. 2019, section
    3, and ``run_squad_w_distillation.py`` of the released code). There the teacher's distribution over positions
    includes padding. Here it does not.

    The teacher is frozen, without dropout, and a parent of the fine-tuning. Its forward passes are part of each step.
    """

    teacher: dict[str, Any] = knob(
        {},
        "Knob -> value: in what the teacher differs, all else being as here but for this distillation. Knobs of its "
        "fine-tuning begin with finetuning., and the others are of its pretraining. That is no student and continues "
        "nothing unless they say so. Its task and its seed are those of the run unless task and seed name "
        "others. It has the same tokenizer, reads the same rows and chooses among the same answers.",
    )
    weight: float = knob(0.5, "Share of the teacher in the loss. Labels have the rest. No teacher with 0.", ge=0, le=1)
    temperature: float = knob(2.0, "Temperature of both distributions. Regression has none.", gt=0)
    unlabelled: str | None = knob(
        None,
        "Further texts, whose only labels are the teacher's answers: a corpus, or the training texts of a task. Of the "
        "task itself these are the examples that train_examples leaves out. Texts of the dev set are left out. By "
        "default there are none. Only for tasks of texts.",
        neutral=None,
    )
    unlabelled_examples: int | None = knob(
        None, "Number of such texts, sampled by the seed. By default all.", neutral=None, ge=1
    )

    def __hash__(self) -> int:
        return hash(canonical(self.to_dict()))  # a mapping has no hash of its own

    @model_validator(mode="after")
    def _has_texts_to_count(self) -> Self:
        if self.unlabelled_examples is not None and self.unlabelled is None:
            raise ValueError("unlabelled_examples counts texts that unlabelled names: give it, or leave both out")
        return self
