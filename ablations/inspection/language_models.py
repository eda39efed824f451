"""Opens a left-to-right language model by name: a checkpoint's folder, a finished run, or a cell of a grid.

What a text is for the model is known before its weights are read, so that questions it cannot answer are refused first.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablations.core.store import Records
from ablations.inspection.trained import finished, tokenizer, weights
from ablations.planning import grids
from ablations.study import Study
from lightning_modules.config import ConfigError, did_you_mean
from lightning_modules.generation.language_model import (
    LanguageModelOf,
    Wording,
    check_predicts_next,
    with_network,
    wording,
)


@dataclass(frozen=True)
class Opened:
    """A language model whose weights are not read yet.

    Attributes:
        name: What messages call it.
        texts: How texts become its rows.
        load: Reads its weights; they may be missing or damaged.
    """

    name: str
    texts: Wording
    load: Callable[[], LanguageModelOf]


def opened(
    source: str, records: Records, *, scale: str, filters: Mapping[str, Any] | None = None, train: bool = False
) -> Opened:
    """Opens a language model.

    Args:
        source: A folder with ``config.json``, the first digits of a finished pretraining's id, or a grid.
        filters: Of a grid, axis -> value, to leave one cell. Its first seed is opened.
        train: Whether to train a run again if its weights are missing.

    Raises:
        ConfigError: If there is no such model, or it predicts no next token.
    """
    if Path(source).is_dir():
        return _of_folder(Path(source))
    if source in grids.available() or source.endswith((".yaml", ".yml")):
        source = _of_cell(Study(source, scale, filters=filters or None, results_dir=records.folder), records)
    elif not re.fullmatch("[0-9a-f]+", source):
        hint = did_you_mean(source, grids.available())
        raise ConfigError(
            [f"'{source}' is neither a checkpoint's folder, nor a grid, nor the first digits of a run.{hint}"]
        )
    return _of_run(source, records, train)


def _of_run(prefix: str, records: Records, train: bool) -> Opened:
    from lightning_modules.data.text.encode import Encoder

    record = finished(prefix, records, "pretrain")
    made = record.run()
    system = made.system
    check_predicts_next(system, f"run {record.id}")
    texts = wording(system, Encoder(tokenizer(made, records), system.data.tokenizer.kind))

    def load() -> LanguageModelOf:
        from lightning_modules.analysis.probes import pretrained

        return with_network(texts, pretrained(system, weights(record, records, train)), system)

    return Opened(f"run {record.id}", texts, load)


def _of_cell(study: Study, records: Records) -> str:
    """The id of the first run of a study's only cell, which has been trained."""
    cells = study.resolve().cells
    if len(cells) != 1:
        listed = "; ".join(cell.label for cell in cells[:12])
        raise ConfigError(
            [f"one model is needed, but {len(cells)} cells match. Add --filter to leave one of: {listed}"]
        )
    (cell,) = cells
    if not cell.runs:
        raise ConfigError([f"the search of '{cell.label}' is unfinished. Finish it with `ablations run`."])
    run = cell.runs[0]
    if not records.path(run.id).exists():
        trained = f"`ablations run {study.source} --scale {study.scale}`"
        raise ConfigError([f"the cell '{cell.label}' has no record of seed {run.seed}. Train it with {trained}"])
    return run.id


def _of_folder(folder: Path) -> Opened:
    from lightning_modules import interop
    from lightning_modules.interop.families.registry import family_named
    from lightning_modules.interop.folder import CONFIG, json_object

    config = json_object(folder / CONFIG)
    family = family_named(config)
    system = family.system(config, False, folder.resolve().name)
    check_predicts_next(system, str(folder))
    encoder = interop.own_encoder(folder, family.name, system.data.tokenizer.vocab_size)
    texts = wording(system, encoder, system.model.longest, keeps_space=True)

    def load() -> LanguageModelOf:
        checkpoint = interop.read(folder)
        return with_network(texts, checkpoint.build(), checkpoint.system)

    return Opened(str(folder), texts, load)
