"""Weights kept with the records: what a clone starts from without training it again.

``weights/<run id>/`` of the results folder holds the weights of a finished pretraining and its tokenizer, which without
the corpora cannot be trained. Each file has its digest next to it, as files of the cache have.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from ablations.core.disk.publishing import check_inside
from ablations.core.disk.reading import Damage
from ablations.schema.record import Record
from ablations.schema.run import Run
from lightning_modules import cached
from lightning_modules.config import ConfigError
from lightning_modules.data.store import tokenizer_place
from lightning_modules.data.text.encode import Encoder
from lightning_modules.files import read
from lightning_modules.places import behind

FOLDER = "weights"
LARGEST = 50_000_000  # bytes; every clone carries what is kept, and hosts of repositories refuse much larger files
WEIGHTS, TOKENIZER = "weights.safetensors", "tokenizer.json"
_REMEDY = "Restore it from a copy, or remove its folder and keep the run again (`ablations keep`)."


def kept(results: Path, run_id: str, name: str) -> Path | None:
    """A kept file of a run, if it is there and as it was written."""
    places = ((folder, folder / FOLDER / run_id / name) for folder in behind(results))
    return next((path for folder, path in places if cached.is_sound(path, folder)), None)


def lend_tokenizer(results: Path, run: Run) -> None:
    """Gives the cache the kept tokenizers of a run and its lineage, if it lacks them.

    A run that has the tokenizer of a parent looks for it at the same place.

    Raises:
        ConfigError: For a corpus of the user's own that is missing, and a kept tokenizer that cannot be read.
    """
    for member in (member for member in run.lineage if not member.system.checkpoint):
        data = member.system.data
        place = tokenizer_place(data)
        if not cached.is_sound(place) and (file := kept(results, member.id, TOKENIZER)):
            Encoder(file, data.tokenizer.kind)  # or it would be the tokenizer of all runs on these corpora
            with cached.locked(place):
                cached.write(place, lambda copy, file=file: copy.write(read(file, within=file.parents[2])))


def keep(results: Path, run_id: str, weights: Path, tokenizer: Path) -> Path:
    """Copies weights and tokenizer of a run next to the records.

    Returns:
        The folder that holds them now.

    Raises:
        OSError: If they cannot be read or written.
    """
    folder = results / FOLDER / run_id
    check_inside(folder, results)
    for name, source in ((TOKENIZER, tokenizer), (WEIGHTS, weights)):
        content = read(source, LARGEST)
        cached.write(folder / name, lambda file, content=content: file.write(content), results / FOLDER)
    return folder


def damages(results: Path, done: Callable[[str], Record | None]) -> Iterator[Damage]:
    """What is wrong with kept files: altered, incomplete, of another model, or of no finished run.

    Args:
        done: Gives the record of a finished run.
    """
    for folder in sorted(path for path in (results / FOLDER).glob("*") if path.is_dir()):
        place = f"{FOLDER}/{folder.name}"
        if (record := done(folder.name)) is None:
            yield Damage(place, "misplaced", "holds weights of no finished run among the records. Remove it.")
            continue
        for name in (WEIGHTS, TOKENIZER):
            if not kept(results, folder.name, name):
                yield Damage(f"{place}/{name}", "altered", f"is missing or not as it was written. {_REMEDY}")
            elif reason := _unfit(record, folder / name):
                yield Damage(f"{place}/{name}", "altered", f"{reason.removesuffix('.')}. {_REMEDY}")


def _unfit(record: Record, path: Path) -> str:
    """Why a file holds no weights of a run's model, or no tokenizer; empty if it does."""
    import torch

    from lightning_modules.data.text.encode import Encoder
    from lightning_modules.training.weights import check_weights, load_weights

    try:
        system = record.run().system
        if path.name == TOKENIZER:
            Encoder(path, system.data.tokenizer.kind)
            return ""
        with torch.device("meta"):  # names and shapes alone
            backbone, heads = system.networks()
        check_weights(torch.nn.ModuleDict({"backbone": backbone, "heads": heads}), path)
        load_weights(path)  # whose values have to be finite
    except (ConfigError, KeyError) as error:  # of a text or a package that the run depends on
        return str(error)
    return ""
