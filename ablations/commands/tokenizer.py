"""``ablations tokenizer stats``: what tokenizers make of held-out text, side by side."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablations.commands.terminal import USUAL, As, Format, Shown, echo, listing, reporting_errors

if TYPE_CHECKING:
    from lightning_modules.data import Data

app = typer.Typer(help="The tokenizers of grids and scales, or of settings of yours.", no_args_is_help=True)

_MOST_WORDS = 1_000_000  # words of held-out text, from its beginning
_HEADINGS = {
    "pieces_per_word": "pieces a word",
    "one_piece_words": "words of one piece",
    "continuations": "continuations",
    "unknown": "unknown",
    "bytes_per_piece": "bytes a piece",
    "unused": "unused",
    "specials": "specials",
    "letters": "letters",
    "words_per_second": "words a second",
    "longest": "longest pieces",
}
_SHARES = ("one_piece_words", "continuations", "unknown", "unused")
_NOTES = (
    "Held-out text, at most a million words. Words are separated by spaces. Shares of words and continuations (pieces",
    "after a word's first) are of words of letters and digits alone. Bytes count the space before a word. Unused:",
    "share of the vocabulary that this text does not use. Speed: each distinct word is encoded once.",
)


@app.callback()
def tokenizer() -> None:
    """The tokenizers of grids and scales, or of settings of yours."""


@app.command()
def stats(
    grid: Annotated[str | None, typer.Argument(help="A grid, for the tokenizers of its cells.")] = None,
    scale: Shown = USUAL,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help="wordpiece, byte_bpe or unigram. Repeatable.")
    ] = None,
    vocab_size: Annotated[
        list[int] | None, typer.Option("--vocab-size", help="Pieces of the vocabulary. Repeatable.")
    ] = None,
    corpora: Annotated[list[str] | None, typer.Option("--corpora", help="A corpus. Repeatable.")] = None,
    lowercase: Annotated[
        bool | None, typer.Option("--lowercase/--cased", help="Whether the text is lower-cased. Default: the scale's.")
    ] = None,
    form: As = Format.table,
) -> None:
    """Shows pieces per word, unknown pieces, bytes per piece, and speed. Trains missing tokenizers. Uses no network.

    Without GRID the scale's tokenizer is shown, changed by the options.
    """
    with reporting_errors():
        changes = {"corpora": corpora, "tokenizer.kind": kind, "tokenizer.vocab_size": vocab_size}
        found = list(rows(_asked(grid, scale, changes, lowercase)))
        if form is Format.table:
            found = _printed(found)
        listing(found, form, "tokenizer")
        for line in _NOTES if form is Format.table else ():
            echo(line)


def _asked(
    grid: str | None, scale: str, changes: dict[str, Sequence[Any] | None], lowercase: bool | None
) -> "list[Data]":
    from ablations.planning import filling
    from ablations.study import Study
    from lightning_modules.config import ConfigError, Problem

    given = {path: values for path, values in changes.items() if values}
    if grid is not None:
        if given or lowercase is not None:
            text = "a grid has its own tokenizers. Leave out GRID or --kind, --vocab-size, --corpora, --cased."
            raise ConfigError([Problem("GRID", text)])
        return list(dict.fromkeys(cell.system.data for cell in Study(grid, scale).resolve().cells))
    base = filling.bert(scale).data
    fixed: dict[str, Any] = {} if lowercase is None else {"tokenizer.lowercase": lowercase}
    if "corpora" in given:
        fixed["corpora"] = list(given["corpora"])
    kinds = given.get("tokenizer.kind") or [base.tokenizer.kind]
    sizes = given.get("tokenizer.vocab_size") or [base.tokenizer.vocab_size]
    asked = [{"tokenizer.kind": name, "tokenizer.vocab_size": size} for name in kinds for size in sizes]
    return list(dict.fromkeys(base.but(**fixed, **one) for one in asked))


def rows(texts: "Sequence[Data]") -> "Iterator[dict[str, Any]]":
    """One row a tokenizer, with its settings and statistics."""
    from lightning_modules.data.store import tokenizer_file
    from lightning_modules.data.text.encode import Encoder
    from lightning_modules.data.text.statistics import measured

    held: dict[tuple[str, ...], list[str]] = {}
    for data in texts:
        if data.corpora not in held:
            held[data.corpora] = _heldout(data.corpora)
        settings = data.tokenizer
        case = "lower-cased" if settings.lowercase else "cased"
        named = {"tokenizer": f"{settings.kind} {settings.vocab_size} {case}", "corpora": " + ".join(data.corpora)}
        encoder = Encoder(tokenizer_file(data), settings.kind)
        yield {**settings.to_dict(), **named, **measured(encoder, held[data.corpora]).to_dict()}


def _heldout(corpora: Sequence[str]) -> list[str]:
    """The first sentences of the held-out text, the same share of words from every corpus."""
    from lightning_modules.data.corpora.registry import corpus

    sentences, most = [], _MOST_WORDS // len(corpora)
    for name in corpora:
        words = 0
        for document in corpus(name).documents("heldout"):
            sentences += document
            words += sum(sentence.count(" ") + 1 for sentence in document)
            if words >= most:
                break
    return sentences


def _printed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows as people read them; the text is a column only where there are several."""
    several = len({row["corpora"] for row in rows}) > 1
    return [
        {"tokenizer": row["tokenizer"]}
        | ({"text": row["corpora"]} if several else {})
        | {heading: _number(name, row[name]) for name, heading in _HEADINGS.items()}
        for row in rows
    ]


def _number(name: str, value: Any) -> str:
    if name == "longest":
        return ", ".join(value)
    if name in _SHARES:
        return f"{value:.2%}" if name == "unknown" else f"{value:.1%}"
    return f"{value:,.2f}" if isinstance(value, float) and value < 1000 else f"{value:,.0f}"
