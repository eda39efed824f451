"""Stretches of the held-out text of some corpora: whole words, the same for every tokenizer."""

from lightning_modules import cached
from lightning_modules.config import ConfigError, identity
from lightning_modules.data import Data, pins
from lightning_modules.data.whole_words import cut
from lightning_modules.draws import permutation
from lightning_modules.places import cache

RECIPE = 1  # raise when the same text would give other stretches
MOST = 400  # stretches
PIECES_EACH = 560.0  # the estimate of plans
_BYTES = 2048
_SEED = 0  # they are the same for every run
Stretch = tuple[str, int]  # the text and the number of its document


def chosen(data: Data) -> list[Stretch]:
    """The stretches of the held-out text, at most `MOST`, in a fixed order that mixes the documents.

    Raises:
        DataMismatch: When the text differs from its pin.
        ConfigError: When a corpus is missing, or has no stretch.
    """
    name = identity({"corpora": pins.fingerprints(data), "recipe": RECIPE, "bytes": _BYTES, "most": MOST})[:24]

    def some() -> list[list[str | int]]:
        found = list(cut(data, _BYTES))
        return [list(found[n]) for n in permutation(_SEED, "zero-shot stretches", 0, len(found))[:MOST]]

    path = cache() / "zero-shot" / name / "stretches.json"
    found = cached.kept_json(path, some)
    if len(found) < 2:
        raise ConfigError([f"the held-out text of {' and '.join(data.corpora)} has no two stretches of {_BYTES} bytes"])
    return [(text, number) for text, number in found]
