"""GPT: improving language understanding by generative pre-training (Radford et al. 2018).

Section 4.1 of the paper (model specifications) and the released code of its fine-tuning: a transformer that reads left
to right, LayerNorm after each sub-layer and none on the embeddings, learned positions, GELU in its tanh form, an output
layer that is the word table alone, contiguous text in blocks of 512 without special tokens, Adam with a cosine
schedule. The released vocabulary has 478 letters, most of them twice: inside and at the end of a word.

What differs:

* BooksCorpus is not to be had: the corpora are those of `bert` here.
* The paper trains for 100 epochs. The number of updates is computed from BERT's count of 800 M words and 1.25 pieces a
  word: 30,500 updates an epoch.
* The text is cleaned and cut into words by this project, not by ftfy and spaCy. Five of the pieces are special.
* The released code has the positions in the table of words, so that its softmax spreads over them too; here they are
  apart. Its embedding dropout is of that table, which is the output layer as well; here it is of the summed embeddings.
* The cosine falls from the first update on, as in the released code; the paper leaves it open. 2,000 updates of warm-up
  are a fifteenth of a percent.
* Gradients are clipped at norm 1 as in the code of fine-tuning; the paper says nothing.
"""

from lightning_modules.data import Data, TextFormat, Tokenizer
from lightning_modules.model import Transformer
from lightning_modules.objectives import LanguageModel, Objectives
from lightning_modules.system import System
from lightning_modules.training.optimizers import Optimizer, Schedule
from lightning_modules.training.settings import Training

GPT = System(
    name="gpt",
    paper="Radford et al. 2018, Improving Language Understanding by Generative Pre-Training, section 4.1",
    model=Transformer(
        num_layers=12,
        hidden_size=768,
        activation="gelu_tanh",
        direction="left_to_right",
        segment_types=0,
        embedding_norm=False,
        norm_eps=1e-5,
        init="normal",
    ),
    objectives=Objectives(lm=LanguageModel(transform="none", bias=False)),
    format=TextFormat(sequence_length=512, break_mode="none", frame="none"),
    data=Data(
        corpora=("wikipedia-2015", "novels"), tokenizer=Tokenizer(kind="letter_bpe", vocab_size=40_478, lowercase=True)
    ),
    optimizer=Optimizer(peak_lr=2.5e-4, eps=1e-8, weight_decay=0.01),
    schedule=Schedule(warmup_fraction=2_000 / 3_050_000, decay="cosine", decay_origin="zero"),
    training=Training(steps=3_050_000, batch_size=64, clip_norm=1.0),
)
