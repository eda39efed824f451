"""The Transformer: attention is all you need (Vaswani et al. 2017).

Table 3, rows base and big: six layers on either side, LayerNorm after each sub-layer, ReLU, sinusoids, one table for
both languages and the output, multiplied by the square root of its width where it is read. Labels are smoothed by 0.1,
and the rate is that of equation 3: its peak is (d x 4,000)^-1/2.

Two errata. Table 3 prints 65 and 213 million parameters; there are 63.1 and 214.2 with the 37,000 pieces of section
5.1. The BLEU of big on English-French is 41.0 in the first version of the paper and 41.8 in the later ones, whose
section 6.1 still says 41.0.

What differs, and what no source says:

* The text of WMT 2014 is not at hand: the corpus is the largest captioned one here, of 29,000 pairs.
* Pieces are BPE of bytes, which keeps the spaces of a text, and five of them are special.
* A step has 25,000 tokens of each language in the paper. Here it has 50,176 of both: 98 pairs of 256 + 256. Pairs of
  similar length come together in both (section 5.1), here out of those of 100 steps.
* Weights are normal with standard deviation d^-1/2, that of the authors' embeddings and of Xavier's for a square
  matrix. Projections of attention have biases, which the authors' code lacks (0.04 million).
* Sinusoids are interleaved as in the formula of section 3.5; the released code has sines, then cosines.
* Checkpoints are averaged by steps, 5 of base and 20 of big. Section 6.1 has one each 10 minutes for base, which are
  1,500 steps of 0.4 seconds, and no interval for big: 600 steps of a second here. Table 3 has no averaging.
"""

from lightning_modules.data import Data, Seq2SeqFormat, Tokenizer
from lightning_modules.model import EncoderDecoder
from lightning_modules.objectives import LanguageModel, Objectives
from lightning_modules.system import System
from lightning_modules.training.optimizers import Optimizer, Schedule
from lightning_modules.training.settings import Training

_WARMUP = 4_000

TRANSFORMER_BASE = System(
    name="transformer_base",
    paper="Vaswani et al. 2017, Attention Is All You Need, sections 3 and 5",
    model=EncoderDecoder(
        num_layers=6,
        hidden_size=512,
        num_heads=8,
        ffn_size=2_048,
        activation="relu",
        positions="sinusoidal",
        segment_types=0,
        embedding_norm=False,
        embedding_scale=True,
        attention_dropout=0.0,
        norm_eps=1e-6,
        init="normal",
        init_std=0.0442,
    ),
    objectives=Objectives(lm=LanguageModel(transform="none", bias=False, label_smoothing=0.1)),
    format=Seq2SeqFormat(sequence_length=256),
    data=Data(
        corpora=("multi30k:en-de",),
        tokenizer=Tokenizer(kind="byte_bpe", vocab_size=37_000, lowercase=False),
    ),
    optimizer=Optimizer(peak_lr=6.99e-4, beta2=0.98, eps=1e-9, weight_decay=0.0),
    schedule=Schedule(warmup_fraction=_WARMUP / 100_000, decay="inverse_sqrt"),
    training=Training(
        steps=100_000,
        batch_size=98,
        batch_by="tokens",
        bucket_steps=100,
        clip_norm=0.0,
        averaged_checkpoints=5,
        averaging_interval=0.015,
        precision="fp32",
    ),
)

TRANSFORMER_BIG = TRANSFORMER_BASE.but(
    **{
        "name": "transformer_big",
        "model.hidden_size": 1_024,
        "model.num_heads": 16,
        "model.ffn_size": 4_096,
        "model.dropout": 0.3,
        "model.embedding_dropout": 0.3,
        "model.init_std": 0.03125,
        "optimizer.peak_lr": 4.94e-4,
        "schedule.warmup_fraction": _WARMUP / 300_000,
        "training.steps": 300_000,
        "training.averaged_checkpoints": 20,
        "training.averaging_interval": 0.002,
    }
)
