"""ALBERT: a lite BERT for self-supervised learning of language representations (Lan et al. 2020).

arXiv 1909.11942, section 3 and Table 1, first release: factorised embeddings, one shared layer, sentence-order
prediction instead of next-sentence prediction, LAMB and large batches.

It is as published. Pairs of one sentence have no order, and the paper has none; the released code gives them a second
segment from another document and calls that a swap (``format.lone_negatives``).

The released code also allows at most 20 predictions a sequence (``objectives.mlm.masking.cap``), 4 % of 512 positions;
the paper says 15 %.
"""

from lightning_modules.systems.bert import BERT_BASE

ALBERT_BASE = BERT_BASE.but(
    **{
        "name": "albert_base",
        "paper": "Lan et al. 2020, arXiv 1909.11942, Table 1 and section 4.1",
        "model.embedding_size": 128,
        "model.sharing": "all",
        "model.activation": "gelu_tanh",
        "format.first_share": 0.0,
        "format.first_length": None,
        "objectives.mlm.activation": "gelu_tanh",
        "objectives.mlm.masking.units": {"kind": "ngrams", "longest": 3},
        "format.negatives": "swapped",
        "format.duplicates": 40,
        "data.tokenizer.kind": "unigram",
        "data.tokenizer.vocab_size": 30_000,
        "optimizer.algorithm": "lamb",
        "optimizer.peak_lr": 1.76e-3,
        "schedule.warmup_fraction": 3125 / 125_000,
        "training.steps": 125_000,
        "training.batch_size": 4096,
    }
)

ALBERT_LARGE = ALBERT_BASE.but(**{"name": "albert_large", "model.num_layers": 24, "model.hidden_size": 1024})

ALBERT_XLARGE = ALBERT_LARGE.but(**{"name": "albert_xlarge", "model.hidden_size": 2048})

ALBERT_XXLARGE = ALBERT_BASE.but(
    **{
        "name": "albert_xxlarge",
        "model.hidden_size": 4096,
        "model.embedding_dropout": 0.0,
        "model.dropout": 0.0,
        "model.attention_dropout": 0.0,
    }
)
