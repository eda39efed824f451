"""The table of all probes."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from lightning_modules.config import identity
from lightning_modules.data.settings import Data
from lightning_modules.probing.labelled import LABELLED
from lightning_modules.probing.made.probe import MADE
from lightning_modules.probing.parts import Parts, Probe, TooFewExamples
from lightning_modules.probing.retrieval import RETRIEVALS

RECIPE = 1  # raise when the same states would give other scores
PREFIX = "probes."  # of the names of probes among the fingerprints of a run


PROBES: dict[str, Probe] = {probe.name: probe for probe in (*MADE, *LABELLED, *RETRIEVALS)}


def with_examples(names: Iterable[str], data: Data) -> Iterator[tuple[Probe, Parts]]:
    """Probes with their examples. Left out are those that the held-out text of the corpora is too small for.

    A run's identity names them all: which are left out follows from its text.

    Raises:
        ConfigError: When data are missing.
    """
    for name in names:
        with suppress(TooFewExamples):
            yield PROBES[name], PROBES[name].examples(data)


def left_out(names: Iterable[str], data: Data) -> list[str]:
    """The names of the probes that `with_examples` leaves out."""
    has_examples = {probe.name for probe, _ in with_examples(names, data)}
    return [name for name in names if name not in has_examples]


def fingerprints(names: tuple[str, ...]) -> dict[str, str]:
    """For the identity of a run: ``probes.<name>`` -> fingerprint of its examples and of how they are read."""
    return {PREFIX + name: identity([RECIPE, PROBES[name].fingerprint()]) for name in names}
