"""What fits a source and its translation, and what is only of running text."""

from collections.abc import Iterator

from lightning_modules.batch import SOURCE
from lightning_modules.data import Data, InputFormat
from lightning_modules.data.corpora.parallel import SIDES
from lightning_modules.data.corpora.registry import corpus
from lightning_modules.evaluation import Evaluation
from lightning_modules.model import Backbone
from lightning_modules.objectives import Objectives

_WITHOUT_SPACES = ("wordpiece", "letter_bpe")  # pieces of which no text follows: words and signs are apart in all
OF_RUNNING_TEXT = ("pairs", "words", "neighbours", "blocks", "direction", "probes")  # knobs of an evaluation


def check(model: Backbone, objectives: Objectives, form: InputFormat, data: Data, evaluation: Evaluation) -> None:
    """Checks that a system of two sequences can read them, and that one of a single sequence asks for no source.

    Raises:
        ValueError: Naming every knob that is in the way.
    """
    if form.kind == "seq2seq":
        text = "is of running text, and format.kind seq2seq gives pairs: leave it out"
        wrong = [*_of_data(data), *(f"evaluation.{name} {text}" for name in evaluation.changed(OF_RUNNING_TEXT))]
        wrong += _of_objectives(objectives)
        wrong += _of_translations(data, evaluation)
    else:
        kind = model.get("kind")
        needs = f"model.kind {kind} reads a source, which format.kind {form.kind} does not give: set it to seq2seq"
        wrong = [needs] if SOURCE in model.supports else []
        if evaluation.translations:
            text = f"evaluation.translations {evaluation.translations} are of sources, which format.kind {form.kind}"
            wrong.append(f"{text} does not give: set it to 0")
    if wrong:
        raise ValueError("; ".join(wrong))


def _of_data(data: Data) -> Iterator[str]:
    directions = {corpus(name).languages: name for name in data.corpora}
    if alone := [name for named, name in directions.items() if len(named) != SIDES]:
        yield (
            f"format.kind seq2seq reads parallel text, which data.corpora {alone[0]} is not: name a corpus "
            "with two languages, such as multi30k:en-de"
        )
    elif len(directions) > 1:
        yield f"data.corpora {' and '.join(directions.values())} have several directions: name those of one"


def _of_translations(data: Data, evaluation: Evaluation) -> Iterator[str]:
    """BLEU is of detokenised text; made words have no signs between them."""
    kind, real = data.tokenizer.kind, [name for name in data.corpora if not name.startswith("made-pairs:")]
    if evaluation.translations and kind in _WITHOUT_SPACES and real:
        yield (
            f"evaluation.translations {evaluation.translations} are scored as text, and data.tokenizer.kind {kind} "
            "does not keep its spaces: set it to byte_bpe or unigram, or evaluation.translations to 0"
        )


def _of_objectives(objectives: Objectives) -> Iterator[str]:
    for name, _ in objectives.present():
        if name != "lm":
            yield f"objectives.{name} is of one sequence, and format.kind seq2seq gives two: set objectives to lm alone"
    if objectives.lm is not None and objectives.lm.scored != "all":
        yield f"objectives.lm.scored {objectives.lm.scored} is of running text: set it to all"
