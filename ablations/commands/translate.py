"""``ablations translate``: translations that a trained encoder-decoder writes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablations.commands.terminal import As, Format, Results, Train, aside, listing, reporting_errors

if TYPE_CHECKING:
    from ablations.core.store import Records
    from lightning_modules.generation.translate import Beam


def command(
    model: Annotated[str, typer.Argument(help="The first digits of a finished pretraining's id.")],
    text: Annotated[list[str], typer.Argument(help="Sentences to translate.")],
    width: Annotated[int, typer.Option("--beam", help="Prefixes that are kept. Greedy search has 1.")] = 4,
    length_penalty: Annotated[
        float, typer.Option("--length-penalty", help="Exponent of the length penalty. 0 is none.")
    ] = 0.6,
    train: Train = False,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Translates sentences in the direction that a run was trained on."""
    with reporting_errors():
        from ablations.core.store import Records
        from lightning_modules.generation.translate import Beam

        beam = Beam(width, length_penalty)
        beam.check()
        with aside(form):
            shown = translated(model, Records(results_dir), text, beam, train=train)
        listing(shown, form, "translation")


def translated(
    prefix: str, records: "Records", sentences: Sequence[str], beam: "Beam", *, train: bool = False
) -> list[dict[str, Any]]:
    """A row for each sentence: the sentence, its translation and its score in nats.

    Args:
        prefix: The first digits of a finished pretraining's id.
        records: The store of runs.
        sentences: What is translated, with single spaces as training text is.
        beam: How.
        train: Whether to train the run again if its weights are missing.

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
    return [
        {
            "sentence": text,
            "translation": encoder.fast.decode(best.ids, skip_special_tokens=False).strip(),
            "score": round(best.score, 4),
        }
        for text, best in zip(texts, found, strict=True)
    ]
