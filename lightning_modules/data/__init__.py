"""Text in, sequences out: corpora, tokenizers, token stores, input formats, loaders.

>>> from lightning_modules.data import Data, InputFormat, open_store
>>> sequences = InputFormat(sequence_length=64).arrange(open_store(Data(), "train"))  # doctest: +SKIP

``loader`` (Lightning's data module) and ``bigram`` (the neighbour baseline) are imported by name.
"""

from .corpora import CORPORA, Corpus
from .formats import InputFormat, Sequences
from .pairs import PairSequences
from .pins import DataMismatch, fingerprints
from .settings import Data
from .store import TokenStore, open_store
from .tokenizer import Tokenizer, Vocabulary

__all__ = [
    "CORPORA",
    "Corpus",
    "Data",
    "DataMismatch",
    "InputFormat",
    "PairSequences",
    "Sequences",
    "TokenStore",
    "Tokenizer",
    "Vocabulary",
    "fingerprints",
    "open_store",
]
