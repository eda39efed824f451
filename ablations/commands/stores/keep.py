"""``ablations keep``: the weights of finished pretrainings next to their records, for clones to start from."""

from typing import Annotated

import typer

from ablations.commands.terminal import As, Format, Results, Train, aside, existing, reporting_errors, tell


def command(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Ids of finished pretrainings, or first digits.")],
    train: Train = False,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Copies weights and tokenizer of finished pretrainings into the results folder, so that a clone has them.

    Fine-tunings and continued pretrainings then start from them on any machine, and `fill-mask`, `generate`, `score`
    and `export` need neither training nor corpora. Meant for runs that many others start from.
    """
    from ablations.inspection.trained import finished, keep

    with reporting_errors():
        records, folders = existing(results_dir), []
        for record in [finished(run, records, "pretrain") for run in runs]:
            with aside(form):
                folders.append(keep(record, records, train))
        size = sum(file.stat().st_size for folder in folders for file in folder.iterdir())
        people = [f"kept {folder.relative_to(records.folder.parent)}" for folder in folders]
        people.append(f"{size / 1e6:.1f} MB. Commit them with the records.")
        tell({"folders": folders, "bytes": size}, form, "folders", *people)
