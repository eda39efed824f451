"""Every corpus, task and text of evaluations, with its place, sizes and fingerprint, and what is wrong with it."""

import inspect
import json
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

from lightning_modules.config import ConfigError, did_you_mean
from lightning_modules.data import CORPORA
from lightning_modules.data import pins as text_pins
from lightning_modules.data.corpora.registry import Corpus
from lightning_modules.data.corpora.sources import Origin
from lightning_modules.files import Refused
from lightning_modules.tasks import TASKS, Task, task_named
from lightning_modules.tasks import pins as task_pins
from lightning_modules.tasks.shapes.shape import Examples
from lightning_modules.tasks.task import SPLITS
from lightning_modules.zero_shot.sources import SOURCES, Source, of
from lightning_modules.zero_shot.table import ZERO_SHOT

FOLDER, HUB, PACKAGE, MADE, NOWHERE = "folder", "hub", "package", "made here", "nowhere"
PARTS = {"corpus": ("train", "heldout"), "task": ("train", "dev"), "text": ("test",)}
_SHOWN = 8  # digits of a fingerprint
_MOST_OF_ONE = 0.8  # share of one label from which on a set is unbalanced


@dataclass(frozen=True)
class Item:
    """A corpus, a task, or a text that models are evaluated on. What is pinned is known without reading it.

    Attributes:
        name: What grids call it.
        kind: ``corpus``, ``task``, or ``text``.
        group: The heading it is listed under.
        title: A description, in a line.
        found: ``folder``, ``hub``, ``package``, ``made here``, ``nowhere``; ``<part> only`` where the rest is missing.
        sizes: Examples or documents of each of its parts, as pinned or measured, else as published; None if unknown.
        fingerprint: The first digits of the fingerprint; empty if it is neither pinned nor available.
        pinned: Whether the fingerprint is committed; otherwise it was measured from the available files.
        own_split: How the splits differ from the official ones; empty for official ones.
        licence: Its terms.
        how: How to get it; empty if it is available.
        problem: Why it could not be measured; empty if it could.
    """

    name: str
    kind: str
    group: str
    title: str
    found: str
    sizes: tuple[int, ...] | None
    fingerprint: str
    pinned: bool
    own_split: str
    licence: str
    how: str
    problem: str = ""

    @property
    def at_hand(self) -> bool:
        """Whether all of it can be read."""
        return self.found in (FOLDER, HUB, PACKAGE, MADE)

    def row(self) -> dict[str, Any]:
        """Its line in a listing, short enough for a narrow terminal."""
        state = f" {'pinned' if self.pinned else 'measured'}" if self.fingerprint else ""
        return {
            "name": self.name,
            "found": self.found,
            **{part: "" if size is None else f"{size:,}" for part, size in self._parts().items()},
            "fingerprint": self.fingerprint + state,
            "split": "own" if self.own_split else "official" if self.kind == "task" else "",
        }

    def to_dict(self) -> dict[str, Any]:
        """All its fields, ready for JSON."""
        parts = ((self._parts() if name == "sizes" else {name: value}) for name, value in asdict(self).items())
        return {name: value for part in parts for name, value in part.items()}

    def _parts(self) -> dict[str, int | None]:
        names = PARTS[self.kind]
        return dict(zip(names, self.sizes or (None,) * len(names), strict=True))


def items(names: Sequence[str] = (), hub: bool = False) -> list[Item]:
    """Every named corpus, then every named task, by shape, then every named text.

    Data sets with a pin are not opened; available ones without a pin are read once.

    Args:
        names: Corpora, tasks and texts; by default all.
        hub: Whether to look on the hub for what no folder holds.

    Raises:
        ConfigError: For each unknown name, with the nearest one.
    """
    known = [*CORPORA, *TASKS, *SOURCES]
    if wrong := [name for name in names if name not in known]:
        raise ConfigError(f"there is no corpus, task or text '{name}'.{did_you_mean(name, known)}" for name in wrong)
    corpora = [_corpus(corpus) for name, corpus in CORPORA.items() if name in (names or known)]
    tasks = [_task(task, hub) for name, task in TASKS.items() if name in (names or known)]
    groups = list(dict.fromkeys(item.group for item in tasks))
    texts = [_text(source) for name, source in SOURCES.items() if name in (names or known)]
    return corpora + sorted(tasks, key=lambda item: groups.index(item.group)) + texts


def _corpus(corpus: Corpus) -> Item:
    parts = text_pins.pinned().get(corpus.name)
    if corpus.origin is None:
        found = PACKAGE if find_spec(corpus.package) else NOWHERE
        how = f"pip install {corpus.package}"
    else:
        found, how = _place(corpus.origin, PARTS["corpus"], hub=False), _how(corpus.origin)
    return Item(
        name=corpus.name,
        kind="corpus",
        group="Corpora (documents)",
        title=corpus.description,
        found=found,
        sizes=tuple(parts[part].documents for part in PARTS["corpus"]) if parts else None,
        fingerprint=text_pins.digest(parts)[:_SHOWN] if parts else "",
        pinned=bool(parts),
        own_split="",
        licence=corpus.licence,
        how="" if found in (FOLDER, PACKAGE) else how,
    )


def _task(task: Task, hub: bool) -> Item:
    found = _place(task.origin, PARTS["task"], hub) if task.origin else MADE
    pinned, problem, parts = task.name in task_pins.TASK_PINS.pinned(), "", None
    try:
        parts = task_pins.expected(task.name) if pinned or found in (FOLDER, MADE) else None
    except ConfigError as error:
        problem = str(error.problems[0])
    return Item(
        name=task.name,
        kind="task",
        group=f"{type(task.shape).__name__}: {(inspect.getdoc(type(task.shape)) or '').splitlines()[0]}",
        title=task.title,
        found=found,
        sizes=tuple(parts[part].examples for part in PARTS["task"]) if parts else task.official,
        fingerprint=task_pins.fingerprint(task.name)[:_SHOWN] if parts else "",
        pinned=pinned,
        own_split=task.own_split,
        licence=task.licence,
        how=_how(task.origin) if task.origin and found not in (FOLDER, HUB) else "",
        problem=problem,
    )


def _text(source: Source) -> Item:
    asked, pin, found = ZERO_SHOT[source.name], source.pin(), _place(source.origin, PARTS["text"], hub=False)
    return Item(
        name=source.name,
        kind="text",
        group="Texts on which models are evaluated without training",
        title=asked.title,
        found=found,
        sizes=(pin.texts,),
        fingerprint=pin.sha256[:_SHOWN],
        pinned=True,
        own_split="",
        licence=asked.licence,
        how="" if found == FOLDER else _how(source.origin),
    )


def _place(origin: Origin, parts: Iterable[str], hub: bool) -> str:
    present = [part for part in parts if origin.find(part)]
    if len(present) == len(list(parts)):
        return FOLDER
    if hub and origin.hub:
        try:
            origin.sizes_on_hub()
            return HUB
        except ConfigError:
            pass
    return f"{present[0]} only" if present else NOWHERE


def _how(origin: Origin) -> str:
    files = ", ".join(origin.every_file)
    is_set = bool(os.environ.get("ABLATIONS_DATA"))
    place = "ABLATIONS_DATA" if is_set else "the folder that ABLATIONS_DATA names (it is unset)"
    return f"put {files} below {place}" + (f", or use {origin.hub} of the Hugging Face hub" if origin.hub else "")


FEWEST = 10  # examples of a split: one of fewer moves an accuracy by more than ten points


@dataclass(frozen=True)
class Finding:
    """The result of checking one data set.

    Attributes:
        name: The data set.
        text: Its content, in a line.
        present: Whether all of it is available.
        wrong: Faults, a sentence each.
        notes: Remarks, a sentence each.
    """

    name: str
    text: str
    present: bool = True
    wrong: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """``wrong``, ``absent`` or ``ok``."""
        return "wrong" if self.wrong else "ok" if self.present else "absent"

    def to_dict(self) -> dict[str, Any]:
        """All its fields and its state, ready for JSON."""
        return {"state": self.state, **asdict(self)}


def examine(item: Item, is_named: bool) -> Finding:
    """Compares a data set with published sizes and pins.

    Args:
        is_named: Whether the user named it, so that its absence is a fault.
    """
    if not item.at_hand:
        what = "not available" if item.found == NOWHERE else f"partial, {item.found}"
        text = f"{what}. To get it: {item.how}"
        return Finding(item.name, text, present=False, wrong=("cannot be read",) if is_named else ())
    try:
        if item.kind == "text":
            pin = of(SOURCES[item.name].texts())  # which compares them with the pin
            return Finding(SOURCES[item.name].name, f"{pin.texts:,} texts, {pin.words:,} words")
        return _examine_corpus(item) if item.kind == "corpus" else _examine_task(task_named(item.name))
    except ConfigError as error:
        return Finding(item.name, "cannot be read", wrong=tuple(map(str, error.problems)))
    except Refused as error:
        return Finding(item.name, "cannot be read", wrong=(str(error),))


def _examine_corpus(item: Item) -> Finding:
    parts = text_pins.measured(item.name)
    wrong = _differences(parts, text_pins.pinned().get(item.name, {}), "words")
    train, heldout = (parts[name] for name in PARTS["corpus"])
    text = f"{train.documents:,} + {heldout.documents:,} documents, {train.words + heldout.words:,} words"
    return Finding(item.name, text, wrong=tuple(wrong))


def _examine_task(task: Task) -> Finding:
    with _logged() as notes:
        examples = {split: task.examples(split) for split in SPLITS}
    parts = {split: task_pins.part_of(part) for split, part in examples.items()}
    pins = task_pins.TASK_PINS.pinned().get(task.name, {})
    wrong = _differences(parts, pins, "examples")
    for split, size in zip(SPLITS, task.official or (None, None), strict=True):
        if size is not None and len(examples[split]) != size:
            kind = "partial" if len(examples[split]) < size else "larger than published"
            wrong.append(f"{split} is {kind}: it has {len(examples[split]):,} examples instead of {size:,}")
        wrong += _too_little(examples[split], split)
    known, dev = ([json.dumps(item) for item in examples[split].items_for_pin()] for split in SPLITS)
    common = sum(map(set(known).__contains__, dev))
    if common == len(examples["dev"]):
        wrong.append("every dev example is also a training example")
    elif common:
        notes.append(f"{common:,} of {len(examples['dev']):,} dev examples are also training examples")
    if not pins:
        notes.append(f"has no pin to compare with. Its fingerprint is {task_pins.fingerprint(task.name)[:12]}")
    gold = {split: Counter[Any](examples[split].gold() if task.shape.labels else ()) for split in SPLITS}
    for number, label in enumerate(task.shape.labels):
        if number not in gold["train"]:
            notes.append(f"no training example has the label '{label}'")
        if gold["dev"][number] > _MOST_OF_ONE * gold["dev"].total():
            notes.append(f"most dev examples have the label '{label}': compare with the majority class")
    if task.own_split:
        notes.append(f"own split: {task.own_split}")
    text = f"{len(examples['train']):,} + {len(examples['dev']):,} examples"
    return Finding(task.name, text, wrong=tuple(wrong), notes=tuple(notes))


def _too_little(examples: Examples, split: str) -> list[str]:
    """What keeps a split from teaching or measuring anything, whatever it was pinned to be."""
    faults = []
    if len(examples) < FEWEST:
        faults.append(f"{split} has too few examples to train or measure on: {len(examples)}, at least {FEWEST} needed")
    if len(set(examples.gold())) == 1:
        faults.append(f"{split} has one label alone: all its {len(examples):,} examples have the same answer")
    return faults


def _differences(parts: dict[str, Any], pins: dict[str, Any], unit: str) -> list[str]:
    return [
        f"{name} differs from its pin: sha256 {parts[name].sha256[:12]} and {getattr(parts[name], unit):,} {unit} "
        f"instead of {pin.sha256[:12]} and {getattr(pin, unit):,}"
        for name, pin in pins.items()
        if parts[name] != pin
    ]


@contextmanager
def _logged() -> Iterator[list[str]]:
    """Collects what readers log, such as skipped lines, instead of printing it."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger = logging.getLogger("lightning_modules.tasks")
    before, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.propagate = before
