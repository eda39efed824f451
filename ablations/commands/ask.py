"""``ablations ask``: what a model answers, by what it was trained for."""

import sys
from typing import Annotated

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

_NAMES = ("option", "piece", "first", "translation", "answer", "tag", "text")  # the first in a row names it


def command(
    model: Annotated[str, typer.Argument(help="A checkpoint's folder, a finished training's first digits, or a grid.")],
    text: Annotated[list[str] | None, typer.Argument(help="Texts, with [MASK] for a hidden word.")] = None,
    file: Annotated[
        str, typer.Option("--file", help="A text on each line. With --score prompts and options, YAML or JSON lines.")
    ] = "",
    score: Annotated[
        bool, typer.Option("--score", help="Score the texts after the first one as continuations of it.")
    ] = False,
    passage: Annotated[
        str | None, typer.Option("--passage", help="Where the answer to each question is. - reads standard input.")
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="KNOB=VALUE, such as top=3, top_k=40 or beam=1. Repeatable.")
    ] = None,
    scale: Shown = USUAL,
    filter: Filter = None,
    train: Train = False,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Asks a model, and a method without a network: masks, what follows, translations, answers, classes, tags."""
    with reporting_errors():
        from ablations.inspection import questions
        from ablations.inspection.ask import Asked
        from ablations.inspection.models import opened

        texts, asked = list(text or []), []
        if score:
            asked = questions.read(file) if file else questions.of(texts)
        elif file:
            texts += questions.lines(file)
        records, filters, knobs = known(results_dir), values(filter, "--filter"), values(change, "--set")
        with aside(form), bar("tokens", form) as progress:
            found = Asked(
                opened(model, records, scale=scale, filters=filters, train=train),
                texts,
                knobs,
                sys.stdin.read() if passage == "-" else passage,
                asked,
                progress,
            )
            rows = found.answer()
        if found.more and form is not Format.table:
            tell({"options": rows, **found.more}, form, "chosen")
            return
        shown = [{key: _shown(value) for key, value in row.items()} for row in rows]
        name = next(key for key in _NAMES if key in rows[0])
        listing(shown if form is Format.table else rows, form, name)
        for line in found.lines:
            echo(line, err=True)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "✓" if value else ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


RENAMED = {
    "fill-mask": "ask RUN TEXT",
    "generate": "ask RUN PROMPT --set new_tokens=32",
    "score": "ask RUN PROMPT OPTION OPTION --score",
    "translate": "ask RUN SENTENCE",
    "answer": "ask RUN QUESTION --passage PASSAGE",
}


def renamed(context: typer.Context) -> None:
    """Says which command took the place of one."""
    echo(f"`{context.info_name}` is now `ablations {RENAMED[str(context.info_name)]}`", err=True, fg="red")
    raise typer.Exit(2)
