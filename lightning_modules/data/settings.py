"""Which text a run learns from."""

from pydantic import field_validator

from lightning_modules.config import Settings, knob
from lightning_modules.data.corpora.registry import corpus
from lightning_modules.data.text.tokenizer import Tokenizer


class Data(Settings):
    """Corpora and the tokenizer trained on them. The order in which corpora are named does not matter."""

    corpora: tuple[str, ...] = knob(
        ("wikipedia-mini",), "Names of corpora: a known one, 'text:<glob>' or 'hub:<dataset>'.", min_length=1
    )
    tokenizer: Tokenizer = knob(Tokenizer(), "How their text becomes pieces.")

    @field_validator("corpora")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(names)) < len(names):
            raise ValueError("a corpus is named twice")
        for name in names:
            corpus(name)
        return tuple(sorted(names))
