"""From text to batches: corpora, tokenizers, token stores, input formats, order of samples, loaders.

>>> from lightning_modules.data import Data, TextFormat, open_store
>>> sequences = TextFormat(sequence_length=64).arrange(open_store(Data(), "train"))  # doctest: +SKIP

``loader`` (Lightning's data module), ``baselines`` and ``word_vectors`` are imported by name.
"""

from lightning_modules.data.annotations import open_annotated
from lightning_modules.data.corpora.registry import CORPORA, Corpus
from lightning_modules.data.formats import (
    InputFormat,
    SegmentPairFormat,
    SentencePairFormat,
    Seq2SeqFormat,
    StreamFormat,
    TextFormat,
)
from lightning_modules.data.formats.format import Sequences
from lightning_modules.data.formats.pairs import PairSequences
from lightning_modules.data.formats.text import RunningText
from lightning_modules.data.pins import fingerprints, fingerprints_of
from lightning_modules.data.settings import Data
from lightning_modules.data.store import TokenStore, open_store
from lightning_modules.data.text.tokenizer import Tokenizer, Vocabulary
from lightning_modules.pins import DataMismatch

__all__ = [
    "CORPORA",
    "Corpus",
    "Data",
    "DataMismatch",
    "InputFormat",
    "PairSequences",
    "RunningText",
    "SegmentPairFormat",
    "SentencePairFormat",
    "Seq2SeqFormat",
    "Sequences",
    "StreamFormat",
    "TextFormat",
    "TokenStore",
    "Tokenizer",
    "Vocabulary",
    "fingerprints",
    "fingerprints_of",
    "open_annotated",
    "open_store",
]
