"""The settings of a run's text."""

from pydantic import field_validator

from lightning_modules.config import Settings, knob
from lightning_modules.data.corpora.registry import corpus
from lightning_modules.data.text.tokenizer import Tokenizer

MOST_STRETCHES = 1 << 14  # of held-out text that are kept for hiding whole words


class Data(Settings):
    """Corpora and the tokenizer trained on them. The order of corpora does not matter."""

    corpora: tuple[str, ...] = knob(
        ("wikipedia-mini",), "Corpora: a named one, 'text:<glob>', 'hub:<dataset>' or 'made:<switches>'.", min_length=1
    )
    tokenizer: Tokenizer = knob(Tokenizer(), "The tokenizer of the text.")

    @field_validator("corpora")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(names)) < len(names):
            raise ValueError("a corpus is named twice; name each once")
        for name in names:
            corpus(name)
        return tuple(sorted(names))
