"""The sides of a comparison: which cells they are, and which of their runs may be compared.

Comparisons never cross device classes: a run on a GPU and one on a CPU differ by more than the knob.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ablations.measurements.measurements import BySeed
from ablations.schema.cell import Cell
from ablations.schema.metrics import TRANSLATED, WORDS
from lightning_modules.config import identity
from lightning_modules.zero_shot.settings import Measurement
from lightning_modules.zero_shot.table import ZERO_SHOT

_WORDS_OF_PAIRS = "heldout.pairs_"
_OF_NEIGHBOURS = "heldout.joint_"
_OF_PAIRS = (_WORDS_OF_PAIRS, "heldout.sop_", "heldout.nsp_")


def one_text(cells: Sequence[Cell], metric: str) -> bool:
    """Whether a metric of these cells is measured on one held-out text, as all are that are not of held-out text.

    Losses of training are of other tokens where another share of them, or others, are predicted, such as another K.
    """
    if metric.startswith("train."):
        objectives = [cell.system.objectives.main for cell in cells]
        return len({identity([type(one).__qualname__, one.essence()]) for one in objectives}) == 1
    asked = ZERO_SHOT.get(metric.partition(".")[0])
    if asked and asked.of_run:  # the same stretches for every tokenizer
        return len({identity(asked.text(cell.system, _asked_by(cell, asked.name))) for cell in cells}) == 1
    return not metric.startswith("heldout.") or len({identity(_heldout_text(cell, metric)) for cell in cells}) == 1


def _asked_by(cell: Cell, task: str) -> Measurement:
    """How the runs of a cell are evaluated on a zero-shot task."""
    found = (run.measuring for run in cell.zero_shot if run.task == task and run.measuring is not None)
    return next(found, Measurement())


def _heldout_text(cell: Cell, metric: str) -> dict[str, Any]:
    """What determines the held-out text of a cell, or its held-out pairs, and the predictions."""
    system, form = cell.system, cell.system.heldout_format
    asked = {"rate": system.evaluation.rate, "own": system.own_question}
    text = {"data": system.data.essence(), "length": form.sequence_length} | asked
    if form.kind == "stream":  # the length of its sequences is how it is read
        positions = form.sequence_length * system.evaluation.sequences_at_end
        own = {"positions": positions, "rows": system.evaluation.rows, "frame": form.frame}
        return {"data": text["data"], "kind": form.kind, "sentence_order": form.sentence_order} | own | asked
    if metric.startswith(WORDS):
        return {name: text[name] for name in ("length", "rate")} | {
            "corpora": system.data.corpora,
            "words": system.evaluation.words,
        }
    if metric.startswith(TRANSLATED):  # detokenised, whatever the pieces
        return {"corpora": system.data.corpora, "length": form.sequence_length} | {
            "translations": system.evaluation.translations
        }
    if metric.startswith(_OF_NEIGHBOURS):
        return text | {"break_mode": form.break_mode, "neighbours": system.evaluation.neighbours, "rate": 0}
    if metric.startswith(_OF_PAIRS):
        of_words = metric.startswith(_WORDS_OF_PAIRS)  # answers about pairs compare whatever is shown of them
        shown = {"excerpt": system.format.resolved().excerpt} if of_words else {}
        return text | {"pairs": system.evaluation.pairs, "pairing": system.evaluation.pairing} | shown
    return text | {"break_mode": form.break_mode, "sequences": system.evaluation.sequences_at_end}


@dataclass(frozen=True)
class Compared:
    """The measurements of several sides that may be compared.

    Attributes:
        sides: The measurements of each side by seed. Sides may have different seeds.
        apart: Seeds left out because of different device classes.
        alone: Seeds left out because not every side has a run, where runs are compared within seeds.
    """

    sides: tuple[BySeed, ...]
    apart: tuple[int, ...] = ()
    alone: tuple[int, ...] = ()

    @property
    def n(self) -> int:
        """The number of runs of the side that has fewest."""
        return min(map(len, self.sides), default=0)

    @property
    def values(self) -> tuple[dict[int, float], ...]:
        """The values of each side by seed."""
        return tuple({seed: row.value for seed, row in side.items()} for side in self.sides)

    @property
    def runs(self) -> tuple[tuple[str, ...], ...]:
        """The run ids of each side, by seed."""
        return tuple(tuple(side[seed].run for seed in sorted(side)) for side in self.sides)

    @property
    def floor(self) -> tuple[bool, ...]:
        """Whether each side is at the floor of its losses: half of its runs or more have not left it."""
        flags = [[row.floor for row in side.values() if row.floor is not None] for side in self.sides]
        return tuple(bool(side) and 2 * sum(side) >= len(side) for side in flags)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out and why, one sentence each."""
        left_out = (
            (self.apart, "their runs come from different device classes"),
            (self.alone, "not every side has a run of that seed"),
        )
        return tuple(f"seeds {', '.join(map(str, seeds))} are left out: {why}" for seeds, why in left_out if seeds)


def comparable(sides: Sequence[BySeed], within_seeds: bool = False) -> Compared:
    """The runs of two or more sides that may be compared, ``within_seeds`` only those of seeds that all sides have.

    A seed whose runs come from different device classes is left out. If the rest is still of several classes, so is a
    seed that some side lacks: then every class adds the same to all sides.
    """
    seeds = sorted(set().union(*sides))
    apart = {seed for seed in seeds if len({side[seed].device for side in sides if seed in side}) > 1}
    if len({row.device for side in sides for seed, row in side.items() if seed not in apart}) > 1:
        apart |= {seed for seed in seeds if any(seed not in side for side in sides)}
    alone = {seed for seed in seeds if within_seeds and any(seed not in side for side in sides)} - apart
    return Compared(
        tuple({seed: row for seed, row in sorted(side.items()) if seed not in apart | alone} for side in sides),
        tuple(sorted(apart)),
        tuple(sorted(alone)),
    )


def by_pretraining(cells: Sequence[Cell]) -> list[Cell]:
    """Cells that share a pretraining become one, with the values that they agree on."""
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(tuple(run.id for run in cell.runs), []).append(cell)
    distinct = []
    for first, *others in groups.values():
        agreed = {path: v for path, v in first.values.items() if all(o.values.get(path) == v for o in others)}
        distinct.append(first.model_copy(update={"values": agreed}) if others else first)
    return distinct
