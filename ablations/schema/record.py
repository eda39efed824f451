"""A record: the JSON file that a run leaves, the only source of tables."""

import hashlib
import json
from typing import Any, Literal

from ablations.schema.run import Run
from lightning_modules.config import Settings, knob, required

Outcome = Literal["done", "diverged", "invalid", "oom", "failed", "killed", "timeout"]


FINAL: tuple[Outcome, ...] = ("done", "diverged", "invalid")  # the others are attempts, made again on a rerun


class Record(Settings):
    """What a run leaves: how it was configured, how it ended, what was measured, what it cost, where it ran."""

    schema_version: Literal[1] = 1
    id: str = required("The run.", pattern=r"^[0-9a-f]{16}$")
    kind: Literal["pretrain", "finetune"] = required("What was done.")
    config: dict[str, Any] = required("The run as plain data.")
    outcome: Outcome = required("How it ended.")
    detail: str = knob("", "Why, where it did not end well.", max_length=4000)
    metrics: dict[str, float | bool] = knob({}, "Final measurements.")
    curve: dict[str, list[float]] = knob({}, "Measurements along the way, at most 64 points each.")
    layers: dict[str, list[float]] = knob({}, "Statistics by layer, from the first.")
    examples: dict[str, str] = knob({}, "One number a dev example, packed: answer, and how right it is.")
    cost: dict[str, float] = knob({}, "Seconds, tokens, FLOPs, parameters.")
    provenance: dict[str, Any] = knob({}, "Commit, device, versions, times: none of it part of the identity.")
    checksum: str = knob("", "SHA-256 of everything else.")

    @property
    def final(self) -> bool:
        """Whether a rerun leaves it alone."""
        return self.outcome in FINAL

    def run(self) -> Run:
        """The run it belongs to.

        Raises:
            ConfigError: If this version of the project cannot read its configuration.
        """
        return Run.read(self.config)


def checksum(record: dict[str, Any]) -> str:
    """SHA-256 of a record's plain data without its checksum, keys sorted, numbers as they are written."""
    rest = {key: value for key, value in record.items() if key != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
