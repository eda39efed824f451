"""Reads data sets and says what is wrong with them: faults, counts, pins, examples that training shares with dev."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ablations.commands.data_inventory import NOWHERE, PARTS, Item
from lightning_modules.config import ConfigError
from lightning_modules.data import pins as text_pins
from lightning_modules.tasks import Task, task_named
from lightning_modules.tasks import pins as task_pins


@dataclass(frozen=True)
class Finding:
    """What came of reading one data set.

    Attributes:
        name: The data set.
        text: What was found, in a line.
        present: Whether all of it is at hand.
        wrong: What is wrong, a sentence each.
        notes: What else to know, a sentence each.
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


def examined(item: Item, asked: bool) -> Finding:
    """Reads a data set and compares it with published sizes and pins.

    Args:
        item: The data set.
        asked: Whether it was named, so that its absence is wrong.
    """
    if not item.at_hand:
        what = "not at hand" if item.found == NOWHERE else f"partial, {item.found}"
        text = f"{what}; to get it: {item.how}"
        return Finding(item.name, text, present=False, wrong=("was asked for and cannot be read",) if asked else ())
    try:
        return _examined_corpus(item) if item.kind == "corpus" else _examined_task(task_named(item.name))
    except ConfigError as error:
        return Finding(item.name, "cannot be read", wrong=tuple(map(str, error.problems)))


def _examined_corpus(item: Item) -> Finding:
    found = text_pins.measured(item.name)
    wrong = _unlike_pins(found, text_pins.pinned().get(item.name, {}), "words")
    train, heldout = (found[part] for part in PARTS["corpus"])
    text = f"{train.documents:,} + {heldout.documents:,} documents, {train.words + heldout.words:,} words"
    return Finding(item.name, text, wrong=tuple(wrong))


def _examined_task(task: Task) -> Finding:
    with _said() as notes:
        examples = {split: task.examples(split) for split in PARTS["task"]}
    found = {split: task_pins.Part.of(part) for split, part in examples.items()}
    pins = task_pins.pinned().get(task.name, {})
    wrong = _unlike_pins(found, pins, "examples")
    for split, size in zip(PARTS["task"], task.official or (None, None), strict=True):
        if size is not None and len(examples[split]) != size:
            kind = "partial" if len(examples[split]) < size else "larger than published"
            wrong.append(f"{split} is {kind}: {len(examples[split]):,} examples instead of {size:,}")
    common = _common(*(examples[split].items_for_pin() for split in PARTS["task"]))
    if common == len(examples["dev"]):
        wrong.append("every dev example is a training example too")
    elif common:
        notes.append(f"{common:,} of {len(examples['dev']):,} dev examples are training examples too")
    if not pins:
        notes.append(f"no pin to compare with; measured {task_pins.fingerprint(task.name)[:12]}")
    if task.own_split:
        notes.append(f"own split: {task.own_split}")
    text = f"{len(examples['train']):,} + {len(examples['dev']):,} examples"
    return Finding(task.name, text, wrong=tuple(wrong), notes=tuple(notes))


def _unlike_pins(found: dict[str, Any], pins: dict[str, Any], unit: str) -> list[str]:
    return [
        f"{part} is not what was pinned: sha256 {found[part].sha256[:12]} and {getattr(found[part], unit):,} {unit} "
        f"instead of {pin.sha256[:12]} and {getattr(pin, unit):,}"
        for part, pin in pins.items()
        if found[part] != pin
    ]


def _common(train: list[Any], dev: list[Any]) -> int:
    """How many dev examples, answers included, are training examples too."""
    known = {json.dumps(example) for example in train}
    return sum(json.dumps(example) in known for example in dev)


@contextmanager
def _said() -> Iterator[list[str]]:
    """The messages that readers log, such as lines that are left out, instead of printing them."""
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())
    logger = logging.getLogger("lightning_modules.tasks")
    before, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)
        logger.propagate = before
