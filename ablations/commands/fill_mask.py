"""``ablations fill-mask``: what a finished pretraining predicts for masked words."""

from typing import Annotated

import typer

from ablations.commands.terminal import As, Format, Results, Train, aside, known, listing, reporting_errors


def command(
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
    from lightning_modules.analysis.probes import fill_mask, pretrained
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
                pairs = [{name.replace("_", " "): _shown(value) for name, value in pair.items()} for pair in pairs]
            listing(pairs, form, "first")
            return
        rows = [
            {"mask": number, "piece": filling.piece, "probability": round(filling.probability, 4)}
            for number, fillings in enumerate(fill_mask(module, encoder, text, top), 1)
            for filling in fillings
        ]
        listing(rows, form, "piece")


def _shown(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.2g}"
