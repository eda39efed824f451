"""DistilBERT, a distilled version of BERT (Sanh et al. 2019, arXiv 1910.01108).

The paper's sections 2 and 3, and the defaults of the released code: BERT-base without segments and pooler, six of its
layers, on the losses of `objectives.distillation`. Weights of the losses are those that the authors give (5, 2 and 1).
Text is masked again in each pass, and there is no sentence objective. The paper has batches of up to 4,000 sequences.

What differs: words are hidden alike, where the released code hides rare ones more often (by count^-0.7). The teacher is
our BERT, not the released one. Neither paper nor code print a number of steps. The code has three passes by default:
6,500 steps, with 1.3 pieces for each of the 3.3 billion words that BERT read.
"""

from lightning_modules.systems.bert import BERT_BASE

# In what the teacher, BERT-base, differs from its student.
_BERT = {
    path: BERT_BASE.get(path)
    for path in (
        "model.num_layers",
        "model.segment_types",
        "objectives.mlm.weight",
        "objectives.mlm.masking.copies",
        "format.kind",
        "format.first_share",
        "format.first_length",
        "format.duplicates",
        "optimizer.peak_lr",
        "optimizer.beta2",
        "optimizer.weight_decay",
        "optimizer.bias_correction",
        "schedule.warmup_fraction",
        "schedule.decay_origin",
        "training.steps",
        "training.batch_size",
        "training.clip_norm",
    )
} | {"objectives.sentence": {}}

DISTILBERT = BERT_BASE.but(
    **{
        "name": "distilbert",
        "paper": "Sanh et al. 2019, arXiv 1910.01108, sections 2 and 3",
        "model.num_layers": 6,
        "model.segment_types": 0,
        "objectives.mlm.weight": 2.0,
        "objectives.mlm.masking.copies": 0,
        "objectives.sentence": None,
        "objectives.distillation.teacher": _BERT,
        "format.kind": "full_sentences",
        "format.first_share": 0.0,
        "format.first_length": None,
        "format.duplicates": 1,
        "optimizer.peak_lr": 5e-4,
        "optimizer.beta2": 0.98,
        "optimizer.weight_decay": 0.0,
        "optimizer.bias_correction": True,
        "schedule.warmup_fraction": 0.05,
        "schedule.decay_origin": "warmup_end",
        "training.start": _BERT,
        "training.start_layers": (0, 2, 4, 7, 9, 11),
        "training.batch_size": 4000,
        "training.steps": 6_500,
        "training.clip_norm": 5.0,
    }
)
