"""``ablations fill-mask``: what a finished pretraining predicts for masked words."""

from typing import Annotated

import typer

from ablations.commands.terminal import As, Format, Results, aside, listing, reporting_errors


def command(
    run: Annotated[str, typer.Argument(help="The id of a finished pretraining, or its first digits.")],
    text: Annotated[str, typer.Argument(help='A text with [MASK] in it: "Paris is the [MASK] of France."')],
    top: Annotated[int, typer.Option(help="How many predictions to show for each mask.", min=1)] = 5,
    train: Annotated[bool, typer.Option("--train", help="Train the run again if its weights are missing.")] = False,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Fills the masks of a text: the most probable tokens and their probabilities."""
    from ablations.core.store import Records
    from ablations.inspection.trained import finished, weights
    from lightning_modules.analysis.probes import fill_mask, pretrained
    from lightning_modules.data.store import tokenizer_file
    from lightning_modules.data.text.encode import Encoder

    with reporting_errors():
        records = Records(results_dir)
        record = finished(run, records, "pretrain")
        system = record.run().system
        with aside(form):
            module = pretrained(system, weights(record, records, train))
        encoder = Encoder(tokenizer_file(system.data), system.data.tokenizer.kind)
        rows = [
            {"mask": number, "piece": filling.piece, "probability": round(filling.probability, 4)}
            for number, fillings in enumerate(fill_mask(module, encoder, text, top), 1)
            for filling in fillings
        ]
        listing(rows, form, "piece")
