"""Trunks: pretrainings from which others continue.

Arms that continue from the same trunk share what chance gave it, so the trunk is the unit of replication: comparisons
among arms are made within each trunk. In a chain of trunks it is the first one. What is learnt by continuing is another
question than what is learnt from random weights, and the two are not subtracted from each other.

A run that takes over parts of another model, and whose rest is new, is no continuation: it is compared with runs from
random weights, as a fine-tuning is. Among those that start from one model comparisons are within it.

Readings and fine-tunings of one pretraining share its chance likewise: they are compared model by model. Fine-tunings
of different pretrainings, or of one released encoder, share labels and their order. Their scores are no more alike for
it, so they are separate draws, as pretrainings of one seed are.
"""

from collections.abc import Iterable, Sequence, Set

from ablations.schema.cell import Cell
from ablations.schema.run import Run
from lightning_modules.zero_shot.table import ZERO_SHOT

WORD = "continued pretraining"  # the mark of results of such runs
OF_TUNED = "Fine-tunings of one pretraining are compared seed by seed, others as separate draws."
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
    """Whether the runs of all sides, seed by seed, come from one trunk or start from the same pretraining.

    A side that is the mean of two runs has two, and shares one of them with a side that is either run.
    """
    by_seed: dict[int, list[set[str]]] = {}
    for side in sides:
        own: dict[int, set[str]] = {}
        for run in side:
            own.setdefault(run.seed, set()).add(_block(run))
        for seed, blocks in own.items():
            by_seed.setdefault(seed, []).append(blocks)
    return bool(by_seed) and all(set.intersection(*blocks) - {""} for blocks in by_seed.values())


def _block(run: Run) -> str:
    """The id of the first trunk of a run, or of the pretraining that it starts from; empty if it may share neither."""
    if root := _root(run):
        return root
    task, before = ZERO_SHOT.get(run.task or ""), _pretraining(run)
    shares = run.kind == "finetune" or (task is not None and task.of_weights)
    return before.id if shares and before is not None else ""


def are_tuned(sides: Sequence[Iterable[Run]]) -> bool:
    """Whether all runs of all sides are fine-tunings."""
    runs = [run for side in sides for run in side]
    return bool(runs) and all(run.kind == "finetune" for run in runs)


def ask_different_questions(sides: Sequence[Iterable[Run]]) -> bool:
    """Whether some side continues a pretraining, and another has one that starts from random weights."""
    roots = {_root(run) for side in sides for run in side} - {""}
    origins = {_origin(run, roots) for side in sides for run in side} - {""}
    return FROM_SCRATCH in origins and len(origins) > 1


def of_cells(cells: Iterable[Cell]) -> tuple[Run, ...]:
    """The trunks of the cells' runs, each once, in the order of their seeds."""
    trunks = {trunk.id: trunk for cell in cells for run in cell.planned for trunk in trunks_of(run)}
    return tuple(sorted(trunks.values(), key=lambda run: run.seed))
