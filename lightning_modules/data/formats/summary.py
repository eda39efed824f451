"""What the sequences of an input format are like: how long, of how many documents, of how much of the text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightning_modules.config import ConfigError
from lightning_modules.data.formats.input_format import InputFormat
from lightning_modules.data.store import TokenStore

NAMED: Mapping[str, Mapping[str, Any]] = {  # as Liu et al. 2019, section 4.2, call them -> their knobs
    "SEGMENT-PAIR": {"kind": "segment_pairs"},
    "SENTENCE-PAIR": {"kind": "sentence_pairs"},
    "FULL-SENTENCES": {"kind": "full_sentences", "break_mode": "sentences"},
    "DOC-SENTENCES": {"kind": "full_sentences", "break_mode": "documents"},
    "fixed blocks": {"kind": "full_sentences", "break_mode": "none"},
}


@dataclass(frozen=True)
class Summary:
    """The sequences of a text in a format.

    Attributes:
        rows: Their number.
        mean_length: Mean number of positions that are no padding, special tokens included.
        padding: Share of padding where all rows have the full length.
        documents: Mean number of documents that a row shows parts of.
        shown: Share of the text's tokens that any row shows.
    """

    rows: int
    mean_length: float
    padding: float
    documents: float
    shown: float


def summary(store: TokenStore, form: InputFormat) -> Summary:
    """The sequences of a store in a format.

    Raises:
        ConfigError: When there is none, or the format cannot be made of this text.
    """
    sequences = form.arrange(store)
    if not len(sequences):
        raise ConfigError(
            [f"the text of {store.folder} has no sequence of {form.sequence_length} positions. Add text."]
        )
    edges = np.zeros(len(store.ids) + 1, dtype=np.int32)
    for start, end in sequences.stretches:
        np.add.at(edges, start, 1)
        np.add.at(edges, end, -1)
    return Summary(
        rows=len(sequences),
        mean_length=float(sequences.sizes.mean()),
        padding=1 - float(sequences.sizes.mean() / sequences.length),
        documents=float(sequences.documents.mean()),
        shown=float((np.cumsum(edges[:-1]) > 0).mean()),
    )
