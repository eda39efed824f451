"""Finished runs by the first digits of their ids, and their weights."""

from pathlib import Path

from ablations.core.store import Records
from ablations.running import worker
from ablations.schema.record import Record
from lightning_modules.config import ConfigError
from lightning_modules.training.recorder import WEIGHTS


def finished(prefix: str, records: Records, kind: str) -> Record:
    """The record of the finished run of a kind whose id starts so.

    Raises:
        ConfigError: When there is none or more than one, or it is no finished run of that kind.
    """
    ids = [path.stem for path in records.files() if path.stem.startswith(prefix)]
    if len(ids) != 1:
        listed = f": {', '.join(ids[:12])}" if ids else ""
        place = records.folder.name
        raise ConfigError([f"{len(ids)} runs start with '{prefix}'{listed}. Ids name the files of {place}/records"])
    found = records.get(ids[0])
    if found is None:
        raise ConfigError([str(records.examine(ids[0]))])
    if found.kind != kind:
        start = ", ".join(found.config["parents"])
        hint = f"; it started from the pretraining {start}" if kind == "pretrain" and start else ""
        raise ConfigError([f"{found.id} is of the kind '{found.kind}', and this asks for '{kind}'{hint}"])
    if found.outcome != "done":
        raise ConfigError([f"{found.id} left no weights: it ended as '{found.outcome}'"])
    return found


def weights(found: Record, records: Records, train: bool) -> Path:
    """The file of a finished pretraining's weights.

    Args:
        found: Its record.
        records: Where it is kept.
        train: Whether it is trained again where the file is not at hand.

    Raises:
        ConfigError: When the file is not at hand and ``train`` is False, saying how to get it; when the second training
            ends elsewhere than the record says.
    """
    path = records.work_folder(found.id) / WEIGHTS
    if path.is_file():
        return path
    if not train:
        minutes = found.cost.get("seconds", 0.0) / 60
        raise ConfigError(
            [
                f"the weights of {found.id} are not at hand: they stay in the cache of the machine that trained it "
                "until `ablations clean`. The same command with --train trains it again from its seed, which took "
                f"{minutes:.1f} minutes"
            ]
        )
    try:
        return worker.weights_of(found.run(), records, lambda progress: None, lambda: False)
    except worker.NotReproducedError as error:
        raise ConfigError([str(error)]) from None
