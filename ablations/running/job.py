"""What the process of a run has to know, in a file."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ablations.core.store import write
from lightning_modules.files import read
from lightning_modules.training.execution import ALONE, Execution

FILE = "run.json"  # in the work folder of the run


@dataclass(frozen=True)
class Job:
    """The task of the process of a run; the content of its file.

    Attributes:
        run: The run, ready for JSON.
        results_dir: The folder for the record.
        work_dir: The folder for log, progress and checkpoint.
        threads: Threads of torch; None for its own choice.
        environment: Variables to set before anything else.
        code: The launcher's `provenance.fingerprint`, which a node compares with its own.
        execution: How pretrainings are executed.
        most: How many attempts at the run there may be, earlier ones included.
        grid: The grid for which it is made.
        label: The scale, and what its plan calls the run.
    """

    run: dict[str, Any]
    results_dir: str
    work_dir: str
    threads: int | None = None
    environment: dict[str, str] | None = None
    code: str = ""
    execution: Execution = ALONE
    most: int | None = None
    grid: str = ""
    label: str = ""

    def save(self) -> Path:
        """Writes the job into its work folder and returns the file."""
        path = Path(self.work_dir) / FILE
        own = path.with_name(f".{FILE}.{os.getpid()}")  # several launchers may write it before any has the lock
        write(own, json.dumps(asdict(self)).encode())
        os.replace(own, path)
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Job":
        """Reads what `save` wrote."""
        told = json.loads(read(Path(path)))
        return cls(**told | {"execution": Execution(**told["execution"])})
