"""Scale files: a size is defined once for all grids; a grid states only what differs.

Later settings win: the base system, the scale's file, the grid's ``set``, the ``set`` of the grid's entry for the
scale, the cell's own values. Some knobs of the scale's file do not apply: those that the grid varies by axes or
variants, those inside a part that the grid sets, those of parts that a system lacks, and fine-tuning on tasks that the
grid does not have at that scale. Its ``pins`` do not apply where the grid compares whole systems.

A scale may be *like* another. Its file then changes the other file's settings. If a grid has no entry for the new
scale, it uses its entry for the other one, axes and stand-ins included; there the new file's knobs win over the
entry's, but for those that do not apply: sizes that the grid varies are all the entry's.
"""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablations.core.strict_yaml import State, state
from ablations.planning import checked
from ablations.planning.scale_files import available
from ablations.schema.scale import ScaleFile
from lightning_modules.config import ConfigError, Problem, flat

if TYPE_CHECKING:
    from lightning_modules.system import System


def read(name: str) -> ScaleFile:
    """Reads and checks the file of a scale.

    Raises:
        ConfigError: With the nearest name, if there is no such scale; else with every problem as ``file:line: path:
            problem``.
    """
    return lineage(name)[0]


def caveat(name: str, systems: "Iterable[System]") -> str:
    """What results of some systems at a scale cannot show; empty for a scale that only a grid knows."""
    if name not in available():
        return ""
    file = read(name)
    is_about = any(file.caveat_where.items() <= flat(system).items() for system in systems)
    return file.caveat if is_about else ""


def has_recipe(name: str) -> bool:
    """Whether a scale pins the knobs of training, so that all models of a grid have one recipe."""
    return name in available() and any(file.pins for file in lineage(name))


def judges(name: str) -> bool:
    """Whether claims get verdicts at a scale; a scale that only a grid knows judges."""
    return name not in available() or read(name).judged


def is_trial(name: str) -> bool:
    """Whether what a scale leaves stays next to the published results; not of a scale that only a grid knows."""
    return name in available() and read(name).trial


def lineage(name: str) -> tuple[ScaleFile, ...]:
    """The file of a scale, of the scale that it is like, and so on, all checked.

    Raises:
        ConfigError: As `read`, and for scales that are like each other.
    """
    return _lineage(name, tuple((file, state(file)) for file in available().values()))


@lru_cache(maxsize=64)
def _lineage(name: str, states: tuple[tuple[Path, State], ...]) -> tuple[ScaleFile, ...]:
    """Those files, cached by the present ``states`` of all: every grid reads them."""

    def check() -> tuple[ScaleFile, ...]:
        from ablations.planning.checks import scale_checks  # a second to import

        return scale_checks.checked(name)

    return checked.kept(ScaleFile, name, states, check)


def checkpoints(name: str) -> dict[str, Any]:
    """What a scale changes about the published fine-tuning of checkpoints.

    Raises:
        ConfigError: For problems of its file, and if neither it nor a scale that it is like has ``checkpoints:``.
    """
    sections = (file.checkpoints for file in lineage(name))
    section = next((knobs for knobs in sections if knobs is not None), None)
    if section is None:
        able = ", ".join(other for other in available() if any(file.checkpoints is not None for file in lineage(other)))
        text = f"the file of '{name}' has no 'checkpoints:' section. Allowed: {able}."
        raise ConfigError([Problem("--scale", text)])
    return section
