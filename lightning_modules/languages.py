"""What fits a text of several languages, and the numbers that a model has for them."""

from collections.abc import Iterator

from lightning_modules.batch import NO_LANGUAGE
from lightning_modules.config import ConfigError, did_you_mean
from lightning_modules.data import Data, InputFormat
from lightning_modules.data.formats.text import languages_of
from lightning_modules.evaluation import Evaluation
from lightning_modules.model import Backbone
from lightning_modules.objectives import MaskedLM, Objectives

_OF_ONE_TEXT = ("words", "pairs")  # knobs of an evaluation
_OF_TWO_LANGUAGES = ("multi30k_", "tatoeba_")  # how probes begin whose sentences are in English and in what follows


def numbers(model: Backbone, form: InputFormat, data: Data) -> tuple[int, ...] | None:
    """The number that a model has for each language of its text; None for a model without languages."""
    known = of(model)
    if form.languages == "one_text" or not known:
        return None
    return tuple(map(known.index, languages_of(data.corpora)))


def at_evaluation(model: Backbone, form: InputFormat, data: Data, evaluation: Evaluation) -> tuple[int, ...] | None:
    """The numbers with which held-out text is read; see `numbers`."""
    known = numbers(model, form, data)
    return known if known is None or evaluation.languages == "named" else (NO_LANGUAGE,) * len(known)


def read_as(model: Backbone, evaluation: Evaluation, language: str) -> int | None:
    """The number with which a text in a language is read; None for a model without languages."""
    known = of(model)
    if not known:
        return None
    return known.index(language) if evaluation.languages == "named" else NO_LANGUAGE


def asked(evaluation: Evaluation) -> MaskedLM:
    """The usual question, each word hidden by itself, so that what is next to a sentence changes none of them."""
    usual = evaluation.objective
    return usual.model_copy(update={"masking": usual.masking.model_copy(update={"count": "bernoulli"})})


def of(model: Backbone) -> tuple[str, ...]:
    """The languages that have an embedding; none of a model that has no such table."""
    return getattr(model, "languages", ())


def check(model: Backbone, objectives: Objectives, form: InputFormat, data: Data, evaluation: Evaluation) -> None:
    """Checks that a system of several languages can read them, and that others ask for none.

    Raises:
        ValueError: Naming every knob that is in the way.
    """
    if len(set(of(model))) < len(of(model)):
        raise ValueError(f"model.languages {', '.join(of(model))} names one twice: name each once")
    if form.languages == "one_text":
        text = (
            f"model.languages {', '.join(of(model))} are of rows in one language, and format.languages is one_text: "
            "set it to apart, pairs or in_turn, or model.languages to []"
        )
        wrong = [text] if of(model) else []
    else:
        wrong = [*_of_model(model, form, data), *_of_objectives(objectives, form)]
        text = f"is of one text, and format.languages is {form.languages}: leave it out"
        wrong += [f"evaluation.{name} {text}" for name in evaluation.changed(_OF_ONE_TEXT)]
    wrong += _of_probes(model, evaluation) if of(model) else []
    if evaluation.languages == "left_out" and not of(model):
        wrong.append("evaluation.languages left_out is of a model with languages: set it to named, or model.languages")
    wrong += _of_translations(objectives, form, evaluation) if evaluation.translated_pairs else []
    if wrong:
        raise ValueError("; ".join(wrong))


def _of_translations(objectives: Objectives, form: InputFormat, evaluation: Evaluation) -> Iterator[str]:
    if form.languages == "one_text" or objectives.mlm is None:
        yield (
            f"evaluation.translated_pairs {evaluation.translated_pairs} hides words of sentences next to their "
            "translation: set it to 0, or objectives.mlm and format.languages"
        )


def _of_probes(model: Backbone, evaluation: Evaluation) -> Iterator[str]:
    for name in evaluation.probes:
        if name == "own_pairs":
            continue
        if not name.startswith(_OF_TWO_LANGUAGES):
            yield f"evaluation.probes {name} names no language of its texts, which model.languages needs: leave it out"
            continue
        for language in ("en", name.rpartition("_")[2]):
            if language not in of(model):
                yield f"evaluation.probes {name} has sentences in '{language}', which model.languages lacks"


def _of_model(model: Backbone, form: InputFormat, data: Data) -> Iterator[str]:
    try:
        named = languages_of(data.corpora)
    except ConfigError as error:
        yield f"format.languages is {form.languages}, and {error.problems[0].message}"
        return
    for language in named if of(model) else ():
        if language not in of(model):
            near = did_you_mean(language, of(model))
            yield f"model.languages has no '{language}', which data.corpora are in.{near}"
    if form.languages != "apart" and model.get("kind") != "transformer":
        yield (
            f"format.languages {form.languages} shows pairs, which model.kind {model.get('kind')} does not read: set "
            "it to transformer, or format.languages to apart"
        )


def _of_objectives(objectives: Objectives, form: InputFormat) -> Iterator[str]:
    if form.languages != "apart" and objectives.mlm is None:
        yield (
            f"format.languages {form.languages} shows pairs, whose words objectives.mlm hides: add it, or set "
            "format.languages to apart"
        )
    if objectives.reads:
        yield (
            "objectives.mlm.masking.units.kind tagged reads annotations, which a text of several languages does not "
            "have: set it to another kind"
        )
