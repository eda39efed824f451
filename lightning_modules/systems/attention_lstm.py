"""LSTM translation with attention (Bahdanau et al. 2015; Luong et al. 2015).

The model of Luong et al., section 4.1: four layers of 1,000 units, embeddings of 1,000, dropout 0.2, gradients clipped
at 5, uniform weights within 0.1, SGD with rate 1. Attention is global and by the product of states (`dot`), behind the
layers of the decoder.

What differs, and why:

* The text of WMT 2014 is not at hand: the corpus is the largest captioned one here, of 29,000 pairs.
* The encoder reads in both directions, each with half of the units, as in Bahdanau et al. Its directions meet after
  their last layer.
* The decoder does not read its last attentional state (input feeding), so that all positions of a target train at once.
* Both languages have one vocabulary of byte-level pieces in place of 50,000 words each, and one table with the output
  layer.
* Adam replaces SGD, whose rate was halved by the epoch.
"""

from lightning_modules.data import Data, Seq2SeqFormat, Tokenizer
from lightning_modules.model import RecurrentEncoderDecoder
from lightning_modules.objectives import LanguageModel, Objectives
from lightning_modules.system import System
from lightning_modules.training.optimizers import Optimizer, Schedule
from lightning_modules.training.settings import Training

ATTENTION_LSTM = System(
    name="attention_lstm",
    paper="Luong et al. 2015, Effective Approaches to Attention-based Neural Machine Translation, section 4.1",
    model=RecurrentEncoderDecoder(
        num_layers=4,
        hidden_size=1_000,
        embedding_size=1_000,
        attention="dot",
        embedding_norm=False,
        embedding_dropout=0.2,
        dropout=0.2,
        init="uniform",
        init_std=0.0577350269,
    ),
    objectives=Objectives(lm=LanguageModel(transform="none", bias=False)),
    format=Seq2SeqFormat(sequence_length=256),
    data=Data(
        corpora=("multi30k:en-de",),
        tokenizer=Tokenizer(kind="byte_bpe", vocab_size=37_000, lowercase=False),
    ),
    optimizer=Optimizer(peak_lr=1e-3, weight_decay=0.0),
    schedule=Schedule(warmup_fraction=0.0, decay="linear"),
    training=Training(steps=10_000, batch_size=128, clip_norm=5.0, precision="fp32"),
)
