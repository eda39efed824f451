"""``python -m lightning_modules.pin KIND NAME ...`` reads corpora, tasks, sets of probes or texts, and pins them."""

import sys

from lightning_modules import pins
from lightning_modules.data import pins as corpora
from lightning_modules.places import checkout
from lightning_modules.probing import sets as probes
from lightning_modules.tasks import pins as tasks
from lightning_modules.zero_shot import sources as texts

KINDS = {
    "corpus": (corpora.PINS, corpora.entry),
    "task": (tasks.TASK_PINS.path, tasks.TASK_PINS.entry),
    "probe": (probes.PINS.path, probes.PINS.entry),
    "text": (texts.PINS, texts.entry),
}


def main(kind: str = "", *names: str) -> None:
    """Reads data and writes their pins.

    Raises:
        ConfigError: For an unknown name, or where data are missing.
    """
    if checkout() is None:
        sys.exit("pins are part of the project's source. Run this in a checkout.")
    if kind not in KINDS or not names:
        sys.exit(f"usage: python -m lightning_modules.pin {'|'.join(KINDS)} NAME ...")
    path, measured = KINDS[kind]
    found = {name: measured(name) for name in names}
    pins.write(path, pins.read(path) | found)
    for name, entry in found.items():
        print(name, entry)


if __name__ == "__main__":
    main(*sys.argv[1:])
