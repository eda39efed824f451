"""A run: one training from a seed on pinned text.

Its ``id`` is a hash of everything that determines its numbers, the runs that it starts from included.
"""

from functools import cached_property
from typing import Literal

from lightning_modules import NUMERICS
from lightning_modules.config import Settings, identity, knob, required
from lightning_modules.system import System
from lightning_modules.tasks import FineTuning, fingerprint

ROOMS = {  # kind of run -> rooms whose numerics it depends on
    "pretrain": ("data", "pretrain", "evaluate"),
    "finetune": ("data", "pretrain", "evaluate", "finetune"),
}


class Run(Settings):
    """One unit of work: a system trained from a seed on pinned text, or fine-tuned, by code of a known generation."""

    kind: Literal["pretrain", "finetune"] = required("What is done.")
    system: System = required("What is trained, or was before fine-tuning.")
    seed: int = required("Initialisation, order, corruption and dropout follow from it.", ge=0)
    fingerprints: dict[str, str] = required("Corpus or task -> fingerprint of its text.")
    numerics: dict[str, int] = required("Room -> generation of the numbers it produces.")
    task: str = knob("", "What it is fine-tuned on.", neutral="")
    finetuning: FineTuning | None = knob(None, "How it is fine-tuned.", neutral=None)
    parents: tuple[str, ...] = knob((), "Ids of the runs whose weights this one starts from.", neutral=())

    @classmethod
    def pretraining(cls, system: System, seed: int, fingerprints: dict[str, str]) -> "Run":
        """The pretraining that the code at hand would make."""
        run = cls(
            kind="pretrain", system=system, seed=seed, fingerprints=fingerprints, numerics=current_numerics("pretrain")
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

    def of_generation(self, numerics: dict[str, int]) -> "Run":
        """The same run, and those it starts from, as code of other generations of the rooms would make them."""
        return self.but(numerics=numerics, parents=[])._with_parents()

    def _with_parents(self) -> "Run":
        parent = self.parent
        return self.model_copy(update={"parents": (parent.id,)}) if parent else self

    @cached_property
    def parent(self) -> "Run | None":
        """The run whose weights this one starts from: it follows from this one's own settings."""
        if self.finetuning is not None and self.finetuning.from_scratch:
            return None
        if self.finetuning is not None and (first := self.finetuning.first):
            before = {"task": first, "finetuning": self.finetuning.but(first=None), "parents": ()}
            fingerprints = {name: self.fingerprints[name] for name in (*self.system.data.corpora, first)}
            return self.model_copy(update={**before, "fingerprints": fingerprints})._with_parents()
        system = self.system if self.kind == "finetune" else self.system.shallower()
        if system is None:
            return None
        rooms, corpora = ROOMS["pretrain"], self.system.data.corpora
        return Run(
            kind="pretrain",
            system=system,
            seed=self.seed,
            fingerprints={name: self.fingerprints[name] for name in corpora},
            numerics={room: self.numerics[room] for room in rooms},
        )._with_parents()

    @cached_property
    def id(self) -> str:
        """16 hexadecimal digits of the identity of all that determines the numbers."""
        return identity(self.essence())[:16]


def _first(finetuning: FineTuning) -> dict[str, str]:
    """The fingerprint of the task that comes before, where there is one."""
    return {finetuning.first: fingerprint(finetuning.first)} if finetuning.first else {}


def current_numerics(kind: str) -> dict[str, int]:
    """The generations of the rooms that a kind of run depends on."""
    return {room: NUMERICS[room] for room in ROOMS[kind]}
