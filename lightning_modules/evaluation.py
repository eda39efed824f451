"""What is measured of every pretraining on held-out text."""

from typing import Literal, Self

from pydantic import field_validator

from lightning_modules.config import Settings, knob
from lightning_modules.data.formats.pairs import Pairing
from lightning_modules.data.settings import MOST_STRETCHES
from lightning_modules.objectives import MaskedLM, Masking

MOST_SEQUENCES = 1 << 16  # whose losses at the end are kept one by one

ProbeName = Literal[  # the keys of ``probing.table.PROBES``, in alphabetical order
    "agreement", "coordination", "distance", "far_order", "imdb", "mnli", "mrpc", "multi30k_cs", "multi30k_de",
    "multi30k_fr", "odd_word", "own_pairs", "pronoun_case", "qnli", "snli", "sst2", "stsb", "tatoeba_ar",
    "tatoeba_de", "tatoeba_es", "tatoeba_fr", "tatoeba_ru", "tatoeba_vi", "tatoeba_zh", "word_class", "word_order",
]  # fmt: skip


class Evaluation(Settings):
    """The held-out evaluation, the same for every variant of a grid whatever its training objective."""

    sequences: int = knob(1024, "Held-out sequences.", ge=1)
    final_sequences: int | None = knob(
        None,
        "Held-out sequences of the measurement at the end, whose noise is part of every comparison. By default the "
        "number before.",
        neutral=None,
        ge=1,
    )
    rate: float = knob(0.15, "Share of their tokens that are predicted, all replaced by [MASK].", gt=0, le=1)
    pairs: int = knob(
        0,
        "Held-out segment pairs of each kind, random and swapped, for sentence accuracies. No pairs with 0.",
        neutral=0,
        ge=0,
    )
    pairing: Pairing = knob(
        "released",
        "Construction of the held-out pairs, whatever the input format is. See format.pairing.",
        neutral="released",
    )
    blocks: bool = knob(
        False,
        "Held-out text is cut at a fixed length for every input format. By default a training on full sentences is "
        "measured on full sentences.",
        neutral=False,
    )
    words: int = knob(
        0,
        "Held-out stretches of text in which the same words are hidden under every tokenizer, for losses per byte. No "
        "such losses with 0.",
        neutral=0,
        ge=0,
        le=MOST_STRETCHES,
    )
    neighbours: int = knob(
        0,
        "Held-out sequences in each of which two neighbouring tokens of different words are hidden. They measure the "
        "loss of both together, alone, and one after the other. No such losses with 0.",
        neutral=0,
        ge=0,
    )
    translated_pairs: int = knob(
        0,
        "Held-out pairs of parallel text of which one sentence has hidden words. They are predicted next to its "
        "translation, and next to that of another pair. No such measure with 0.",
        neutral=0,
        ge=0,
    )
    translations: int = knob(
        0,
        "Held-out sources, at most, whose translations are scored at the end by BLEU and chrF. None with 0.",
        neutral=0,
        ge=0,
    )
    translate_at: Literal["end", "points"] = knob(
        "end",
        "Translations: they are scored at the end of a training, or at each of its points as well. The seconds of a "
        "point are seconds of the training, as those of its losses.",
        neutral="end",
    )
    beam: int = knob(
        4, "Translations: prefixes that the search keeps. Greedy search has 1.", neutral=4, ge=1, le=1 << 8
    )
    length_penalty: float = knob(
        0.6,
        "Translations: exponent of the length penalty (Wu et al. 2016, equation 14). 0 is none.",
        neutral=0.6,
        ge=0,
        lt=float("inf"),
    )
    rows: int = knob(
        8,
        "Streams: rows in which held-out text is laid out, each read from its own beginning. Their positions are "
        "those of the held-out sequences elsewhere, in number.",
        neutral=8,
        ge=1,
        le=1 << 20,
    )
    sequence_length: int | None = knob(
        None,
        "Streams: positions of a held-out segment, all of which predict. By default format.sequence_length.",
        neutral=None,
        ge=1,
        le=1 << 20,
    )
    context: int = knob(
        0,
        "Streams: positions before a held-out segment that are read again with it, for a model that carries nothing "
        "from segment to segment. One that does carries nothing then.",
        neutral=0,
        ge=0,
        le=1 << 20,
    )
    memory_length: int | None = knob(
        None,
        "Streams: positions that the model remembers before a held-out segment. By default model.memory_length.",
        neutral=None,
        ge=0,
        le=1 << 20,
    )
    direction: Literal["both", "left_to_right", "right_to_left"] = knob(
        "both",
        "Visible side of the held-out text. One side only is a control for a model that was trained with both.",
        neutral="both",
    )
    languages: Literal["named", "left_out"] = knob(
        "named",
        "Models with embeddings of languages: whether held-out text and sentences of probes are read with that of "
        "their language. A control, left_out, reads them without.",
        neutral="named",
    )
    probes: tuple[ProbeName, ...] = knob(
        (), "Probes that read the frozen states once, at the end. Their order does not matter.", neutral=()
    )
    points: int = knob(12, "Number of evaluations during a training, evenly spaced, the last at its end.", ge=1, le=64)

    @field_validator("probes")
    @classmethod
    def _each_once(cls, names: tuple[ProbeName, ...]) -> tuple[ProbeName, ...]:
        if len(set(names)) < len(names):
            raise ValueError("a probe is named twice. Name each once.")
        return tuple(sorted(names))

    def resolved(self) -> Self:
        """The settings without those of what is not measured, and with no second number that is equal."""
        pairing = self.pairing if self.pairs else "released"
        final = None if self.final_sequences == self.sequences else self.final_sequences
        searched = {} if self.translations else {"translate_at": "end", "beam": 4, "length_penalty": 0.6}
        return self.model_copy(update={"pairing": pairing, "final_sequences": final, **searched})

    @property
    def sequences_at_end(self) -> int:
        """Held-out sequences of the last measurement."""
        return self.final_sequences or self.sequences

    @property
    def objective(self) -> MaskedLM:
        """The corruption of the held-out text: [MASK] only. Two mixtures never show it: those are at a disadvantage."""
        return MaskedLM(masking=Masking(rate=self.rate, mask=1.0, same=0.0, random=0.0))
