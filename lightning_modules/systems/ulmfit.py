"""ULMFiT: a language model of general text, then of the text of a task, then a classifier (Howard and Ruder 2018).

This system is the second of the three stages, the language model of the task's text. The first is where it starts from
(``ULMFIT.ancestor()``), the third any fine-tuning under the protocol ``ulmfit``::

    ULMFIT.but(**{"data.corpora": ["jsonl:text:~/reviews/*.jsonl"]})

Sections 3 and 4 of the paper and the released code: AWD-LSTM with the code's dropouts for language models, Adam with
moments of 0.7 and 0.99, rates that are divided by 2.6 from layer to layer, slanted triangular rates. The target has
a vocabulary of its own: common pieces keep their embeddings, new ones start from the mean of all.

What differs:

* The general model reads the paper's WikiText-103. Wikipedia of 2015 replaces it, a fifth as much. How long the paper
  trains it is not printed: here it is for 14 times as many words as WikiText-103 has.
* The paper has 60,000 words, and one for all others. Here there are as many pieces.
* The released code trains on 90 of 100 thousand reviews, test reviews among them. Here no test review is read, and
  no review that the task holds out.
* The number of steps is that of 15 passes, with 1.3 pieces a word.
* An output layer that is tied to the embeddings learns at their rate, the lowest. In the released code the rates of the
  second stage are a sixth, a third and one of the rate, and a half for the output layer.
"""

from lightning_modules.data import Data, Tokenizer
from lightning_modules.systems.awd_lstm import AWD_LSTM
from lightning_modules.training.optimizers import Optimizer, Schedule
from lightning_modules.training.settings import Training

_GENERAL = {
    "data.corpora": ["wikipedia-2015"],
    "training.steps": 418_000,
    "optimizer.peak_lr": 1e-3,
    "optimizer.rate_divisor": 1.0,
}

ULMFIT = AWD_LSTM.model_copy(
    update={
        "name": "ulmfit",
        "paper": "Howard and Ruder 2018, arXiv 1801.06146, sections 3 and 4, and released code (IMDb, second stage)",
        "model": AWD_LSTM.model.but(
            word_type_dropout=0.02, input_dropout=0.25, weight_dropout=0.2, hidden_dropout=0.15, output_dropout=0.1
        ),
        "data": Data(
            corpora=("imdb-train", "imdb-unlabelled"),
            tokenizer=Tokenizer(kind="wordpiece", vocab_size=60_000, lowercase=True),
        ),
        "optimizer": Optimizer(peak_lr=4e-3, beta1=0.7, beta2=0.99, weight_decay=1e-7, rate_divisor=2.6),
        "schedule": Schedule(shape="slanted", warmup_fraction=0.1, ratio=32.0, by_length=True),
        "training": Training(
            steps=72_000, batch_size=64, clip_norm=0.3, precision="fp32", vocabulary="remapped", start=_GENERAL
        ),
    }
).but()  # which checks that the parts fit
