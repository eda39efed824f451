"""A record: the JSON file of a run, the only source of tables."""

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from ablations.schema.kinds import KindName
from ablations.schema.run import Run
from lightning_modules.config import Settings, knob, required

Outcome = Literal["done", "diverged", "invalid", "oom", "failed", "killed", "timeout"]


# no measurement is larger: 32-bit floats end at 3e38; sums, squares and ratios of such numbers stay finite
Number = Annotated[float, Field(ge=-1e100, le=1e100)]

FINAL: tuple[Outcome, ...] = ("done", "diverged", "invalid")  # the others are attempts, repeated on a rerun
PASSING: tuple[Outcome, ...] = ("failed", "killed")  # of those, the ones that are repeated at once


class Record(Settings):
    """The result of a run: its configuration, outcome, measurements, cost and provenance."""

    schema_version: Literal[1] = 1
    id: str = required("Id of the run.", pattern=r"^[0-9a-f]{16}$")
    kind: KindName = required("Kind of the run.")
    config: dict[str, Any] = required("The settings of the run as data.")
    outcome: Outcome = required("How the run ended.")
    detail: str = knob("", "The reason, if the run is not done.", max_length=4000)
    metrics: dict[str, Number | bool] = knob({}, "Final measurements.")
    curve: dict[str, list[Number]] = knob({}, "Measurements during training, at most 64 points each.")
    layers: dict[str, list[Number]] = knob({}, "Statistics of each layer, from the first.")
    examples: dict[str, str] = knob({}, "Packed numbers of each dev example: the answer, its score, probabilities.")
    cost: dict[str, Number] = knob({}, "Seconds, tokens, FLOPs, parameters.")
    provenance: dict[str, Any] = knob({}, "Commit, device, versions, times. No part of the identity.")
    checksum: str = knob("", "SHA-256 of all other fields.")

    @field_validator("config")
    @classmethod
    def _of_this_kind(cls, config: dict[str, Any], given: ValidationInfo) -> dict[str, Any]:
        kind = given.data.get("kind")
        if (configured := config.get("kind", kind)) != kind:
            raise ValueError(f"it is of the kind {configured!r}, and the record of the kind {kind!r}")
        return config

    @property
    def final(self) -> bool:
        """Whether a rerun keeps this record."""
        return self.outcome in FINAL

    def run(self) -> Run:
        """The run of this record.

        Raises:
            ConfigError: If this version of the project cannot read the configuration.
        """
        return Run.read(self.config)


def checksum(record: dict[str, Any]) -> str:
    """SHA-256 of a record's data without its checksum, as JSON with sorted keys."""
    rest = {key: value for key, value in record.items() if key != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
