"""Checks data sets: malformed lines, sizes, pins, examples that are in both training and dev."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from ablations.commands.data_sets.inventory import NOWHERE, PARTS, Item
from lightning_modules.config import ConfigError
from lightning_modules.data import pins as text_pins
from lightning_modules.files import Refused
from lightning_modules.tasks import Task, task_named
from lightning_modules.tasks import pins as task_pins
from lightning_modules.tasks.shapes.shape import Examples
from lightning_modules.tasks.task import SPLITS
from lightning_modules.zero_shot.sources import SOURCES, Pin, Source

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
        item: The data set.
        is_named: Whether the user named it, so that its absence is a fault.
    """
    if not item.at_hand:
        what = "not available" if item.found == NOWHERE else f"partial, {item.found}"
        text = f"{what}. To get it: {item.how}"
        return Finding(item.name, text, present=False, wrong=("cannot be read",) if is_named else ())
    try:
        if item.kind == "text":
            return _examine_text(SOURCES[item.name])
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


def _examine_text(source: Source) -> Finding:
    pin = Pin.of(source.texts())  # which compares them with the pin
    return Finding(source.name, f"{pin.texts:,} texts, {pin.words:,} words")


def _examine_task(task: Task) -> Finding:
    with _logged() as notes:
        examples = {split: task.examples(split) for split in SPLITS}
    parts = {split: task_pins.Part.of(part) for split, part in examples.items()}
    pins = task_pins.TASK_PINS.pinned().get(task.name, {})
    wrong = _differences(parts, pins, "examples")
    for split, size in zip(SPLITS, task.official or (None, None), strict=True):
        if size is not None and len(examples[split]) != size:
            kind = "partial" if len(examples[split]) < size else "larger than published"
            wrong.append(f"{split} is {kind}: it has {len(examples[split]):,} examples instead of {size:,}")
        wrong += _too_little(examples[split], split)
    common = _common(*(examples[split].items_for_pin() for split in SPLITS))
    if common == len(examples["dev"]):
        wrong.append("every dev example is also a training example")
    elif common:
        notes.append(f"{common:,} of {len(examples['dev']):,} dev examples are also training examples")
    if not pins:
        notes.append(f"has no pin to compare with. Its fingerprint is {task_pins.fingerprint(task.name)[:12]}")
    seen = set(examples["train"].gold()) if task.shape.labels else set()
    for number, label in enumerate(task.shape.labels):
        if number not in seen:
            notes.append(f"no training example has the label '{label}'")
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


def _common(train: list[Any], dev: list[Any]) -> int:
    """How many dev examples, including their answers, are also training examples."""
    known = {json.dumps(example) for example in train}
    return sum(json.dumps(example) in known for example in dev)


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
