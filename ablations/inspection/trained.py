"""Finished runs by the first digits of their ids, and their weights."""

from pathlib import Path

from ablations.core.store import Records
from ablations.running import worker
from ablations.schema.record import Record
from lightning_modules import cached
from lightning_modules.config import ConfigError
from lightning_modules.training.weights import WEIGHTS


def finished(prefix: str, records: Records, kind: str) -> Record:
    """The record of the finished run of a kind whose id starts with a prefix.

    Raises:
        ConfigError: If none or several match, or the run is of another kind or did not finish.
    """
    ids = [path.stem for path in records.files() if path.stem.startswith(prefix)]
    if len(ids) != 1:
        listed = f": {', '.join(ids[:12])}" if ids else ""
        place = records.folder.name
        raise ConfigError([f"{len(ids)} runs start with '{prefix}'{listed}. Ids are file names in {place}/records"])
    record = records.get(ids[0])
    if record is None:
        raise ConfigError([str(records.examine(ids[0]))])
    if record.kind != kind:
        start = ", ".join(record.config["parents"])
        hint = f"; name its pretraining {start}" if kind == "pretrain" and start else ""
        raise ConfigError([f"{record.id} is a run of the kind '{record.kind}', not '{kind}'{hint}"])
    if record.outcome != "done":
        raise ConfigError([f"{record.id} left no weights: it ended as '{record.outcome}'"])
    return record


def weights(record: Record, records: Records, train: bool) -> Path:
    """The weights file of a finished run.

    Args:
        record: The record of the run.
        records: Its store.
        train: Whether to train the run again if the file is missing.

    Raises:
        ConfigError: If the file is missing and ``train`` is False, saying how to get it; if the second training ends
            at another loss than the record.
    """
    path = records.work_folder(record.id) / WEIGHTS
    if cached.is_sound(path):
        return path
    if not train:
        minutes = record.cost.get("seconds", 0.0) / 60
        raise ConfigError(
            [
                f"the weights of {record.id} are missing or not as they were written. They are in the cache of the "
                f"machine that trained it, until `ablations clean`. To train it again from its seed (it took "
                f"{minutes:.1f} minutes), add --train"
            ]
        )
    try:
        return worker.weights_of(record.run(), records, lambda progress: None, lambda: False)
    except worker.NotReproducedError as error:
        raise ConfigError([str(error)]) from None
