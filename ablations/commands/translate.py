"""``ablations translate``: translations that a trained encoder-decoder writes."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablations.commands.terminal import As, Format, Results, Train, aside, known, listing, reporting_errors

if TYPE_CHECKING:
    from ablations.core.store import Records
    from lightning_modules.generation.translate import Beam, Translator


def command(
    model: Annotated[str, typer.Argument(help="The first digits of a finished pretraining's id.")],
    text: Annotated[list[str], typer.Argument(help="Sentences to translate.")],
    width: Annotated[int, typer.Option("--beam", help="Prefixes that are kept. Greedy search has 1.")] = 4,
    length_penalty: Annotated[
        float, typer.Option("--length-penalty", help="Exponent of the length penalty. 0 is none.")
    ] = 0.6,
    attention: Annotated[
        Path | None,
        typer.Option("--attention", help="Draw what the first translation attends to, as .svg or .png."),
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
        records: The store of runs.
        sentences: What is translated, with single spaces as training text is.
        beam: How.
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
