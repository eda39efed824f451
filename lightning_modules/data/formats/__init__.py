"""Input formats: how documents are arranged as sequences, once, before any corruption; one class for each ``kind``.

The formats of RoBERTa's Table 2 (Liu et al. 2019, section 4.2) are `NAMED`. ``stream`` is of models that remember what
came before, ``seq2seq`` of those that read a source. Pairs, and the ends of documents, leave rows short: `ablations
data formats` says how short, and ``training.batch_by`` gives a step as many tokens nevertheless.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np

from lightning_modules.config import ByKind, ConfigError
from lightning_modules.data.formats.format import InputFormat
from lightning_modules.data.formats.pairs import SegmentPairFormat, SentencePairFormat
from lightning_modules.data.formats.seq2seq import Seq2SeqFormat
from lightning_modules.data.formats.stream import StreamFormat
from lightning_modules.data.formats.text import TextFormat
from lightning_modules.data.store import TokenStore

AnyFormat = Annotated[TextFormat | SegmentPairFormat | SentencePairFormat | StreamFormat | Seq2SeqFormat, ByKind()]
FORMATS: dict[str, type[InputFormat]] = {
    "full_sentences": TextFormat,
    "segment_pairs": SegmentPairFormat,
    "sentence_pairs": SentencePairFormat,
    "stream": StreamFormat,
    "seq2seq": Seq2SeqFormat,
}
NAMED: Mapping[str, Mapping[str, Any]] = {  # as Liu et al. 2019, section 4.2, call them -> their knobs
    "SEGMENT-PAIR": {"kind": "segment_pairs"},
    "SENTENCE-PAIR": {"kind": "sentence_pairs"},
    "FULL-SENTENCES": {"kind": "full_sentences", "break_mode": "sentences"},
    "DOC-SENTENCES": {"kind": "full_sentences", "break_mode": "documents"},
    "fixed blocks": {"kind": "full_sentences", "break_mode": "none"},
}


def summary(store: TokenStore, form: InputFormat) -> dict[str, float]:
    """What the sequences of a store in a format of running text or pairs are like.

    ``rows`` is their number, ``mean length`` the positions that are no padding, ``padding`` the share of it where all
    rows have the full length, ``documents a row`` how many a row shows parts of, and ``of the text`` the share of the
    text's tokens that any row shows.

    Raises:
        ConfigError: When there is none, or the format cannot be made of this text.
    """
    sequences: Any = form.arrange(store)
    if not len(sequences):
        raise ConfigError(
            [f"the text of {store.folder} has no sequence of {form.sequence_length} positions. Add text."]
        )
    edges = np.zeros(len(store.ids) + 1, dtype=np.int32)
    for start, end in sequences.stretches:
        np.add.at(edges, start, 1)
        np.add.at(edges, end, -1)
    mean = float(sequences.sizes.mean())
    return {
        "rows": len(sequences),
        "mean length": mean,
        "padding": 1 - mean / sequences.length,
        "documents a row": float(sequences.documents.mean()),
        "of the text": float((np.cumsum(edges[:-1]) > 0).mean()),
    }
