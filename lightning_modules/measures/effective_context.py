"""How much context models make use of: relative effective context length (RECL: Dai et al. 2019, appendix C).

A better model gains less from more context because it needs less of it, so a model is not evaluated alone. The loss of
a token at a short context is the smallest of a group of models. Only the tokens that are hardest for the whole group
count. A model's effective length is where more context stops to help it beyond that.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lightning_modules.config import ConfigError

Losses = Mapping[int, np.ndarray]  # context -> nats of each token, the same tokens at every context


@dataclass(frozen=True)
class Effective:
    """What a model makes use of.

    Attributes:
        exhausted: Whether it is the longest context that was measured, so that the model may make use of more.
        gains: The gain from each context that was left behind, or ended the search, to the next one.
    """

    length: int
    exhausted: bool
    gains: Mapping[int, float]


def effective_contexts(
    group: Mapping[str, Losses], hardest: float = 1.0, threshold: float = 0.01
) -> dict[str, Effective]:
    """The relative effective context length of each model of a group.

    With l(c, t) a model's loss of token t at context c, and b(c, t) the smallest of the group, f(c, c') is the mean of
    min(b(c, t), l(c', t)) over the tokens that are hardest by b(c, t); the gain from c to c' is
    1 - exp(f(c, c') - f(c, c)), the part of the perplexity that c' takes away. From the shortest context on, a model
    goes to the next one as long as its gain is not below the threshold.

    Args:
        group: Name of a model -> its losses at the same contexts, of the same tokens.
        hardest: Share r of the tokens that count, those with the largest b; the paper shows 0.1, 0.5 and 1.
        threshold: The smallest gain that counts.

    Raises:
        ConfigError: For models without common contexts and tokens, and for a share that leaves no token.
    """
    contexts, tokens = _in_common(group)
    count = round(hardest * tokens)
    if not 0 < hardest <= 1 or not count:
        raise ConfigError([f"hardest {hardest:g} of {tokens} tokens must be a share above 0, up to 1, and leave one"])
    gains: dict[str, dict[int, float]] = {name: {} for name in group}
    for context, longer in itertools.pairwise(contexts):
        best = np.min([losses[context] for losses in group.values()], axis=0)
        chosen = np.argsort(-best, kind="stable")[:count]
        for name, losses in group.items():
            before, after = (np.minimum(best, losses[c])[chosen].mean() for c in (context, longer))
            gains[name][context] = float(-np.expm1(after - before))
    return {name: _effective(contexts, own, threshold) for name, own in gains.items()}


def _effective(contexts: list[int], gains: Mapping[int, float], threshold: float) -> Effective:
    seen: dict[int, float] = {}
    for context in contexts[:-1]:
        seen[context] = gains[context]
        if gains[context] < threshold:
            return Effective(context, exhausted=False, gains=seen)
    return Effective(contexts[-1], exhausted=True, gains=seen)


def _in_common(group: Mapping[str, Losses]) -> tuple[list[int], int]:
    """The contexts of all models, ascending, and the number of tokens."""
    if not group:
        raise ConfigError(["a group has at least one model: give the losses of one"])
    contexts = {name: sorted(losses) for name, losses in group.items()}
    first, wanted = next(iter(contexts.items()))
    if len(wanted) < 2:
        raise ConfigError([f"{first} has losses at {len(wanted)} contexts. A gain needs at least 2."])
    wrong = [f"{name} has losses at contexts {own}, {first} at {wanted}" for name, own in contexts.items()]
    wrong = [text for text, own in zip(wrong, contexts.values(), strict=True) if own != wanted]
    shapes = {losses.shape for own in group.values() for losses in own.values()}
    if len(shapes) > 1:
        wrong.append(f"losses are of {', '.join(sorted(map(str, shapes)))} tokens. Measure the same at every context.")
    if wrong:
        raise ConfigError(wrong)
    return wanted, int(np.prod(shapes.pop()))
