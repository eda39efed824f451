"""Finished runs by the first digits of their ids, their weights, and their tokenizers."""

from pathlib import Path

from ablations.core.disk import kept_weights
from ablations.core.store import Records
from ablations.running import worker
from ablations.schema.kinds import Watch
from ablations.schema.record import Record
from ablations.schema.run import Run
from lightning_modules.config import ConfigError
from lightning_modules.data.store import tokenizer_file


def recorded(prefix: str, records: Records) -> Record:
    """The record of the run whose id starts with a prefix.

    Raises:
        ConfigError: If none or several match, or the record is damaged.
    """
    known = sorted({path.stem for part in records.parts for path in part.files()})
    ids = [name for name in known if name.startswith(prefix)]
    if len(ids) != 1:
        some = f": {', '.join(ids[:6])}{' ...' * (len(ids) > 6)}. Give more digits." if ids else ""
        ours = f"The {len(known)} ids are the names of the files in {records.folder.name}/records"
        raise ConfigError([f"{len(ids) or 'no'} runs start with '{prefix}'{some}. {ours}"])
    found = records.examine(ids[0])
    if not isinstance(found, Record):
        raise ConfigError([str(found)])
    return found


def finished(prefix: str, records: Records, kind: str) -> Record:
    """The record of the finished run of a kind whose id starts with a prefix.

    Raises:
        ConfigError: If none or several match, or the run is of another kind or did not finish.
    """
    record = recorded(prefix, records)
    if record.kind != kind:
        start = ", ".join(record.config["parents"])
        hint = f" Name its pretraining {start}." if kind == "pretrain" and start else ""
        raise ConfigError([f"{record.id} is a run of the kind '{record.kind}', not '{kind}'.{hint}"])
    if record.outcome != "done":
        raise ConfigError([f"{record.id} left no weights: it ended as '{record.outcome}'"])
    return record


def weights(record: Record, records: Records, train: bool) -> Path:
    """The weights file of a finished run.

    Args:
        train: Whether to train the run again if the file is missing.

    Raises:
        ConfigError: If the file is missing and ``train`` is False, saying how to get it; if the second training ends
            at another loss than the record.
    """
    path = records.weights(record.id)
    if path:
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
        watch = Watch(records.work_folder(record.id), {}, lambda progress: None, lambda: False)
        return worker.weights_of(record.run(), records, watch)
    except worker.NotReproducedError as error:
        raise ConfigError([str(error)]) from None


def tokenizer(run: Run, records: Records) -> Path:
    """The file of a run's tokenizer: from the cache, kept with the records, or else trained now.

    Raises:
        ConfigError: If it has to be trained and a corpus is missing, or the kept one cannot be read.
    """
    kept_weights.lend_tokenizer(records.folder, run)
    return tokenizer_file(run.system.data)


def keep(record: Record, records: Records, train: bool) -> Path:
    """Keeps the weights and the tokenizer of a finished pretraining with the records.

    Args:
        train: See `weights`.

    Returns:
        The folder that holds them.

    Raises:
        ConfigError: See `weights`; if the weights are too large for a repository.
    """
    path = weights(record, records, train)
    size = path.stat().st_size
    if size > kept_weights.LARGEST:
        most = f"{kept_weights.LARGEST / 1e6:.0f} MB, since every clone carries them"
        raise ConfigError([f"the weights of {record.id} have {size / 1e6:.0f} MB. Weights are kept up to {most}"])
    return kept_weights.keep(records.folder, record.id, path, tokenizer(record.run(), records))
