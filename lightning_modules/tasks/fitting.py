"""Whether a fine-tuning fits its task and the model that it starts from; known before anything is loaded."""

from lightning_modules import languages
from lightning_modules.batch import RECURRENT_STATES, SOURCE
from lightning_modules.config import ConfigError, Problem, did_you_mean, diff
from lightning_modules.model import Transformer
from lightning_modules.parents import OF_TASK, SEED, parts, wrong_seed
from lightning_modules.system import System
from lightning_modules.tasks import unlabelled
from lightning_modules.tasks.reading.layout import LAYOUTS
from lightning_modules.tasks.settings import FineTuning
from lightning_modules.tasks.shapes.texts import Texts
from lightning_modules.tasks.table import TASKS, task_named

_OF_ROWS = ("max_length", "layout", "both_orders", "validation_share")  # what says which rows there are
_OF_STUDENTS = ("distillation", "weight_pruning", "validation_share")  # what no teacher has, or must not change
_WITHOUT_WEIGHTS = ("learned", "sinusoidal", "rotary", "none")  # positions of which attention has no weights


def check(system: System, task: str, settings: FineTuning) -> None:
    """Checks what the settings ask of the task and of the pretrained system.

    Raises:
        ConfigError: With every problem, its path below ``finetuning``.
    """
    if SOURCE in system.model.supports:
        kind = system.model.get("kind")
        text = f"reads one sequence, and model.kind {kind} reads a source and a target: choose another model"
        raise ConfigError([Problem(f"finetuning.{task}", text)])
    if text := _cut(system, settings):
        raise ConfigError([Problem("finetuning.layers_kept", text)])
    whole, system = system, settings.cut(system)
    other = settings.masking.mask_task if settings.masking else ""
    wrong = [_layout(name, settings) for name in (task, settings.first, other) if name]
    wrong += [_segments(system, settings), _language_model(system, settings), _transferred(system, settings)]
    wrong += [
        _clustered(system, settings),
        _without_table(system, settings),
        _mixed(system, settings),
        _in_windows(system, task, settings),
        _backward(system, task, settings),
        _carried(system, settings),
        _headless(system, settings),
        _quantized(system, settings),
    ]
    found = [Problem(f"finetuning.{path}", text) for path, text in filter(None, wrong)]
    found += _taught(whole, task, settings)
    found += [
        Problem("model.languages", text) for name in (task, settings.first) if name and (text := _foreign(system, name))
    ]
    if found:
        raise ConfigError(found)


def _cut(system: System, settings: FineTuning) -> str:
    """Why a model has no such layers to keep; empty if it has."""
    model, kept = system.model, settings.layers_kept or ()
    if kept and not isinstance(model, Transformer):
        return f"cuts layers out of a transformer, and this model is {model.described}: leave it out"
    if absent := [layer for layer in kept if not 0 <= layer < model.depth]:
        return f"has {', '.join(map(str, absent))}, and the model has the layers 0 to {model.depth - 1}"
    return ""


def _foreign(system: System, task: str) -> str:
    """Why a model with embeddings of languages cannot read the texts of a task; empty if it can."""
    known, named = languages.of(system.model), task_named(task).languages
    if not known:
        return ""
    if not named:
        return (
            f"{', '.join(known)} have embeddings, and {task} names no language of its texts: set it to [], or state "
            f"languages of the task, for example languages=({known[0]!r}, {known[0]!r})"
        )
    lacking = [language for language in dict.fromkeys(named) if language not in known]
    if not lacking:
        return ""
    return (
        f"{', '.join(known)} have embeddings, and {task} has texts in '{lacking[0]}'.{did_you_mean(lacking[0], known)}"
    )


def _taught(system: System, task: str, settings: FineTuning) -> list[Problem]:
    """Why a teacher cannot teach this task, or cannot read what its student reads."""
    taught = settings.taught
    if taught is None:
        return []
    here = "finetuning.distillation"
    described = parts(taught.teacher)
    if not task_named(task).shape.taught or settings.span_beam:
        text = f"{task} with span_beam" if settings.span_beam else task
        return [Problem(here, f"compares logits of answers, which {text} has not: leave it out for this task")]
    if text := unlabelled.problem(task, settings):
        return [Problem(f"{here}.unlabelled", text)]
    if text := wrong_seed(taught.teacher):
        return [Problem(f"{here}.teacher.{SEED}", text)]
    if described.task is not None and described.task not in TASKS:
        hint = did_you_mean(str(described.task), TASKS)
        return [Problem(f"{here}.teacher.task", f"there is no task {described.task!r}.{hint}")]
    own = {path for path in described.finetuning if path.partition(".")[0] in _OF_STUDENTS}
    wrong = {f"{OF_TASK}{path}": "is of the student alone. Leave it out" for path in own}
    try:
        teacher = settings.teacher_of(system, task)
        assert teacher is not None
        check(*teacher)
    except ConfigError as error:
        return [Problem(".".join(filter(None, (here, "teacher", p.path))), p.message) for p in error.problems]
    theirs, asked, tuned = teacher
    wrong |= _other_answers(task, asked) | _other_rows(system, theirs, settings, tuned)
    return [Problem(f"{here}.teacher.{path}", text) for path, text in wrong.items()]


def _other_answers(task: str, asked: str) -> dict[str, str]:
    """In what the answers of a teacher's task differ, by path."""
    ours, theirs = task_named(task).shape, task_named(asked).shape
    same = [(type(shape), shape.reads, shape.classes, shape.labels) for shape in (ours, theirs)]
    if same[0] == same[1]:
        return {}
    if same[0][:3] != same[1][:3]:
        return {"task": f"{asked} asks in another form than {task}. Leave it out"}
    given = [", ".join(shape.labels) for shape in (ours, theirs)]
    return {"task": f"{asked} has other answers ({given[1]}) than {task} ({given[0]}). Leave it out"}


def _other_rows(system: System, other: System, settings: FineTuning, tuned: FineTuning) -> dict[str, str]:
    """In what the rows of a teacher differ, which reads those of its student, by path."""
    both = "must be as here: both read the same batch"
    wrong = {OF_TASK + name: both for name in _OF_ROWS if getattr(tuned, name) != getattr(settings, name)}
    if tuned.features is not None:
        wrong[f"{OF_TASK}features"] = "keep no model that could teach. Leave them out"
    for path in diff(system.data.tokenized_by, other.data.tokenized_by):
        wrong[f"data.tokenizer.{path}"] = "must be as here, or ids would mean other words"
    if other.model.longest and settings.max_length > other.model.longest:
        text = f"is {other.model.longest}, and rows have up to {settings.max_length} positions: lower max_length"
        wrong["model.max_positions"] = text
    if system.reads_characters != other.reads_characters:
        wrong["model.characters"] = both
    if system.reads_backward != other.reads_backward:
        wrong["format.sentence_order"] = both
    if languages.of(system.model) != languages.of(other.model):
        wrong["model.languages"] = both
    return wrong


def _layout(task: str, settings: FineTuning) -> tuple[str, str] | None:
    shape = task_named(task).shape
    if settings.layout in shape.layouts:
        return None
    row = LAYOUTS[settings.layout].words[1]
    return "layout", (
        f"{task} is answered from single positions, which {settings.layout} has no rows for ({row}). Its rows are "
        f"{' or '.join(sorted(shape.layouts))}: set finetuning.{task}.layout to it, or leave out {task}."
    )


def _segments(system: System, settings: FineTuning) -> tuple[str, str] | None:
    rows, needed = system.model.get("segment_types"), LAYOUTS[settings.layout].segments
    if rows < 2 or rows >= needed:
        return None
    return "layout", (
        f"{settings.layout} numbers {needed} segments, and model.segment_types is {rows}: pretrain with 0, 1 or "
        f"{needed}, or choose another layout"
    )


def _clustered(system: System, settings: FineTuning) -> tuple[str, str] | None:
    if system.model.size(1).divisor == 1 or not (settings.word_vectors or LAYOUTS[settings.layout].new):
        return None
    path = "word_vectors" if settings.word_vectors else "layout"
    what = "places static vectors in" if settings.word_vectors else "adds symbols to"
    return path, f"{what} one word table, and model.embedding_divisor makes several: leave it out, or pretrain with 1"


def _without_table(system: System, settings: FineTuning) -> tuple[str, str] | None:
    needed = {"word_vectors": settings.word_vectors, "layout": LAYOUTS[settings.layout].new, "window": settings.window}
    if not system.reads_characters or not any(needed.values()):
        return None
    path = next(name for name, value in needed.items() if value)
    what = {
        "word_vectors": "places static vectors in a word table",
        "layout": "adds symbols to a word table",
        "window": "cuts words where a window ends",
    }
    return path, f"{what[path]}, and model.characters reads whole words without one: leave it out"


def _mixed(system: System, settings: FineTuning) -> tuple[str, str] | None:
    model = system.model
    if settings.features is None or len({model.layer_width(layer) for layer in range(model.depth + 1)}) == 1:
        return None
    widths = sorted({model.layer_width(layer) for layer in settings.features.chosen(model.depth)})
    if len(widths) <= 1:
        return None
    return "features.layers", (
        f"{settings.features.layers} mixes layers of one width, and these have {' and '.join(map(str, widths))}: set "
        "it to last, or pretrain with model.output_size null"
    )


def _carried(system: System, settings: FineTuning) -> tuple[str, str] | None:
    if settings.features is None or not settings.features.carried or RECURRENT_STATES in system.model.supports:
        return None
    return "features.carried", (
        f"carries the states of an LSTM from text to text, and this model is {system.model.described}: leave it out, "
        "or pretrain with model.kind lstm"
    )


def _headless(system: System, settings: FineTuning) -> tuple[str, str] | None:
    """Heads are removed with their weights, so each must have its own."""
    pruning, model = settings.removal, system.model
    if pruning is None:
        return None
    if not model.total_heads:
        return "head_pruning", (
            f"removes attention heads, and this model has none: {model.described}. Leave it out, or pretrain with "
            "model.kind transformer"
        )
    if (positions := model.get("positions")) not in _WITHOUT_WEIGHTS:
        return "head_pruning", (
            f"removes a head with its weights, and positions {positions} have some for all heads together. Leave it "
            "out, or pretrain with model.positions learned, sinusoidal, rotary or none"
        )
    if model.get("segment_relation"):
        return "head_pruning", (
            "removes a head with its weights, and model.segment_relation has some for all heads together: leave it out"
        )
    if not pruning.removed(model.total_heads):
        return "head_pruning.share", (
            f"{pruning.share:g} of {model.total_heads} heads is less than half a head: give "
            f"{1 / model.total_heads:.3g} or more"
        )
    return None


def _quantized(system: System, settings: FineTuning) -> tuple[str, str] | None:
    """A packed matrix is no tensor, so it must be used as a whole."""
    model = system.model
    if settings.quantization is None or (model.total_heads and model.get("positions") in _WITHOUT_WEIGHTS):
        return None
    return "quantization", (
        "packs whole matrices, and this model uses parts of some: leave it out, or pretrain with model.kind "
        "transformer and model.positions learned, sinusoidal, rotary or none"
    )


def _in_windows(system: System, task: str, settings: FineTuning) -> tuple[str, str] | None:
    if settings.window is None:
        return None
    model, shape = system.model, task_named(task).shape
    if RECURRENT_STATES not in model.supports or model.direction != "left_to_right":
        return "window", (
            f"{settings.window} carries the states of an LSTM that reads from left to right. This model is "
            f"{model.described}: leave it out, or pretrain with model.kind lstm and model.direction left_to_right"
        )
    if not isinstance(shape, Texts):
        return "window", f"{settings.window} reads a text as a whole, and {task} has no such answer: leave it out"
    return None


def _backward(system: System, task: str, settings: FineTuning) -> tuple[str, str] | None:
    """Texts are reversed whole, as those of pretraining, so each must be read alone."""
    wrong = [name for name in (task, settings.first) if name and not _is_single(name)]
    if not system.reads_backward or not wrong:
        return None
    return "layout", (
        f"{wrong[0]} is not answered by a single text. This model reads reversed text (format.sentence_order "
        "backward). Choose a task of single texts, such as sst2 or imdb, or set format.sentence_order to text"
    )


def _is_single(task: str) -> bool:
    shape = task_named(task).shape
    return isinstance(shape, Texts) and not shape.pair


def _language_model(system: System, settings: FineTuning) -> tuple[str, str] | None:
    lm = system.objectives.lm
    if not settings.auxiliary_lm or (lm is not None and lm.direction == "left_to_right"):
        return None
    objectives = ", ".join(name for name, _ in system.objectives.present())
    trained = f"to read {lm.direction}" if lm else f"by {objectives}, not to predict next tokens"
    return "auxiliary_lm", (
        f"{settings.auxiliary_lm:g} continues with a left-to-right language model, and this one was pretrained "
        f"{trained}: set it to 0, or pretrain with objectives.lm.direction left_to_right"
    )


def _transferred(system: System, settings: FineTuning) -> tuple[str, str] | None:
    count, model = settings.layers_transferred, system.model
    if count is None:
        return None
    if count > model.depth:
        stack = "each stack" if model.stacks > 1 else "the model"
        text = f"{count} is more than the {model.depth} layers of {stack}. Give 0 to {model.depth}."
        return "layers_transferred", text
    whole = [n for n in range(model.depth + 1) if not model.shared_across(n)]
    if count in whole:
        return None
    return "layers_transferred", (
        f"{count} would part layers that share their weights (model.sharing {model.get('sharing')}). Give "
        f"{', '.join(map(str, whole))}."
    )
