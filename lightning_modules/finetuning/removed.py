"""How many parameters a fine-tuning removes from its encoder."""

from lightning_modules.finetuning.head_pruning import Heads
from lightning_modules.model.weights import undrawn
from lightning_modules.system import System
from lightning_modules.tasks import FineTuning
from lightning_modules.training.masks import matrices


def removed(system: System, settings: FineTuning) -> int:
    """Parameters of removed heads, and weights that are held at 0. Counted without allocating memory."""
    if settings.removal is None and settings.masking is None:
        return 0
    with undrawn():
        encoder = system.model.build(system.data.tokenizer.vocab_size)
        if settings.masking is not None:
            return round(settings.masking.sparsity * sum(weight.numel() for weight in matrices(encoder).values()))
        assert settings.removal is not None
        whole, heads = sum(weight.numel() for weight in encoder.parameters()), Heads.of(encoder)
        heads.remove(range(settings.removal.removed(heads.count)))
        return whole - sum(weight.numel() for weight in encoder.parameters())
