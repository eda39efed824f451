"""Measurements at the end of a training: similarity of layers, and measures of the objectives."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F

from lightning_modules.batch import Encoded, Example
from lightning_modules.data.baselines.two_way import Answers
from lightning_modules.objectives import own_heads
from lightning_modules.training.module import Pretrain

_FEW = 8  # held-out batches; enough for means over thousands of tokens


def layer_similarity(module: Pretrain, heldout: Iterable[Example], bf16: bool) -> dict[str, list[float]]:
    """How far the output of each layer is from its input (Lan et al. 2020, section 4.5 and Figure 1).

    Means over the real tokens of some held-out sequences, dropout off. The paper does not say what it averages over.

    Returns:
        ``distance``: L2 distance of a layer's output from its input; ``angle``: the angle between the two in degrees.
        One number per layer; the first layer's input is the output of the (projected) embeddings. Nothing for an
        encoder with a layer whose output has another width than its input, and so no distance from it.
    """
    sums: dict[str, defaultdict[int, float]] = {name: defaultdict(float) for name in ("distance", "angle")}
    tokens = 0

    def add(encoded: Encoded, example: Example) -> None:
        nonlocal tokens
        if len({layer.shape for layer in encoded.layers}) > 1:
            return
        real = example.inputs.real
        tokens += int(real.sum())
        for i, (before, after) in enumerate(itertools.pairwise(layer[real].float() for layer in encoded.layers)):
            cosine = F.cosine_similarity(before, after, dim=-1).clamp(-1, 1)
            sums["distance"][i] += float((after - before).norm(dim=-1).sum())
            sums["angle"][i] += float(torch.acos(cosine).sum()) * 180 / math.pi

    each(module, itertools.islice(heldout, _FEW), bf16, add)
    return {name: [layers[i] / tokens for i in sorted(layers)] for name, layers in sums.items()} if tokens else {}


def measures(module: Pretrain, examples: Iterable[Example], bf16: bool) -> dict[str, float]:
    """Exact means of the held-out measures of every objective whose target the examples carry."""
    means = Means(module)
    each(module, examples, bf16, means.add)
    return means.found()


def pair_measures(module: Pretrain, examples: Iterable[Example], bf16: bool) -> dict[str, float]:
    """`measures` of segment pairs and, of a model that was trained to answer, ``sentence_auc``.

    That is the probability that a pair of label 1 scores higher than one of label 0.
    """
    means, asking = Means(module), module.objectives.sentence
    scores, labels = [], []

    def add(encoded: Encoded, example: Example) -> None:
        means.add(encoded, example)
        if asking is not None:
            logits = asking.logits(own_heads(module.heads, "sentence"), encoded, example).float()
            scores.append((logits[:, 1] - logits[:, 0]).cpu())
            labels.append(example.targets["sentence"].ids.cpu())

    each(module, examples, bf16, add)
    if not scores:
        return means.found()
    answers = Answers(torch.cat(scores).double().numpy(), torch.cat(labels).numpy())
    return means.found() | {"sentence_auc": answers.auc}


class Means:
    """Sums and counts of the measures of a module's objectives."""

    def __init__(self, module: Pretrain) -> None:
        self.module = module
        self.totals: defaultdict[str, float] = defaultdict(float)
        self.counts: defaultdict[str, float] = defaultdict(float)

    def add(self, encoded: Encoded, example: Example) -> None:
        """Adds the measures of a batch."""
        for name, (total, count) in self.module.objectives.measure(self.module.heads, encoded, example).items():
            self.totals[name] += float(total)
            self.counts[name] += float(count)

    def found(self) -> dict[str, float]:
        """The means."""
        return {name: self.totals[name] / self.counts[name] for name in self.totals}


@torch.no_grad()
def each(module: Pretrain, examples: Iterable[Example], bf16: bool, use: Callable[[Encoded, Example], None]) -> None:
    """Encodes examples as in validation, rows that go on from each other with a carry, and passes each to ``use``."""
    module.eval()
    state = module.heldout_state()
    for example in examples:
        moved = example.to(module.device)
        with torch.autocast(module.device.type, dtype=torch.bfloat16, enabled=bf16):
            use(state.encode(module.backbone, moved), moved)
