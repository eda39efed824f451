"""How the sequences of a step become examples: what a data module is given by a system."""

from collections.abc import Callable

from lightning_modules.batch import Example, Tokens, Vocabulary
from lightning_modules.draws import Draws

Prepare = Callable[[Tokens, Draws, Vocabulary], Example]


def uncorrupted(tokens: Tokens, draws: Draws, vocabulary: Vocabulary) -> Example:
    """The example without any objective: nothing hidden, nothing predicted."""
    return Example.of(tokens)
