"""Transformer-XL: attentive language models beyond a fixed-length context (Dai et al. 2019).

Sections 3.2 and 3.3 of the paper and the released PyTorch code, the base model of WikiText-103: each layer attends to
the inputs that it had in the 150 positions before, without gradient; scores depend on distances, by sinusoids that each
layer projects and by two query biases, u and v, which all layers share; no biases in attention; word embeddings times
the square root of their width. The base model of enwik8 is a change of this one::

    TRANSFORMER_XL_BASE.but(**{
        "model.num_layers": 12, "model.hidden_size": 512, "model.num_heads": 8, "model.ffn_size": 2048,
        "model.memory_length": 512, "format.sequence_length": 512, "training.batch_size": 22, "training.steps": 400_000,
    })

What differs:

* WikiText-103 is not to be had: Wikipedia replaces it, with as many pieces as that text has words (267,735).
* The softmax is a plain one, which any vocabulary size has. With ``objectives.lm.cutoffs`` at 20,000, 40,000 and
  200,000 it is the released adaptive one, which has a vector and a bias for each of three clusters: 1,233 parameters
  more. Words are to be numbered by frequency then; pieces are so only roughly. The large model (18 layers, 1,024 wide)
  has embeddings of four widths besides: ``model.embedding_cutoffs`` as the softmax's, ``model.embedding_divisor`` 4.
* The released code drops out inside the feed-forward layers and after the last layer too.
* The memory is as long from the first step on, and hidden where it holds nothing yet.
* Adam's decay rates, epsilon and cosine are as in GPT; weight decay is 0.
"""

from lightning_modules.systems.gpt import GPT

TRANSFORMER_XL_BASE = GPT.but(
    **{
        "name": "transformer_xl_base",
        "paper": "Dai et al. 2019, arXiv 1901.02860, section 4.1 and released code (WikiText-103 base)",
        "model.num_layers": 16,
        "model.hidden_size": 410,
        "model.num_heads": 10,
        "model.ffn_size": 2100,
        "model.activation": "relu",
        "model.positions": "relative",
        "model.memory_length": 150,
        "model.embedding_scale": True,
        "model.attention_biases": False,
        "model.attention_dropout": 0.0,
        "model.norm_init_std": 0.02,
        "objectives.lm.bias": True,
        "format.kind": "stream",
        "format.sequence_length": 150,
        "format.frame": "document_ends",
        "data.corpora": ["wikipedia-2015"],
        "data.tokenizer.vocab_size": 267_735,
        "data.tokenizer.lowercase": False,
        "optimizer.weight_decay": 0.0,
        "schedule.warmup_fraction": 0.0,
        "training.steps": 200_000,
        "training.batch_size": 60,
        "training.clip_norm": 0.25,
    }
)
