"""Trunks: pretrainings from which others continue.

Arms that continue from the same trunk share what chance gave it, so the trunk is the unit of replication: comparisons
among arms are made within each trunk. In a chain of trunks it is the first one. What is learnt by continuing is another
question than what is learnt from random weights, and the two are not subtracted from each other.

A run that takes over parts of another model, and whose rest is new, is no continuation: it is compared with runs from
random weights, as a fine-tuning is. Among those that start from one model comparisons are within it.

Readings of one model in several ways share its chance likewise: they are compared model by model.
"""

from collections.abc import Iterable, Sequence, Set

from ablations.schema.cell import Cell
from ablations.schema.run import Run
from lightning_modules.zero_shot.table import ZERO_SHOT

WORD = "continued pretraining"  # the mark of results of such runs
FROM_SCRATCH = "from random weights"


def trunks_of(run: Run) -> tuple[Run, ...]:
    """The runs that the pretraining behind a run continues, one after the other, the nearest first."""
    pretrained = _pretraining(run)
    if pretrained is None or pretrained.system.training.start_parts or not pretrained.system.training.start:
        return ()
    before = pretrained.start
    return () if before is None else (before, *trunks_of(before))


def shared_by(run: Run) -> tuple[Run, ...]:
    """The pretrainings behind the one of a run that it shares with others: its trunks and teachers, each once."""
    pretrained = _pretraining(run)
    if pretrained is None or pretrained.system.training.warm_start:
        return ()
    return tuple(member for member in pretrained.lineage[1:] if member.kind == "pretrain")


def _pretraining(run: Run | None) -> Run | None:
    while run is not None and run.kind != "pretrain":
        run = run.start
    return run


def _root(run: Run) -> str:
    """The id of the first training whose chance is behind a run, shared by all that start from it; empty without one.

    That is the first of its trunks. A run from random weights that has a teacher has the chance of its teacher.
    """
    pretrained = _pretraining(run)
    if pretrained is None or pretrained.system.training.warm_start:
        return ""
    before = pretrained.start or pretrained.by_role.get("teacher")
    return "" if before is None else _root(before) or before.id


def _origin(run: Run, roots: Set[str]) -> str:
    """The id of the first trunk behind a run, `FROM_SCRATCH`, or nothing for what is new itself.

    That is a fine-tuning of random weights, and a model that takes over parts of another one.
    A trunk that is itself fine-tuned or read is the origin of its arms: what it adds to continue it is one question.
    """
    pretrained = _pretraining(run)
    if pretrained is None or pretrained.system.training.start_parts:
        return ""
    if run is not pretrained and pretrained.id in roots:
        return pretrained.id
    return _root(run) or FROM_SCRATCH


def are_shared(sides: Sequence[Iterable[Run]]) -> bool:
    """Whether the runs of all sides, seed by seed, come from one trunk or read the same weights."""
    by_seed: dict[int, set[str]] = {}
    for side in sides:
        for run in side:
            by_seed.setdefault(run.seed, set()).add(_block(run))
    return bool(by_seed) and all(len(blocks) == 1 and "" not in blocks for blocks in by_seed.values())


def _block(run: Run) -> str:
    """The id of the first trunk of a run, or of the model that it reads; empty if it may share neither."""
    if root := _root(run):
        return root
    task = ZERO_SHOT.get(run.task or "")
    return run.start.id if task and task.of_weights and run.start is not None else ""


def ask_different_questions(sides: Sequence[Iterable[Run]]) -> bool:
    """Whether some side continues a pretraining, and another has one that starts from random weights."""
    roots = {_root(run) for side in sides for run in side} - {""}
    origins = {_origin(run, roots) for side in sides for run in side} - {""}
    return FROM_SCRATCH in origins and len(origins) > 1


def of_cells(cells: Iterable[Cell]) -> tuple[Run, ...]:
    """The trunks of the cells' runs, each once, in the order of their seeds."""
    trunks = {trunk.id: trunk for cell in cells for run in cell.planned for trunk in trunks_of(run)}
    return tuple(sorted(trunks.values(), key=lambda run: run.seed))
