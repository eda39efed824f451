"""``ablations answer``: a run that is fine-tuned on a reading task answers a question about a passage."""

import sys
from typing import Annotated

import typer

from ablations.commands.terminal import As, Format, Results, Train, aside, known, reporting_errors, tell


def command(
    run: Annotated[str, typer.Argument(help="The id of a finished fine-tuning on SQuAD, or its first digits.")],
    question: Annotated[str, typer.Argument(help="The question.")],
    context: Annotated[str, typer.Argument(help="The passage. - reads it from standard input.")],
    train: Train = False,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Answers a question with a span of a passage."""
    from ablations.inspection.trained import finished, weights
    from lightning_modules.analysis.probes import answer
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
        text = answer(networks, finetuning_run.data.encoder, spans, settings.max_length, example)
        tell({"answer": text}, form, "answer", text or "(the passage does not say)")
