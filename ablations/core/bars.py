"""Computing what counting and simple methods reach, each question once: see `disk.bars`."""

from collections.abc import Iterable

from filelock import Timeout

from ablations.core.disk import bars, kept_weights, locks
from ablations.core.disk.bars import Bar
from ablations.core.store import Records
from ablations.schema.record import Record
from ablations.schema.run import Run
from lightning_modules.config import ConfigError
from lightning_modules.data import fingerprints_of
from lightning_modules.measures import counting, heldout_text
from lightning_modules.tasks.measured_baselines import references
from lightning_modules.tasks.pins import fingerprint


def complete(run: Run, records: Records, wait: bool = True) -> list[Bar]:
    """Computes and keeps the bars of a pretraining's held-out losses that are not kept.

    Of several processes one computes a bar; the others wait for it, or go on without.

    Args:
        wait: Whether to wait for another process that computes one.

    Returns:
        What was computed.

    Raises:
        ConfigError: When a text is missing, or is another one than that of the run.
        StoreError: When one cannot be written.
    """
    return [bar for target in heldout_text.targets(run.system) if (bar := _completed(run, target, records, wait))]


def complete_methods(record: Record, records: Records) -> bool:
    """Computes and keeps the scores of simple methods that a fine-tuning was recorded without, if they are not kept.

    Returns:
        Whether they were computed.

    Raises:
        ConfigError: When the examples of the task are missing, or are others than those of the record.
        StoreError: When they cannot be written.
    """
    run = record.run()
    assert run.finetuning is not None
    if bars.is_kept(records.folder, bars.methods_name(run)):
        return False
    if fingerprint(run.task) != run.fingerprints[run.task]:
        raise ConfigError([f"the examples of {run.task} are others than those of the run {run.id}"])
    tuning = run.finetuning
    scores = references(run.task, tuning.validation_share, tuning.train_examples, run.seed)
    bars.write(records.folder, bars.made_methods(run, scores))
    return True


def complete_finished(runs: Iterable[Run], records: Records) -> list[str]:
    """Computes and keeps what the finished ones of some runs lack: bars, and methods that are newer than their records.

    Returns:
        Why some could not be computed, such as a text that is not at hand.
    """
    wanted, problems = dict[str, Record](), dict[str, None]()
    for record in filter(None, (records.get(run.id) for run in runs)):
        if record.outcome == "done":
            wanted |= {name: record for name in bars.recorded(record) if not bars.is_kept(records.folder, name)}
    for record in wanted.values():
        try:
            if bars.lacking(record):
                complete_methods(record, records)
            else:
                complete(record.run(), records, wait=False)
        except Exception as error:  # whatever it is, the runs are recorded, and their page can be made
            reason = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
            problems[f"what simple methods reach could not be computed: {reason}"] = None
    return list(problems)


def _completed(run: Run, target: str, records: Records, wait: bool) -> Bar | None:
    name, folder = bars.name(run, target), records.folder
    if bars.is_kept(folder, name):
        return None
    lock = locks.named(folder, f"bar-{name}")
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        return None
    try:
        if bars.is_kept(folder, name):  # by another process meanwhile
            return None
        now = fingerprints_of(run.system.corpora)
        if changed := [corpus for corpus, print in now.items() if run.fingerprints.get(corpus) != print]:
            raise ConfigError([f"the text of {', '.join(changed)} is another one than that of the run {run.id}"])
        kept_weights.lend_tokenizer(folder, run)
        reached = counting.reached(run.system, target)
        if reached is None:
            return None
        bar = bars.made(run, target, reached)
        bars.write(folder, bar)
        return bar
    finally:
        lock.release()
