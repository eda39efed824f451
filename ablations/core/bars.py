"""Computing what counting reaches on the held-out words of pretrainings, each question once: see `disk.bars`."""

from filelock import Timeout

from ablations.core.disk import bars, kept_weights, locks
from ablations.core.disk.bars import Bar
from ablations.core.store import Records
from ablations.schema.run import Run
from lightning_modules.config import ConfigError
from lightning_modules.data import fingerprints_of
from lightning_modules.measures import counting, heldout_text


def complete(run: Run, records: Records, wait: bool = True) -> list[Bar]:
    """Computes and keeps the bars of a pretraining's held-out losses that are not kept.

    Of several processes one computes a bar; the others wait for it, or go on without.

    Args:
        run: The pretraining.
        records: The store.
        wait: Whether to wait for another process that computes one.

    Returns:
        What was computed.

    Raises:
        ConfigError: When a text is missing, or is another one than that of the run.
        StoreError: When one cannot be written.
    """
    return [bar for target in heldout_text.targets(run.system) if (bar := _completed(run, target, records, wait))]


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
        _check_text(run)
        kept_weights.lend_tokenizer(folder, run)
        reached = counting.reached(run.system, target)
        if reached is None:
            return None
        bar = bars.made(run, target, reached)
        bars.write(folder, bar)
        return bar
    finally:
        lock.release()


def _check_text(run: Run) -> None:
    now = fingerprints_of(run.system.corpora)
    if changed := [corpus for corpus, print in now.items() if run.fingerprints.get(corpus) != print]:
        raise ConfigError([f"the text of {', '.join(changed)} is another one than that of the run {run.id}"])
