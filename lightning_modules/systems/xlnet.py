"""XLNet: generalized autoregressive pretraining for language understanding (Yang et al. 2019, arXiv 1906.08237v2).

The base model of Table 6, row 4 but for its memory and its rows, which trains on BERT's text: sections 2.2 to 2.5 and
3.1 of the paper, details of the released code. Of a random order of the tokens the last sixth is predicted, by a second
stream of states; scores depend on distances and on whether two positions are of one segment, with biases of each layer;
segments are not numbered elsewhere, and [CLS] is last (section 2.5 prints it first). 512 positions from the first step
on, with cased unigram pieces. Optimiser, batch and steps are BERT's, since the paper does not print those of this
model.

Table 6 by its rows: 2, masked LM on this backbone, is::

    XLNET_BASE.but(**{"objectives.plm": None, "objectives.mlm": {}, "model.query_stream": False})

3 and 4 have ``objectives.plm.one_in`` 7 and 6, 6 has ``objectives.plm.units.kind`` pieces, and 8 adds
``objectives.sentence``. A memory (row 5 is without it) and rows in both directions (row 7 is without them) are of
streams. Row 4 whole has rows whose first half goes on and fills the memory; a pair follows, ``A [SEP] B [SEP] [CLS]``,
whose A goes on too, and the next step reads that text again::

    XLNET_BASE.but(**{"format.kind": "stream", "format.frame": "none", "format.both_ways": True,
                      "format.reuse_length": 256, "format.rest": "pair", "model.memory_length": 384})

What differs:

* Rows of this value are BERT's pairs, which go on from no other rows.
* Of rows with a pair, a random B is from anywhere in the text (released code: in the same row of the stream), and pairs
  are the same in all passes.
* The released code has no LayerNorm on embeddings, as here, and drops out inside the feed-forward layers and after the
  last layer too.
* Spans count pieces, as in the released code (`SpreadSpans`).
"""

from lightning_modules.systems.bert import BERT_BASE

XLNET_BASE = BERT_BASE.but(
    **{
        "name": "xlnet_base",
        "paper": "Yang et al. 2019, arXiv 1906.08237, Table 6 and released code",
        "model.positions": "relative",
        "model.query_biases": "layer",
        "model.segment_relation": True,
        "model.query_stream": True,
        "model.segment_types": 0,
        "model.embedding_norm": False,
        "model.attention_biases": False,
        "model.activation": "gelu_tanh",
        "model.init": "normal",
        "objectives.mlm": None,
        "objectives.sentence": None,
        "objectives.plm": {"one_in": 6.0, "units": {"kind": "spread_spans", "longest": 5}},
        "format.cls": "last",
        "format.first_share": 0.0,
        "format.first_length": None,
        "format.short_fraction": 0.0,
        "format.duplicates": 1,
        "data.tokenizer": {"kind": "unigram", "vocab_size": 32_000, "lowercase": False},
    }
)

# sections 3.1 and A.4.1; the paper's text is ten times as large
XLNET_LARGE = XLNET_BASE.but(
    **{
        "name": "xlnet_large",
        "model.num_layers": 24,
        "model.hidden_size": 1024,
        "optimizer.peak_lr": 4e-4,
        "schedule.warmup_fraction": 40_000 / 500_000,
        "training.steps": 500_000,
        "training.batch_size": 8192,
    }
)
