"""RoBERTa: a robustly optimized BERT pretraining approach (Liu et al. 2019, arXiv 1907.11692).

Table 9 of the paper and the released fairseq code: full sentences without a sentence objective, dynamic masking
with a stochastic count, byte-level BPE, weight decay on every parameter, no gradient clipping.

Unlike in the released code, special tokens are never predicted.
"""

from lightning_modules.data import Data, TextFormat, Tokenizer
from lightning_modules.model import Transformer
from lightning_modules.objectives import MaskedLM, Masking, Objectives
from lightning_modules.system import System
from lightning_modules.training.optimizers import Optimizer, Schedule
from lightning_modules.training.settings import Training

ROBERTA_BASE = System(
    name="roberta_base",
    paper="Liu et al. 2019, arXiv 1907.11692, Table 9",
    model=Transformer(num_layers=12, hidden_size=768, segment_types=0, norm_eps=1e-5, init="normal"),
    objectives=Objectives(mlm=MaskedLM(masking=Masking(count="stochastic_round", random_words="ordinary"))),
    format=TextFormat(sequence_length=512),
    data=Data(
        corpora=("wikipedia-2015", "novels"), tokenizer=Tokenizer(kind="byte_bpe", vocab_size=50_265, lowercase=False)
    ),
    optimizer=Optimizer(peak_lr=6e-4, beta2=0.98, eps=1e-6, weight_decay=0.01, decay_all=True),
    schedule=Schedule(warmup_fraction=24_000 / 500_000),
    training=Training(steps=500_000, batch_size=8192, clip_norm=0.0),
)

ROBERTA_LARGE = ROBERTA_BASE.but(
    **{
        "name": "roberta_large",
        "model.num_layers": 24,
        "model.hidden_size": 1024,
        "optimizer.peak_lr": 4e-4,
        "schedule.warmup_fraction": 30_000 / 500_000,
    }
)
