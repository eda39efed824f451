"""SpanBERT: improving pre-training by representing and predicting spans (Joshi et al. 2020, arXiv 1907.10529).

Sections 3 and 4.2 of the paper and the released code. It is BERT with spans hidden instead of pieces, the span boundary
objective, one sequence and no sentence objective. Masks are drawn again at each presentation, and pieces are cased.
AdamW has bias correction, a smaller epsilon and a larger weight decay, and there are more steps. The paper trains the
large model. The base one is released with it.

The mean loss of span boundaries is over their predictions; the code divides by one more. Two segments are known, as in
BERT, and the first is always used, as in the code, which drops sentences longer than a sequence; here they are cut.
"""

from lightning_modules.systems.bert import BERT_BASE

SPANBERT_BASE = BERT_BASE.but(
    **{
        "name": "spanbert_base",
        "paper": "Joshi et al. 2020, arXiv 1907.10529, sections 3 and 4.2",
        "objectives.sentence": None,
        "objectives.sbo": {"weight": 1.0, "longest": 15, "position_size": 200},
        "objectives.mlm.masking.units": {"kind": "spans", "p": 0.2, "longest": 10},
        "objectives.mlm.masking.count": "ceil",
        "objectives.mlm.masking.replacement": "group",
        "objectives.mlm.masking.random_words": "frequency",
        "objectives.mlm.masking.copies": 0,
        "format.kind": "full_sentences",
        "format.break_mode": "documents",
        "format.first_share": 0.0,
        "format.first_length": None,
        "format.duplicates": 1,
        "data.tokenizer.vocab_size": 28_996,
        "data.tokenizer.lowercase": False,
        "optimizer.bias_correction": True,
        "optimizer.eps": 1e-8,
        "optimizer.weight_decay": 0.1,
        "schedule.warmup_fraction": 10_000 / 2_400_000,
        "training.steps": 2_400_000,
        "training.batch_by": "tokens",  # documents are short: a batch of 256 x 512 tokens has some 390 sequences
    }
)

SPANBERT_LARGE = SPANBERT_BASE.but(**{"name": "spanbert_large", "model.num_layers": 24, "model.hidden_size": 1024})
