"""What fits the clusters of words of an adaptive softmax, and of word embeddings of several widths."""

from lightning_modules.model import Backbone
from lightning_modules.objectives import Objectives


def check(model: Backbone, objectives: Objectives, vocab_size: int) -> None:
    """Checks that every cluster has words, and that softmax and embeddings have the same clusters.

    Raises:
        ValueError: Naming the knobs that are in the way.
    """
    lm = objectives.lm
    if lm is not None and max(lm.cutoffs, default=0) >= vocab_size:
        raise ValueError(
            f"objectives.lm.cutoffs {list(lm.cutoffs)} must be below data.tokenizer.vocab_size {vocab_size}"
        )
    if model.size(vocab_size).divisor == 1:
        return
    others = [f"objectives.{name}" for name, _ in objectives.present() if name not in ("lm", "sentence")]
    if lm is None or others:
        raise ValueError(
            f"model.embedding_divisor is of the adaptive softmax of objectives.lm, and {' and '.join(others)} multiply "
            "by one word table: set it to 1"
        )
    own = model.get("embedding_cutoffs")
    if own != lm.cutoffs:
        raise ValueError(
            f"model.embedding_cutoffs {list(own)} and objectives.lm.cutoffs {list(lm.cutoffs)} must be the same, since "
            "both are tied: set one of them to the other, or model.embedding_divisor to 1"
        )
