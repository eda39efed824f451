"""ALBERT: a lite BERT for self-supervised learning of language representations (Lan et al. 2020).

arXiv 1909.11942, section 3 and Table 1, first release: narrow embeddings, one layer used throughout, the order of
two segments instead of whether they belong together, LAMB and large batches.

Differs from the paper in three things. Pieces are WordPiece where it has SentencePiece's unigram model, of the same
size. Single pieces are masked where it masks n-grams of up to three words. Pairs of one sentence, which have no
order, are left out; the released code gives them a second segment from elsewhere (``format.lone_negatives``).
The cap of 20 predictions at 512 positions is that of the released code: full sequences have 4 % rather than 15 %.
"""

from .bert import BERT_BASE

ALBERT_BASE = BERT_BASE.but(
    **{
        "name": "albert_base",
        "paper": "Lan et al. 2020, arXiv 1909.11942, Table 1 and section 4.1",
        "model.embedding_size": 128,
        "model.sharing": "all",
        "model.activation": "gelu_tanh",
        "objectives.mlm.masking.cap": 20,
        "format.negatives": "swapped",
        "format.duplicates": 40,
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
