"""``python -m lightning_modules.data.pin NAME ...`` measures corpora and rewrites their pins."""

import sys

from lightning_modules.data.corpora.registry import CORPORA, corpus
from lightning_modules.data.pins import pin, pinned
from lightning_modules.places import checkout

if __name__ == "__main__":
    if checkout() is None:
        sys.exit("pins are part of the project's source. Run this in a checkout.")
    names = sys.argv[1:]
    if not names:
        sys.exit(f"usage: python -m lightning_modules.data.pin NAME ...   (names: {', '.join(CORPORA)})")
    for name in names:
        corpus(name)
    pin(names)
    for name in names:
        print(name, pinned()[name])
