"""``python -m lightning_modules.tasks.pin NAME ...`` measures tasks and rewrites their pins."""

import sys

from lightning_modules.places import checkout
from lightning_modules.tasks.pins import pin, pinned
from lightning_modules.tasks.table import TASKS, task_named

if __name__ == "__main__":
    if checkout() is None:
        sys.exit("pins are part of the project's source. Run this in a checkout.")
    names = sys.argv[1:]
    if not names:
        sys.exit(f"usage: python -m lightning_modules.tasks.pin NAME ...   (names: {', '.join(TASKS)})")
    for name in names:
        task_named(name)
    pin(names)
    for name in names:
        print(name, pinned()[name])
