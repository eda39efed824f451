"""Finds and reads grid files, and reports all problems of a file at once."""

from functools import lru_cache
from pathlib import Path

from ablations.core import strict_yaml
from ablations.core.strict_yaml import State
from ablations.planning import checked, scales
from ablations.schema.grid import Grid
from lightning_modules.config import ConfigError, Problem
from lightning_modules.places import UNPUBLISHED, checkout, own, project, results
from lightning_modules.problems import entry_of

FOLDER = Path(__file__).parents[1] / "grids"
ENDINGS = (".yaml", ".yml")  # of a path; a name has none
REQUEST = "request.json"  # in a page's folder: the request, if it overrides the grid or the scale


def home() -> Path:
    """The folder for new grids: the user's own, or the project's in a checkout."""
    return [FOLDER, *own("grids")][-1]


def available() -> dict[str, Path]:
    """Grid name -> file: the project's grids, then the user's own.

    Raises:
        ConfigError: If two files have the same name.
    """
    return strict_yaml.named("grids", [FOLDER, *own("grids")])


def locate(grid: str | Path) -> Path:
    """The file of a grid, by name or path.

    Raises:
        ConfigError: With the nearest name, if there is no such grid.
    """
    named = str(grid)
    if named.endswith(ENDINGS):
        if not Path(named).exists() or Path(named).is_dir():
            raise ConfigError([f"{named}: {'is a folder' if Path(named).is_dir() else 'there is no such file'}"])
        ours = available().get(Path(named).stem)
        if ours is not None and not ours.samefile(named):
            raise ConfigError(
                [f"{named}: there is a grid '{ours.stem}' already ({ours}), with its page. Rename the file."]
            )
        return Path(named)
    return entry_of(available(), named, "grid")


def is_own(grid: str) -> bool:
    """Whether a grid is a user's own question rather than one of the project, which all name a paper."""
    return grid not in available() or not read(grid).paper


def results_dir(grid: str, scale: str) -> Path:
    """The results folder of a grid at a scale if none is named.

    What is for trial stays next to the published results, as do a user's own grids in a bare checkout.
    """
    is_beside = scales.is_trial(scale) or (project() == checkout() and is_own(grid))
    return results() / UNPUBLISHED if is_beside else results()


def read(grid: str | Path) -> Grid:
    """Reads and checks a grid, and builds the systems of its cells at every scale.

    Raises:
        ConfigError: With every problem as ``file:line: path: what is wrong``.
    """
    file = locate(grid)
    files = (file, *scales.available().values())
    return _read(file.resolve(), tuple((one, strict_yaml.state(one)) for one in files))


def readable() -> tuple[dict[str, Grid], list[Problem]]:
    """The project's grids by name without those that cannot be read, and the problems of these."""
    found: dict[str, Grid] = {}
    problems: list[Problem] = []
    for name in available():
        try:
            found[name] = read(name)
        except ConfigError as error:
            problems += error.problems
    return found, problems


@lru_cache(maxsize=128)
def _read(file: Path, states: tuple[tuple[Path, State], ...]) -> Grid:
    """Reads a file, cached by its state and the scales': every page reads all grids for the scoreboard."""

    def check() -> tuple[Grid]:
        from ablations.planning import reading  # a second to import

        return (reading.checked(file),)

    return checked.kept(Grid, file.stem, states, check)[0]
