"""A run: one training from a seed on pinned text, or one measurement of a trained model.

Its ``id`` is a hash of everything that determines its numbers, its parents included.
"""

from functools import cached_property
from typing import Annotated, Self

from ablations.schema.kinds import KINDS, KindName
from lightning_modules import NUMERICS
from lightning_modules.config import AsMade, Settings, identity, knob, required
from lightning_modules.probing.table import PREFIX
from lightning_modules.probing.table import fingerprints as probes
from lightning_modules.system import System
from lightning_modules.tasks import FineTuning, fingerprint
from lightning_modules.zero_shot.settings import Measurement

NUMERICS_OF = {name: kind.numerics for name, kind in KINDS.items()}


class Run(Settings):
    """One unit of work: the pretraining of a system from a seed, or what is done with it, by code of a known
    generation.
    """

    kind: KindName = required("Kind of the run. See `kinds.KINDS`.")
    system: Annotated[System, AsMade()] = required("The system that is pretrained, or was before.")
    seed: int = required("Seed of initialisation, order, corruption and dropout.", ge=0)
    fingerprints: dict[str, str] = required("Corpus or task -> fingerprint of its text.")
    numerics: dict[str, int] = required("Package -> generation of its numerics.")
    task: str = knob("", "The task of a fine-tuning or measurement.", neutral="")
    finetuning: FineTuning | None = knob(None, "The settings of a fine-tuning.", neutral=None)
    measuring: Measurement | None = knob(None, "The settings of a measurement.", neutral=None)
    parents: tuple[str, ...] = knob((), "Ids of the runs whose weights this run starts from.", neutral=())

    @classmethod
    def pretraining(cls, system: System, seed: int, fingerprints: dict[str, str]) -> "Run":
        """The pretraining by the present code."""
        run = cls(
            kind="pretrain",
            system=system,
            seed=seed,
            fingerprints=fingerprints | probes(system.probed),
            numerics=current_numerics("pretrain"),
        )
        return run._with_parents()

    @classmethod
    def finetuning_of(cls, pretrained: "Run", task: str, fingerprint: str, finetuning: FineTuning) -> "Run":
        """The fine-tuning of a pretrained system on a task, from the same seed."""
        run = cls(
            kind="finetune",
            system=pretrained.system,
            seed=pretrained.seed,
            fingerprints={**pretrained.fingerprints, **_first(finetuning), task: fingerprint},
            numerics=current_numerics("finetune"),
            task=task,
            finetuning=finetuning,
        )
        return run._with_parents()

    @classmethod
    def measuring_of(cls, pretrained: "Run", task: str, fingerprint: str, measuring: Measurement) -> "Run":
        """The measurement of a pretrained system on a zero-shot task."""
        run = cls(
            kind="measure",
            system=pretrained.system,
            seed=pretrained.seed,
            fingerprints={**pretrained.fingerprints, task: fingerprint},
            numerics=current_numerics("measure"),
            task=task,
            measuring=measuring,
        )
        return run._with_parents()

    def of_generation(self, numerics: dict[str, int]) -> "Run":
        """The same run and its parents by code of other numerics generations."""
        return self.but(numerics=numerics, parents=[])._with_parents()

    def _with_parents(self) -> "Run":
        parent = self.parent
        return self.model_copy(update={"parents": (parent.id,)}) if parent else self

    def resolved(self) -> Self:
        """The run with settings only where they act, and without those that say a default.

        Raises:
            ConfigError: For such a setting of an unknown task.
        """
        run = super().resolved()
        settled = KINDS[run.kind].settled(run)
        return run.model_copy(update=settled) if settled else run

    @cached_property
    def parent(self) -> "Run | None":
        """The run whose weights this run starts from, derived from this run's settings."""
        if self.finetuning is not None and self.finetuning.from_scratch:
            return None
        if self.finetuning is not None and (first := self.finetuning.first):
            before = {"task": first, "finetuning": self.finetuning.but(first=None), "parents": ()}
            fingerprints = {name: self.fingerprints[name] for name in (*_pretrained_on(self.system), first)}
            return self.model_copy(update={**before, "fingerprints": fingerprints})._with_parents()
        system = self.system if KINDS[self.kind].settings else self.system.ancestor()
        if system is None:
            return None
        parts = NUMERICS_OF["pretrain"]
        return Run(
            kind="pretrain",
            system=system,
            seed=self.seed,
            fingerprints={name: self.fingerprints[name] for name in _pretrained_on(system)},
            numerics={part: self.numerics[part] for part in parts},
        )._with_parents()

    @cached_property
    def id(self) -> str:
        """16 hexadecimal digits: the hash of everything that determines the numbers."""
        return identity(self.essence())[:16]


def _pretrained_on(system: System) -> tuple[str, ...]:
    """The names of the fingerprints of a pretraining: corpora and probes, those of its ancestors included."""
    return (*system.corpora, *(PREFIX + name for name in system.probed))


def _first(finetuning: FineTuning) -> dict[str, str]:
    """The fingerprint of the first task, if there is one."""
    return {finetuning.first: fingerprint(finetuning.first)} if finetuning.first else {}


def current_numerics(kind: KindName) -> dict[str, int]:
    """Package -> numerics generation, for the packages that a kind of run depends on."""
    return {part: NUMERICS[part] for part in NUMERICS_OF[kind]}
