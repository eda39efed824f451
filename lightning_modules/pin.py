"""``python -m lightning_modules.pin KIND NAME ...`` reads corpora, tasks, sets of probes or texts, and pins them."""

import sys

from lightning_modules.data.pins import PINS
from lightning_modules.places import checkout
from lightning_modules.probing import sets
from lightning_modules.tasks.pins import TASK_PINS
from lightning_modules.zero_shot import sources

KINDS = {pins.kind: pins for pins in (PINS, TASK_PINS, sets.PINS, sources.PINS)}


def main(kind: str = "", *names: str) -> None:
    """Reads data and writes their pins.

    Raises:
        ConfigError: For an unknown name, or where data are missing.
    """
    if checkout() is None:
        sys.exit("pins are part of the project's source. Run this in a checkout.")
    if kind not in KINDS or not names:
        sys.exit(f"usage: python -m lightning_modules.pin {'|'.join(KINDS)} NAME ...")
    for name, entry in KINDS[kind].pin(names).items():
        print(name, entry)


if __name__ == "__main__":
    main(*sys.argv[1:])
