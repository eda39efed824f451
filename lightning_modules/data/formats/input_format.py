"""Input formats: how documents become sequences (the verb *arrange*). Static; corruption comes later."""

import functools
import os
from collections.abc import Callable
from typing import Literal, Self

import numpy as np

from lightning_modules.config import Settings, identity, knob, once
from lightning_modules.data.formats import pairs, running_text
from lightning_modules.data.formats.pairs import PairSequences
from lightning_modules.data.formats.running_text import Sequences
from lightning_modules.data.store import TokenStore


class InputFormat(Settings):
    """One segment of running text, or two segments that may or may not belong together.

    ``full_sentences`` is ``[CLS] text [SEP]`` with an extra ``[SEP]`` where a new document begins inside:
    RoBERTa's FULL-SENTENCES (Liu et al. 2019, section 4.2): whole sentences, packed until the next does not fit,
    across documents. A sentence longer than a sequence is cut into pieces; nothing is dropped. With
    ``break_mode="none"`` text is cut at fixed lengths instead, wherever that falls (fairseq's name for it; used by
    Wettig et al. 2023): no padding, where short sequences of whole sentences are a fifth padding.

    ``segment_pairs`` is BERT's and ALBERT's ``[CLS] A [SEP] B [SEP]``; see `pairs`.
    """

    kind: Literal["full_sentences", "segment_pairs"] = knob(
        "full_sentences", "One segment of running text, or BERT's two segments.", neutral="full_sentences"
    )
    sequence_length: int = knob(512, "Positions of a sequence, special tokens included.", ge=8, le=1 << 20)
    break_mode: Literal["sentences", "none"] = knob(
        "sentences", "Whether sequences end at sentence boundaries or at fixed lengths.", neutral="sentences"
    )
    negatives: Literal["random", "swapped"] = knob(
        "random",
        "Segment pairs: what stands in half of the pairs instead of the text that follows: a segment of another "
        "document (BERT), or the two segments in the wrong order (ALBERT).",
        neutral="random",
    )
    short_fraction: float = knob(
        0.1, "Segment pairs: share of pairs that are filled to a random shorter length only.", neutral=0.0, ge=0, le=1
    )
    duplicates: int = knob(
        1, "Segment pairs: how often each text is arranged, with fresh draws (BERT's dupe_factor).", neutral=1, ge=1
    )
    short_documents: bool = knob(
        False,
        "Segment pairs: draw the shorter length once a document, as BERT's released code does, instead of once a pair.",
        neutral=False,
    )
    lone_negatives: bool = knob(
        False,
        "Segment pairs, swapped: a chunk of one sentence gets a random second segment and counts as out of order, "
        "as in ALBERT's released code; else it is left out.",
        neutral=False,
    )

    @once
    def resolved(self) -> Self:
        """What the other kind has, or what has nothing to act on, is at its neutral value."""
        if self.kind == "full_sentences":
            pairs = {"negatives": "random", "short_fraction": 0.0, "duplicates": 1, "short_documents": False}
            return self.model_copy(update=pairs | {"lone_negatives": False})
        lone = self.lone_negatives and self.negatives == "swapped"
        once = self.short_documents and self.short_fraction > 0
        return self.model_copy(update={"break_mode": "sentences", "lone_negatives": lone, "short_documents": once})

    def heldout(self) -> Self:
        """The format of the held-out text: running text for every kind, so that one measure serves all."""
        if self.kind == "full_sentences":
            return self
        return self.model_copy(update={"kind": "full_sentences", "break_mode": "none"})

    def arrange(self, store: TokenStore) -> Sequences | PairSequences:
        """The sequences of a store, in the order of the text. The index is cached beside the store."""
        if self.kind == "segment_pairs":
            index = self._cached(store, "pairs", pairs.RECIPE, functools.partial(pairs.arrange, store, self.resolved()))
            return PairSequences(store, index, self.sequence_length)
        whole, length = self.break_mode == "sentences", self.sequence_length
        make = functools.partial(running_text.arrange, store, length, whole_sentences=whole)
        return Sequences(store, self._cached(store, "sequences", running_text.RECIPE, make), length)

    def _cached(self, store: TokenStore, name: str, recipe: int, make: Callable[[], np.ndarray]) -> np.ndarray:
        path = store.folder / f"{name}-{identity([self.essence(), recipe])[:12]}.npy"
        try:
            return np.asarray(np.load(path, mmap_mode="r"))
        except (OSError, ValueError):
            made = make()
        temporary = path.with_suffix(f".{os.getpid()}")
        with open(temporary, "wb") as file:
            np.save(file, made)
        os.replace(temporary, path)
        return made
