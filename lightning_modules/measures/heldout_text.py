"""Which held-out words the losses of a system ask for: only losses of the same words compare."""

from collections.abc import Mapping
from typing import Any

from lightning_modules import streams
from lightning_modules.config import canonical, identity
from lightning_modules.data import Data
from lightning_modules.data.baselines.bigram import MASKED, OF_TOKENS, prefix
from lightning_modules.system import System


def described(system: System, fingerprints: Mapping[str, str]) -> list[Any]:
    """All that determines the held-out text of a system and which of its words are predicted.

    Args:
        fingerprints: Corpus -> fingerprint, of its own corpora at least.
    """
    form, evaluation = system.heldout_format.resolved(), system.evaluation
    own = {name: fingerprints[name] for name in system.data.named}
    text: list[Any] = [own, system.data.essence(), form.essence(), evaluation.sequences_at_end, evaluation.rate]
    if form.kind == "stream":  # sequences are segments of its rows
        read = streams.reading(system.format, evaluation)
        text += [read.rows, read.length]
    if system.own_question:
        text.append(system.own_question)
    return text


def named(text: list[Any]) -> str:
    """The id of what `described` says: sixteen hexadecimal digits."""
    return identity(text)[:16]


def targets(system: System) -> tuple[str, ...]:
    """The targets of a system's held-out losses that ask for words of which something is seen."""
    if system.checkpoint:
        return ()
    return tuple(name for name in system.heldout_objective.targets if name in OF_TOKENS)


def question(system: System, target: str) -> str:
    """What separates the words of one target from others of a text: ``loss``, ``next_loss``, ``loss.left_to_right``.

    Masked words of which a model sees one side are another question.
    """
    is_one_sided = target in MASKED and system.looks in ("left_to_right", "right_to_left")
    return f"{prefix(target)}loss" + f".{system.looks}" * is_one_sided


def read(system: System) -> dict[str, Data]:
    """The texts that a model has read, each once, in the pieces of its tokenizer.

    The training text is ``training``; those of parents, if they are others, are ``trunk``, ``trunk 2`` ..., the nearest
    first.
    """
    pieces = system.data.tokenized_by
    texts = [system.data, *(Data(corpora=other.data.corpora, tokenizer=pieces) for other in system.behind)]
    own, *others = {canonical(text.essence()): text for text in texts}.values()
    return {"training": own} | {f"trunk {n}".removesuffix(" 1"): text for n, text in enumerate(others, 1)}
