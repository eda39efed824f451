"""A run: one training from a seed on pinned text, or one measurement of a trained model.

Its ``id`` is a hash of everything that determines its numbers, its parents included.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Self

from ablations.schema.kinds import KINDS, KindName, numerics_of
from lightning_modules import NUMERICS, checkpoints
from lightning_modules.config import AsMade, Settings, identity, knob, required
from lightning_modules.data import fingerprints_of
from lightning_modules.parents import SEED, Role, parts
from lightning_modules.probing.table import PREFIX
from lightning_modules.probing.table import fingerprints as probes
from lightning_modules.system import System
from lightning_modules.tasks import FineTuning, fingerprint
from lightning_modules.tasks.unlabelled import fingerprint as of_texts
from lightning_modules.zero_shot.settings import Measurement

_MEASURED: dict[Role, dict[str, Any]] = {"start": {"task": ""}}  # what a measurement reads: its pretraining


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
    parents: tuple[str, ...] = knob((), "Ids of the runs whose weights this run reads.", neutral=())
    roles: tuple[Role, ...] = knob(
        (), "What the weights of each parent are to this run. Empty where it starts from its only one.", neutral=()
    )

    @classmethod
    def pretraining(cls, system: System, seed: int, fingerprints: dict[str, str]) -> "Run":
        """The pretraining by the present code; of a released checkpoint, the reading of it."""
        run = cls(
            kind=_made_by(system),
            system=system,
            seed=seed,
            fingerprints=fingerprints | probes(system.probed) | of_files(system),
            numerics=current_numerics(_made_by(system), system),
        )
        return run._with_parents()

    @classmethod
    def finetuning_of(cls, pretrained: "Run", task: str, fingerprint: str, finetuning: FineTuning) -> "Run":
        """The fine-tuning of a pretrained system on a task, from the same seed."""
        run = cls(
            kind="finetune",
            system=pretrained.system,
            seed=pretrained.seed,
            fingerprints={**pretrained.fingerprints, **_unlabelled(finetuning), task: fingerprint},
            numerics=current_numerics("finetune", pretrained.system),
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
            numerics=current_numerics("measure", pretrained.system),
            task=task,
            measuring=measuring,
        )
        return run._with_parents()

    def of_generation(self, numerics: dict[str, int]) -> "Run":
        """The same run and its parents by code of other numerics generations."""
        return self.but(numerics=numerics, parents=[], roles=[])._with_parents()

    def _with_parents(self) -> "Run":
        parents = self.by_role
        if not parents:
            return self
        behind = {name: text for parent in parents.values() for name, text in parent.fingerprints.items()}
        texts = self.fingerprints | {name: behind[name] for name in behind if name not in self.fingerprints}
        roles = () if parents.keys() == {"start"} else tuple(parents)
        ids = tuple(parent.id for parent in parents.values())
        return self.model_copy(update={"parents": ids, "roles": roles, "fingerprints": texts})

    def resolved(self) -> Self:
        """The run with settings only where they act, and without those that say a default.

        Raises:
            ConfigError: For such a setting of an unknown task.
        """
        run = super().resolved()
        settled = KINDS[run.kind].settled(run)
        return run.model_copy(update=settled) if settled else run

    @cached_property
    def by_role(self) -> "dict[Role, Run]":
        """The runs whose weights this run reads, derived from this run's settings."""
        if not KINDS[self.kind].settings:
            parents = self.system.parents().items()
            return {role: self._pretraining(parent.system, parent.seed) for role, parent in parents}
        descriptions = self.finetuning.parents if self.finetuning else _MEASURED
        return {role: self._described(description) for role, description in descriptions.items()}

    @property
    def start(self) -> "Run | None":
        """The run whose weights this run starts from; None for random weights."""
        return self.by_role.get("start")

    @property
    def lineage(self) -> "tuple[Run, ...]":
        """This run and those that it descends from by any role, each once, the nearest of a role first."""
        return (self, *self._behind)

    @cached_property
    def _behind(self) -> "tuple[Run, ...]":
        behind = (member for parent in self.by_role.values() for member in parent.lineage)
        return tuple({run.id: run for run in behind}.values())

    @property
    def texts(self) -> dict[str, str]:
        """The present fingerprints of corpora, probes and tasks of this run and its lineage."""
        return {name: text for member in self.lineage for name, text in member._own_texts().items()}

    def _own_texts(self) -> dict[str, str]:
        kind, pieces = KINDS[self.kind], self.system.data.tokenizer.kind
        own = _texts_of(self.system) | ({self.task: kind.fingerprint(self.task, pieces)} if self.task else {})
        return _unlabelled(self.finetuning) | own

    def _pretraining(self, system: System, seed: int | None = None) -> "Run":
        run = Run(
            kind=_made_by(system),
            system=system,
            seed=self.seed if seed is None else seed,
            fingerprints=self._known(system),
            numerics={part: self.numerics[part] for part in numerics_of(_made_by(system), system)},
        )
        return run._with_parents()

    def _described(self, description: Mapping[str, Any]) -> "Run":
        """The run that a description is of, all else being as here.

        Its knobs are those of the system, and under ``finetuning.`` those of the fine-tuning; its ``task`` is another
        one, or empty for the pretraining.
        """
        described, seed = parts(description), description.get(SEED, self.seed)
        task = self.task if described.task is None else described.task
        system = self.system.but(**described.system) if described.system else self.system
        if not task:
            return self._pretraining(system, seed)
        assert self.finetuning is not None
        tuned = self.finetuning.but(**described.finetuning)
        run = Run(
            kind="finetune",
            system=system,
            seed=seed,
            fingerprints=self._known(system) | self._read_by(task, tuned),
            numerics=self.numerics,
            task=task,
            finetuning=tuned,
        )
        return run._with_parents()

    def _read_by(self, task: str, settings: FineTuning) -> dict[str, str]:
        """The fingerprints of what a fine-tuning reads for its task, as this run has them if it does."""
        known = self.fingerprints
        unlabelled = {name: known.get(name) or text for name, text in _unlabelled(settings).items()}
        return unlabelled | {task: known.get(task) or fingerprint(task)}

    def _known(self, system: System) -> dict[str, str]:
        """The fingerprints of a system's text, as this run has them if it does."""
        names = (*system.corpora, *(PREFIX + name for name in system.probed))
        names += tuple(of_files(system))
        if self.fingerprints.keys() >= set(names):
            return {name: self.fingerprints[name] for name in names}
        return _texts_of(system) | {name: self.fingerprints[name] for name in names if name in self.fingerprints}

    def essence(self) -> dict[str, Any]:
        """As for all settings. A checkpoint is one run whatever the seeds of its fine-tunings."""
        essence = super().essence()
        if self.kind == "checkpoint":
            del essence["seed"]
        return essence

    @cached_property
    def id(self) -> str:
        """16 hexadecimal digits: the hash of everything that determines the numbers."""
        return identity(self.essence())[:16]


def _texts_of(system: System) -> dict[str, str]:
    """The present fingerprints of a pretraining: of corpora and probes, those of its parents included."""
    return fingerprints_of(system.corpora) | probes(system.probed) | of_files(system)


def of_files(system: System) -> dict[str, str]:
    """The fingerprints of the files of a released checkpoint, if the system is one, or of its plugins."""
    name = system.checkpoint
    return {checkpoints.PREFIX + name: checkpoints.fingerprint(name)} if name else system.plugins


def _made_by(system: System) -> KindName:
    """The kind of the run that makes the weights of a system."""
    return "checkpoint" if system.checkpoint else "pretrain"


def _unlabelled(settings: FineTuning | None) -> dict[str, str]:
    """The present fingerprint of the texts without labels that a fine-tuning reads."""
    taught = settings.taught if settings is not None else None
    return {taught.unlabelled: of_texts(taught.unlabelled)} if taught is not None and taught.unlabelled else {}


def current_numerics(kind: KindName, system: System) -> dict[str, int]:
    """Package -> numerics generation, for the packages that a run depends on."""
    return {part: NUMERICS[part] for part in numerics_of(kind, system)}
