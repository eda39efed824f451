"""What a teacher and its student need of each other, checked before anything trains."""

from collections.abc import Mapping

from lightning_modules.batch import CHARACTERS
from lightning_modules.config import ConfigError, Problem
from lightning_modules.data import InputFormat
from lightning_modules.model import AnyBackbone
from lightning_modules.objectives import Distillation, Objectives

KNOB = "objectives.distillation.teacher"


def check(
    settings: Distillation,
    form: InputFormat,
    student: AnyBackbone,
    teacher: AnyBackbone,
    taught: Objectives,
    pieces: Mapping[str, str],
) -> None:
    """Checks that a teacher can read what its student reads, and that what they say can be compared.

    Args:
        pieces: In what the teacher's tokenizer differs, and why it must not, by path.

    Raises:
        ConfigError: With every reason, its path below ``objectives.distillation.teacher``.
    """
    wrong = dict(pieces)
    if taught.mlm is None:
        wrong["objectives.mlm"] = "is null, so the teacher has no distribution over masked words"
    if lacking := form.gives - teacher.supports:
        wrong["model"] = f"does not support what format gives: {', '.join(sorted(lacking))}"
    if form.kind == "stream":
        wrong["format.kind"] = "is stream, whose rows continue from step to step. A teacher reads each step by itself"
    if teacher.longest and form.longest > teacher.longest:
        wrong["model.max_positions"] = f"is {teacher.longest}, and the student reads {form.longest} positions"
    if (CHARACTERS in teacher.supports) != (CHARACTERS in student.supports):
        wrong["model.characters"] = "must be as here: both read the same batch"
    problems = [Problem(f"{KNOB}.{path}", message) for path, message in wrong.items()]
    ours, theirs = settings.projection or student.width, teacher.width
    if settings.cosine and ours != theirs:
        text = f"the teacher's last states are {theirs} wide, and the student's {ours}. Set it to {theirs}"
        problems.append(
            Problem("objectives.distillation.projection", f"{text}, or objectives.distillation.cosine to 0")
        )
    if problems:
        raise ConfigError(problems)


def flops(settings: Distillation, teacher: AnyBackbone, vocab_size: int, hidden: float, positions: int) -> float:
    """FLOPs of a teacher's forward pass over a sequence, and of its distribution where that is compared.

    Args:
        vocab_size: Pieces of both vocabularies.
        hidden: Expected positions of the sequence that are hidden and predicted.
    """
    size = teacher.size(vocab_size)
    asked = (positions if settings.positions == "all" else hidden) * bool(settings.distribution)
    distribution = asked * 2.0 * size.embedding_size * (size.hidden_size + size.vocab_size)
    return teacher.flops_per_sequence(positions) + distribution
