"""The queue of a campaign: parts of grids, what is worth most first. Bad rows are reported before anything runs."""

from pathlib import Path
from typing import Any

from ablations.core import strict_yaml
from ablations.core.store import Snapshot
from ablations.planning import grids
from ablations.planning.plan import FirstLookOpen, Plan, plan
from ablations.planning.shapes import keyed, shaped
from lightning_modules.config import ConfigError, Problem, Settings, knob, required

FILE = Path(__file__).parents[1] / "campaign.yaml"


class Row(Settings):
    """A part of a grid at a scale."""

    grid: str = required("A grid's name, or the path of its file.", min_length=1)
    scale: str = required("A scale at which it is planned.", min_length=1)
    look: int = knob(1, "2: also the further seeds of claims that are open after the first look.", ge=1)
    slice: dict[str, Any] = knob({}, "The part, as `Plan.sliced` takes it. By default all.")
    reason: str = required("Why it is at this place.", min_length=1)


class Campaign(Settings):
    """The file of a campaign."""

    rows: tuple[Row, ...] = required("The queue.", min_length=1)


def planned(file: str | Path | None, records: Snapshot) -> list[tuple[Row, Plan | None]]:
    """The rows of a file, by default the project's, each with its plan; None while its first look is not finished.

    Raises:
        ConfigError: With every problem as ``file:line: path: what is wrong``, and the nearest valid spelling.
    """
    document = strict_yaml.load(Path(file or FILE))
    if not isinstance(document.data, dict):
        document.complain((), "must be a mapping that starts with 'rows:'")
        document.check()
    keyed(document, Campaign)
    campaign, found = shaped(document, Campaign, {}), list[tuple[Row, Plan | None]]()
    for n, row in enumerate(campaign.rows if campaign else ()):
        try:
            found.append((row, _planned(row, records)))
        except ConfigError as error:
            for one in error.problems:
                inner = (one.path,) if one.path in ("grid", "scale", "look") else ("slice", one.path)
                document.complain(("rows", n, *inner), one.message)
    document.check()
    return found


def _planned(row: Row, records: Snapshot) -> Plan | None:
    try:
        grid = grids.read(row.grid)
    except ConfigError as error:
        raise ConfigError(Problem("grid", str(problem)) for problem in error.problems) from None
    try:
        return plan(grid, row.scale, records=records, look=row.look).sliced(row.slice)
    except FirstLookOpen:
        plan(grid, row.scale, records=records, look=1).sliced(row.slice)  # its words are checked all the same
        return None
