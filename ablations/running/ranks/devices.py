"""Which devices may share runs, and what is refused before anything trains."""

from collections.abc import Iterable, Iterator, Sequence

from ablations.core.machine import cores, gpus
from ablations.schema.run import Run
from lightning_modules.config import Problem
from lightning_modules.training.execution import Execution


def problems(runs: Iterable[Run], execution: Execution) -> Iterator[Problem]:
    """Why devices cannot share these pretrainings."""
    for system in {id(run.system): run.system for run in runs if run.kind == "pretrain"}.values():
        yield from execution.problems(system.model, system.training)


def too_many(execution: Execution) -> Iterator[Problem]:
    """The problem if this machine has fewer devices."""
    count, noun = _present()
    if execution.devices > count:
        yield Problem("devices", f"{execution.devices} are needed, and this machine has {count} {noun}")


def one_node(execution: Execution) -> Iterator[Problem]:
    """The problem if an executor is to make runs on several machines that makes each on one."""
    if execution.nodes > 1:
        text = f"{execution.nodes} machines share a run under --executor slurm alone. Here use --devices."
        yield Problem("num-nodes", text)


def shared(slots: Sequence[dict[str, str]], devices: int) -> list[dict[str, str]]:
    """Slots of so many devices each: the GPUs of several, or several processes."""
    groups = [slots[first : first + devices] for first in range(0, len(slots) - devices + 1, devices)]
    return [{name: ",".join(slot[name] for slot in group) for name in group[0]} for group in groups]


def _present() -> tuple[int, str]:
    names = gpus()
    return (len(names), f"GPU{'s' * (len(names) != 1)}") if names else (cores(), "processor cores and no GPU")
