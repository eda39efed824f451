"""The settings of a run's text."""

from typing import Self

from pydantic import field_validator

from lightning_modules.config import Settings, knob
from lightning_modules.data.corpora.registry import corpus
from lightning_modules.data.text.tokenizer import Tokenizer

MOST_STRETCHES = 1 << 14  # of held-out text that are kept for hiding whole words


class Data(Settings):
    """Corpora and the tokenizer trained on them, or on others. The order of corpora does not matter."""

    corpora: tuple[str, ...] = knob(
        ("wikipedia-mini",),
        "Corpora: a named one, 'text:<glob>', 'jsonl:<column>:<glob>', 'hub:<dataset>' or 'made:<switches>'. Parallel "
        "text names its languages, 'multi30k:en-de' or 'lines:en-de:<glob>', and en-de is another corpus than de-en. "
        "With one language, 'bible:de', it is that side alone.",
        min_length=1,
    )
    tokenizer: Tokenizer = knob(Tokenizer(), "The tokenizer of the text.")

    @field_validator("corpora")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return _sorted(names)

    @field_validator("tokenizer")
    @classmethod
    def _trained_on_known(cls, tokenizer: Tokenizer) -> Tokenizer:
        return tokenizer.model_copy(update={"corpora": _sorted(tokenizer.corpora)})

    @property
    def named(self) -> tuple[str, ...]:
        """The corpora of text and tokenizer, each once."""
        return tuple(dict.fromkeys((*self.corpora, *self.tokenizer.corpora)))

    @property
    def tokenized_by(self) -> Tokenizer:
        """The tokenizer, the corpora named that it is trained on."""
        return self.tokenizer.model_copy(update={"corpora": self.tokenizer.corpora or self.corpora})

    def resolved(self) -> Self:
        """The settings with no corpora of the tokenizer where these are those of the data."""
        data = super().resolved()
        if data.tokenizer.corpora != data.corpora:
            return data
        return data.model_copy(update={"tokenizer": data.tokenizer.model_copy(update={"corpora": ()})})


def _sorted(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("a corpus is named twice. Name each once.")
    for name in names:
        corpus(name)
    return tuple(sorted(names))
