"""GPT-2: language models are unsupervised multitask learners (Radford et al. 2019).

Section 2.3 and Table 2 of the paper, and the released models: LayerNorm before each sub-layer and after the last,
1,024 positions, byte-level BPE, an end of text after each document, batches of 512 sequences, projections into the
stream that start smaller. Further released sizes are changes of these::

    GPT2.but(**{"model.num_layers": 36, "model.hidden_size": 1280})  # large
    GPT2.but(**{"model.num_layers": 48, "model.hidden_size": 1600})  # xl, 25 heads

An erratum: Table 2 prints 117 M and 345 M parameters for the two smallest; the released models have 124,439,808 and
354,823,168, as OpenAI's repository says, and so have these.

What differs, and what no source says:

* WebText was not released: the corpora are those of `bert` here.
* Standard deviations are those of the released code, 0.02, and 0.01 for positions. It has no training and does not
  show the scaled projections, which are the paper's.
* The end of text is ``[SEP]``. Five of the pieces are special where GPT-2 has one, so that there are four merges fewer;
  words are cut by this project.
* The learning rate, its schedule and the number of updates are printed nowhere. Rates are those of GPT-3's models of
  these sizes, whose batches have as many tokens (Brown et al. 2020, Table 2.1: 6e-4 and 3e-4); schedule, dropout and
  weight decay are GPT's; 100,000 updates are 52 billion tokens.
"""

from lightning_modules.systems.gpt import GPT

GPT2 = GPT.but(
    **{
        "name": "gpt2",
        "paper": "Radford et al. 2019, Language Models are Unsupervised Multitask Learners, section 2.3",
        "model.norm": "pre",
        "model.max_positions": 1024,
        "model.position_init_std": 0.01,
        "model.residual_init": "scaled",
        "format.sequence_length": 1024,
        "format.frame": "document_ends",
        "data.tokenizer.kind": "byte_bpe",
        "data.tokenizer.vocab_size": 50_257,
        "data.tokenizer.lowercase": False,
        "optimizer.peak_lr": 6e-4,
        "schedule.warmup_fraction": 2_000 / 100_000,
        "training.steps": 100_000,
        "training.batch_size": 512,
    }
)

GPT2_MEDIUM = GPT2.but(
    **{"name": "gpt2_medium", "model.num_layers": 24, "model.hidden_size": 1024, "optimizer.peak_lr": 3e-4}
)
