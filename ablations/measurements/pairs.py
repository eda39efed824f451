"""Pairs: fine-tunings that share what their seed gives.

Of one seed and task, fine-tunings draw the same labels (fewer are the first of more), see as many of them in the same
order, and start from pretrainings of that seed, or of its trunk. So they are pairs by design, and are compared seed by
seed; as all of them answer the same dev examples, also example by example.

Pretrainings of one seed share initial weights of equal shapes, and the order of a text where arms read the same. Their
losses are no more alike for it, so they are separate draws.
"""

from collections.abc import Iterable, Sequence

from ablations.schema.run import Run

ABOUT = (
    "Fine-tunings of one seed share labels and their order, so they are compared seed by seed and example by example."
)


def are_built(sides: Sequence[Iterable[Run]]) -> bool:
    """Whether all runs of all sides are fine-tunings, so that those of one seed are pairs."""
    runs = [run for side in sides for run in side]
    return bool(runs) and all(run.kind == "finetune" for run in runs)
