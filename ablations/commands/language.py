"""Commands that ask a trained model: ``generate``, ``score``, ``fill-mask``, ``answer`` and ``translate``."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablations.commands.terminal import (
    USUAL,
    As,
    Filter,
    Format,
    Results,
    Shown,
    Train,
    aside,
    bar,
    echo,
    known,
    listing,
    reporting_errors,
    tell,
    values,
)

if TYPE_CHECKING:
    from ablations.core.store import Records
    from ablations.inspection.language_models import Opened
    from ablations.inspection.questions import Question
    from lightning_modules.generation.scoring import Continuation, Windows
    from lightning_modules.generation.translate import Beam, Translator

Model = Annotated[
    str, typer.Argument(help="A checkpoint's folder, the first digits of a finished pretraining's id, or a grid.")
]


def generate(
    model: Model,
    prompt: Annotated[list[str] | None, typer.Option("--prompt", help="The text to continue. Repeatable.")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="A text file with a prompt on each line.")] = None,
    new_tokens: Annotated[int, typer.Option("--new-tokens", help="Tokens to write after each prompt, at most.")] = 32,
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature",
            help="Divides the logits. 0 takes the most probable token, and is the default unless top-k or top-p is "
            "given.",
        ),
    ] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", help="Draw from this many most probable tokens.")] = None,
    top_p: Annotated[
        float, typer.Option("--top-p", help="Draw from the fewest tokens that have this probability together.")
    ] = 1.0,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the draws.", min=0)] = 0,
    scale: Shown = USUAL,
    filter: Filter = None,
    train: Train = False,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Continues prompts by the most probable token each time, or by sampling."""
    with reporting_errors():
        from ablations.inspection import language_models
        from lightning_modules.generation import generate as writing

        if temperature is None:
            temperature = 1.0 if top_k is not None or top_p != 1 else 0.0
        sampling = writing.Sampling(temperature, top_k, top_p)
        sampling.check()
        prompts = _prompts(prompt, file)
        records, filters = known(results_dir), values(filter, "--filter")
        with aside(form):
            asked = language_models.opened(model, records, scale=scale, filters=filters, train=train)
            rows = [asked.texts.prompt(text) for text in prompts]
            writing.check_prompts(asked.texts, rows, new_tokens)
            lm = asked.load()
            with bar("tokens", form) as progress:
                found = writing.generate(lm, rows, sampling, new_tokens=new_tokens, seed=seed, on_progress=progress)
        shown = [
            {"prompt": text, "text": lm.decode([*lm.encode(text), *written.ids]), "ended": written.ended}
            for text, written in zip(prompts, found, strict=True)
        ]
        listing(shown, form, "text")


def _prompts(given: Sequence[str] | None, file: Path | None) -> list[str]:
    """The prompts of the command line and of a file; an empty one if there are none, for the model's own beginning."""
    from lightning_modules.config import ConfigError, Problem
    from lightning_modules.files import read_text

    prompts = list(given or [])
    if file is not None:
        try:
            lines = read_text(file).split("\n")  # splitlines also cuts at U+2028 and others
        except OSError as error:
            raise ConfigError([Problem("--file", f"{file} cannot be read: {error.strerror}")]) from None
        except UnicodeDecodeError:
            raise ConfigError([Problem("--file", f"{file} is not UTF-8 text")]) from None
        prompts += [line for line in lines if line.strip()]
        if not prompts:
            raise ConfigError([Problem("--file", f"{file} has no prompt. Write one a line.")])
    return prompts or [""]


def score(
    model: Model,
    file: Annotated[
        Path | None, typer.Argument(help="Questions: YAML or JSON lines with prompt, options and, if known, answer.")
    ] = None,
    example: Annotated[
        str | None, typer.Option("--example", help="Questions that come with the package: lecture.")
    ] = None,
    neutral: Annotated[
        str, typer.Option("--neutral", help="The prompt of unconditional probabilities. Default: no text.")
    ] = "",
    stride: Annotated[
        int | None,
        typer.Option(
            "--stride", help="Read longer texts than the model's positions in windows, so many tokens apart.", min=1
        ),
    ] = None,
    scale: Shown = USUAL,
    filter: Filter = None,
    train: Train = False,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Scores continuations of prompts: log-probabilities, normalised ones, and the share of right options that lead."""
    with reporting_errors():
        from ablations.inspection import language_models, questions
        from lightning_modules.config import ConfigError, Problem
        from lightning_modules.generation.scoring import Windows, scored

        if (file is None) == (example is None):
            named = ", ".join(questions.examples())
            raise ConfigError([Problem("FILE", f"name a file of questions, or an example by --example: {named}")])
        asked = questions.read(file or questions.example(str(example)))
        records, filters = known(results_dir), values(filter, "--filter")
        windows = None if stride is None else Windows(stride)
        with aside(form):
            opened = language_models.opened(model, records, scale=scale, filters=filters, train=train)
            _check_lengths(opened, asked, neutral, windows)
            lm = opened.load()
            prompts, options = [each.prompt for each in asked], [each.options for each in asked]
            with bar("tokens", form) as progress:
                found = scored(lm, prompts, options, neutral=neutral, windows=windows, on_progress=progress)
        most = opened.texts.max_positions
        context = {"positions": most, "stride": None, "context": None}
        if windows is not None:
            context |= {"stride": windows.stride, "context": most - windows.stride}
        _report(asked, found, context, form)


def _check_lengths(opened: "Opened", asked: Sequence["Question"], neutral: str, windows: "Windows | None") -> None:
    from lightning_modules.config import ConfigError, Problem
    from lightning_modules.generation.scoring import check_windows, split

    texts, wrong = opened.texts, []
    most = texts.max_positions
    if windows is not None:
        check_windows(texts, windows)
    for question in asked:
        for prompt in (question.prompt, neutral):
            for option in question.options:
                before, after = split(texts, prompt, option)
                if not before:
                    told = "this model has no start token, so that nothing predicts a first word: write a prompt"
                    wrong.append(Problem(question.where if prompt == question.prompt else "--neutral", told))
                elif windows is None and len(before) + len(after) > most:
                    told = f"prompt and option {option!r} have {len(before) + len(after)} tokens, but the model has "
                    wrong.append(Problem(question.where, f"{told}{most} positions. Shorten them, or add --stride."))
    if wrong:
        raise ConfigError(dict.fromkeys(wrong))


def _report(
    asked: Sequence["Question"], found: list[list["Continuation"]], context: dict[str, Any], form: Format
) -> None:
    """The scores of every option, and the share of questions whose right option has the best one."""
    from lightning_modules.generation.scoring import SCORES

    rows, chosen = [], []
    right: dict[str, list[float]] = {name: [] for name in SCORES}
    for question, options in zip(asked, found, strict=True):
        best = {name: _best(options, rule) for name, rule in SCORES.items()}
        chosen.append(question.options[best["sum"][0]])
        if question.answer is not None:
            for name, places in best.items():  # of several equally good ones, one is guessed
                right[name].append((question.answer in places) / len(places))
        rows += [_row(question, place, option) for place, option in enumerate(options)]
    accuracy = {name: sum(hits) / len(hits) for name, hits in right.items() if hits}
    if form is not Format.table:
        tell({"options": rows, "accuracy": accuracy, "chosen": chosen, **context}, form, "chosen")
        return
    listing([{key: _shown(value) for key, value in row.items()} for row in rows], form, "option")
    if accuracy:
        of = len(next(iter(right.values())))
        told = ", ".join(f"{name} {share:.2f}" for name, share in accuracy.items())
        echo(f"accuracy over {of} question{'s' * (of > 1)} with an answer: {told}")
    if context["stride"]:
        echo(
            f"Texts of more than {context['positions']} tokens were read in windows of that length, "
            f"{context['stride']} tokens apart. "
            f"Beyond the first window, a token has at least {context['context']} before it."
        )


def _best(options: Sequence["Continuation"], rule: "Callable[[Continuation], float]") -> list[int]:
    scores = [rule(option) for option in options]
    return [place for place, score in enumerate(scores) if score == max(scores)]


def _row(question: "Question", place: int, option: "Continuation") -> dict[str, Any]:
    from lightning_modules.generation.scoring import SCORES

    told = {"prompt": question.prompt, "option": option.text, "right": question.answer == place}
    return {**told, "tokens": len(option.tokens), **{name: rule(option) for name, rule in SCORES.items()}}


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "✓" if value else ""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def fill_mask(
    run: Annotated[str, typer.Argument(help="The id of a finished pretraining, or its first digits.")],
    text: Annotated[str, typer.Argument(help='A text with [MASK] in it: "Paris is the [MASK] of France."')],
    top: Annotated[int, typer.Option(help="How many predictions to show for each mask.", min=1)] = 5,
    joint: Annotated[
        bool,
        typer.Option("--joint", help="Two masks at once: each by itself, against one after the other in either order."),
    ] = False,
    train: Train = False,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Fills the masks of a text: the most probable tokens and their probabilities."""
    from ablations.inspection.trained import finished, tokenizer, weights
    from lightning_modules.analysis.joint_filling import fill_jointly
    from lightning_modules.analysis.probes import fill_mask as filled
    from lightning_modules.analysis.probes import pretrained
    from lightning_modules.data.text.encode import Encoder

    with reporting_errors():
        records = known(results_dir)
        record = finished(run, records, "pretrain")
        made = record.run()
        with aside(form):
            module = pretrained(made.system, weights(record, records, train))
        encoder = Encoder(tokenizer(made, records), made.system.data.tokenizer.kind)
        if joint:
            pairs = [pair._asdict() for pair in fill_jointly(module, encoder, text, top)]
            if form is Format.table:
                pairs = [{name.replace("_", " "): _digits(value) for name, value in pair.items()} for pair in pairs]
            listing(pairs, form, "first")
            return
        rows = [
            {"mask": number, "piece": filling.piece, "probability": round(filling.probability, 4)}
            for number, fillings in enumerate(filled(module, encoder, text, top), 1)
            for filling in fillings
        ]
        listing(rows, form, "piece")


def _digits(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.2g}"


def answer(
    run: Annotated[str, typer.Argument(help="The id of a finished fine-tuning on SQuAD, or its first digits.")],
    question: Annotated[str, typer.Argument(help="The question.")],
    context: Annotated[str, typer.Argument(help="The passage. - reads it from standard input.")],
    train: Train = False,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Answers a question with a span of a passage."""
    from ablations.inspection.trained import finished, weights
    from lightning_modules.analysis.probes import answer as answered
    from lightning_modules.config import ConfigError
    from lightning_modules.finetuning.run import FinetuningRun, finetuned
    from lightning_modules.tasks.reading.passages import Question
    from lightning_modules.tasks.shapes.span import Spans
    from lightning_modules.tasks.table import task_named

    with reporting_errors():
        records = known(results_dir)
        record = finished(run, records, "finetune")
        made = record.run()
        settings, spans = made.finetuning, task_named(made.task).shape
        if settings is None or not isinstance(spans, Spans):
            raise ConfigError(
                [f"{record.id} was fine-tuned on '{made.task}', which is no reading task. Name a run on SQuAD."]
            )
        finetuning_run = FinetuningRun(made.system, made.task, settings, made.seed, None)
        example = Question("asked", question, sys.stdin.read() if context == "-" else context, ())
        with aside(form):
            networks = finetuned(finetuning_run, weights(record, records, train))
        text = answered(networks, finetuning_run.data.encoder, spans, settings.max_length, example)
        tell({"answer": text}, form, "answer", text or "(the passage does not say)")


def translate(
    model: Annotated[str, typer.Argument(help="The first digits of a finished pretraining's id.")],
    text: Annotated[list[str], typer.Argument(help="Sentences to translate.")],
    width: Annotated[int, typer.Option("--beam", help="Prefixes that are kept. Greedy search has 1.")] = 4,
    length_penalty: Annotated[
        float, typer.Option("--length-penalty", help="Exponent of the length penalty. 0 is none.")
    ] = 0.6,
    attention: Annotated[
        Path | None, typer.Option("--attention", help="Draw what the first translation attends to, as .svg or .png.")
    ] = None,
    train: Train = False,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Translates sentences in the direction that a run was trained on."""
    with reporting_errors():
        from lightning_modules.config import ConfigError
        from lightning_modules.generation.translate import Beam

        if attention is not None and attention.suffix not in (".svg", ".png"):
            raise ConfigError([f"--attention {attention} is no picture. Let its name end in .svg or .png."])
        beam = Beam(width, length_penalty)
        beam.check()
        with aside(form):
            shown = translated(model, known(results_dir), text, beam, train=train, picture=attention)
        listing(shown, form, "translation")


def translated(
    prefix: str,
    records: "Records",
    sentences: Sequence[str],
    beam: "Beam",
    *,
    train: bool = False,
    picture: Path | None = None,
) -> list[dict[str, Any]]:
    """A row for each sentence: the sentence, its translation and its score in nats.

    Args:
        prefix: The first digits of a finished pretraining's id.
        sentences: What is translated, with single spaces as training text is.
        train: Whether to train the run again if its weights are missing.
        picture: The file for what the first translation attends to.

    Raises:
        ConfigError: If there is no such run, it translates nothing, or a sentence is empty or too long.
    """
    from ablations.inspection.trained import finished, tokenizer, weights
    from lightning_modules.analysis.probes import pretrained
    from lightning_modules.data.text.encode import Encoder
    from lightning_modules.generation.translate import Translator, check_translates

    record = finished(prefix, records, "pretrain")
    run = record.run()
    check_translates(run.system, f"run {record.id}")
    encoder = Encoder(tokenizer(run, records), run.system.data.tokenizer.kind)
    texts = [" ".join(sentence.split()) for sentence in sentences]
    rows = [encoder.fast.encode(text, add_special_tokens=False).ids for text in texts]
    translator = Translator.of(pretrained(run.system, weights(record, records, train)), run.system, encoder.vocabulary)
    found = translator.translate(rows, beam)
    if picture is not None:
        names = [[encoder.fast.decode([piece]) for piece in ids] for ids in (rows[0], found[0].ids)]
        small = f"Columns: the source. Rows: the translation by run {record.id[:8]}. Each row sums to 100 %."
        _draw(translator, rows[0], found[0].ids, names, picture, small)
    return [
        {
            "sentence": text,
            "translation": encoder.fast.decode(best.ids, skip_special_tokens=False).strip(),
            "score": round(best.score, 4),
        }
        for text, best in zip(texts, found, strict=True)
    ]


def _draw(
    translator: "Translator", source: list[int], target: list[int], names: list[list[str]], picture: Path, small: str
) -> None:
    """Draws the attention of the last layer that attends to a source, each row of which sums to 1."""
    from ablations.figures.style import save
    from ablations.inspection.attention_figure import of_source
    from lightning_modules.analysis.attention_maps import source_attention
    from lightning_modules.batch import Unsupported
    from lightning_modules.config import ConfigError

    try:
        weights = source_attention(translator.backbone, translator.read(source, target))[-1][0]
    except Unsupported as error:
        raise ConfigError([str(error)]) from None
    save(of_source(weights.numpy(), [*names[0], "[end]"], [*names[1], "[end]"], small), picture)
