"""The table of all probes."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Protocol

from lightning_modules.config import identity
from lightning_modules.data.settings import Data
from lightning_modules.probing.labelled import Labelled
from lightning_modules.probing.made.probe import MADE
from lightning_modules.probing.parts import Parts, TooFewExamples
from lightning_modules.probing.retrieval import RETRIEVALS
from lightning_modules.probing.sets import SETS
from lightning_modules.tasks.shapes.texts import Texts

RECIPE = 1  # raise when the same states would give other scores
PREFIX = "probes."  # of the names of probes among the fingerprints of a run


class Probe(Protocol):
    """A question about texts, with labelled examples."""

    @property
    def name(self) -> str:
        """Its name in settings; its metrics are called ``probes.<name>``."""
        ...

    @property
    def title(self) -> str:
        """Its question, in a line."""
        ...

    @property
    def metric(self) -> str:
        """The metric of its answers, a key of ``tasks.scores.metrics.METRICS``."""
        ...

    @property
    def shape(self) -> Texts:
        """One text or two, and the classes; none in regression."""
        ...

    @property
    def by_layer(self) -> bool:
        """Whether each layer that is read has a score of its own, besides that of the layer that is chosen."""
        ...

    def fingerprint(self) -> str:
        """What its examples follow from, besides the text of a run's corpora."""
        ...

    def examples(self, data: Data) -> Parts:
        """Its examples; corpora give those that are made from text.

        Raises:
            ConfigError: When data are missing.
            TooFewExamples: When it is made from held-out text, and that is too small.
        """
        ...


PROBES: dict[str, Probe] = {probe.name: probe for probe in (*MADE, *map(Labelled, SETS.values()), *RETRIEVALS)}


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
