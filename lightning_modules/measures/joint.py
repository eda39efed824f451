"""Two hidden neighbours of each held-out row: predicted together, each alone, and one after the other."""

from collections.abc import Callable
from dataclasses import replace

from lightning_modules.data.order.heldout import HeldOut
from lightning_modules.measures.by_sequence import BySequence, losses_by_sequence
from lightning_modules.objectives.masking import Hidden
from lightning_modules.training.module import Pretrain


def joint_losses(module: Pretrain, asked: Callable[[Hidden], HeldOut], bf16: bool) -> BySequence:
    """Nats of two neighbours by sequence; of a sequence without two words nothing.

    Args:
        module: A trained model that fills hidden tokens.
        asked: Held-out sequences of which both neighbours are hidden, or one.
        bf16: Whether it reads in half precision.

    Returns:
        ``joint_loss``: both as the objective factorises them; ``joint_alone_loss``: each from the context alone;
        ``joint_filled_loss``: one from the context and then the other with the first in its place, the mean over both
        orders (`analysis.joint_filling`). A masked model says the first by its formula. What it could predict in two
        steps is the third.
    """
    both, left, right = (losses_by_sequence(module, asked(hidden), bf16) for hidden in ("both", "left", "right"))
    alone = both.nats["loss"]
    nats = {
        "joint_loss": both.nats.get("permuted_loss", alone),
        "joint_alone_loss": alone,
        "joint_filled_loss": (alone + left.nats["loss"] + right.nats["loss"]) / 2,
    }
    return replace(both, nats=nats, counts=dict.fromkeys(nats, both.counts["loss"] // 2))
