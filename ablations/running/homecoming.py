"""Results that come home in a pack: records by `sync`, kept weights, and checkpoints of unfinished runs."""

import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from filelock import Timeout

from ablations.core.disk import kept_weights
from ablations.core.disk.reading import Damage
from ablations.core.sharing.sites import Folder
from ablations.core.sharing.sync import Report, unite
from ablations.core.store import Records
from lightning_modules.files import open_plain, write_atomically
from lightning_modules.training.checkpoint import steps
from lightning_modules.training.recorder import CHECKPOINT


@dataclass
class Homecoming:
    """What came home.

    Attributes:
        report: Of the records, as `sync` has it.
        weights: Runs whose weights are kept with the records now.
        checkpoints: Runs that resume from a checkpoint of the pack now.
        left: Run -> why its checkpoint stayed in the pack.
        damages: Weights and checkpoints that were skipped.
    """

    report: Report
    weights: list[str] = field(default_factory=list)
    checkpoints: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    damages: list[Damage] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether all of it came home."""
        return self.report.whole and not self.damages


def bring(folder: Path, records: Records) -> Homecoming:
    """Unites an unpacked pack of results with a store; what is there and final stays.

    Args:
        folder: The unpacked pack.
        records: The store.

    Raises:
        StoreError: If it cannot be written; what came until then is whole.
    """
    home = Homecoming(unite(Folder(records.folder), Folder(folder / "results"), push=False))
    _bring_weights(Records(folder / "results"), records, home)
    for path in sorted((folder / "runs").glob(f"*/{CHECKPOINT}")):
        _bring_checkpoint(path, records, home)
    return home


def _bring_weights(there: Records, here: Records, home: Homecoming) -> None:
    """Keeps weights of runs whose records are the same in both stores, if here are none."""
    done = {record.id: record for record in there.all() if record.outcome == "done"}
    for damage in kept_weights.damages(there.folder, done.get):
        home.damages.append(damage)
    spoilt = {Path(damage.path).parts[1] for damage in home.damages}
    for run_id in sorted(done.keys() - spoilt):
        ours = here.get(run_id)
        weights, tokenizer = (
            kept_weights.kept(there.folder, run_id, name) for name in (kept_weights.WEIGHTS, kept_weights.TOKENIZER)
        )
        is_same = ours is not None and ours.checksum == done[run_id].checksum
        if is_same and weights and tokenizer and not kept_weights.kept(here.folder, run_id, kept_weights.WEIGHTS):
            kept_weights.keep(here.folder, run_id, weights, tokenizer)
            home.weights.append(run_id)


def _bring_checkpoint(path: Path, records: Records, home: Homecoming) -> None:
    run_id = path.parent.name
    try:
        if not re.fullmatch("[0-9a-f]{16}", run_id):
            raise ValueError("lies in no folder of a run")
        made = steps(path, run_id)
    except (OSError, ValueError) as error:
        home.damages.append(Damage(f"runs/{run_id}/{CHECKPOINT}", "altered", f"{error}. Copy the pack again."))
        return
    lock = records.lock(run_id)
    try:
        with lock.acquire(timeout=0):
            record, own = records.get(run_id), records.work_folder(run_id) / CHECKPOINT
            if record is not None and record.final:
                home.left[run_id] = f"the run is {record.outcome}"
            elif (here := _steps(own, run_id)) >= made:
                home.left[run_id] = f"the one here has {here:,} steps, and that of the pack {made:,}"
            else:
                records.make_work_folder(run_id)
                with open_plain(path, path.parent) as source:
                    write_atomically(own, lambda file: shutil.copyfileobj(source, file))
                home.checkpoints.append(run_id)
    except Timeout:
        home.left[run_id] = "a process trains the run now"


def _steps(path: Path, run_id: str) -> int:
    """The steps of a checkpoint here; none of one that is missing or that no training would resume from."""
    try:
        return steps(path, run_id)
    except (OSError, ValueError):
        return -1
