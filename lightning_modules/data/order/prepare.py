"""The function of a system by which a data module makes examples of sequences."""

from collections.abc import Callable

from lightning_modules.batch import Example, Tokens, Vocabulary
from lightning_modules.draws import Draws

Prepare = Callable[[Tokens, Draws, Vocabulary], Example]


def uncorrupted(tokens: Tokens, draws: Draws, vocabulary: Vocabulary) -> Example:
    """The example without objectives: no corruption and no targets."""
    return Example.of(tokens)
