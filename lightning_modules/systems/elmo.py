"""ELMo: deep contextualised word representations (Peters et al. 2018), the original model of the model zoo.

Section 3 of the paper and the released code (bilm-tf): words by characters, and two stacks of two LSTM layers, of 4,096
cells that are projected to 512, one from left to right and one from right to left. Both share characters and output
layer. The smaller models are changes of this one::

    ELMO.but(**{"model.characters.highways": 1, "model.embedding_size": 128, "model.hidden_size": 128,
                "model.cell_size": 1024})   # small
    ELMO.but(**{"model.characters.highways": 1, "model.embedding_size": 256, "model.hidden_size": 256,
                "model.cell_size": 2048})   # medium

What differs:

* The 1B Word Benchmark is not at hand: Wikipedia of 2015 replaces it. Its 793,471 words are words with a row in the
  output layer. Here these are the pieces of the vocabulary that are words, and all others are [UNK].
* Rows are read by themselves, from states of zero, and have 128 pieces. The released code carries states from
  step to step of 20 words, and each direction reads other rows. A step has about as many words here, 384 times 20.
* Ends of sentences are no words, and ends of documents are read and not predicted.
* The number of steps is that of ten passes over 768,648,884 words.
* The released code multiplies the loss by 20, the length of a step, and takes half of both directions. Here that is
  the weight of the objective, 10.
* The output layer of the released code divides by the chance of the right word, too (`objectives.sampled_softmax`).
"""

from lightning_modules.data import Data, TextFormat, Tokenizer
from lightning_modules.model import Recurrent
from lightning_modules.model.embeddings import CharacterEncoder
from lightning_modules.objectives import LanguageModel, Objectives
from lightning_modules.system import System
from lightning_modules.training.optimizers import Optimizer, Schedule
from lightning_modules.training.settings import Training

ELMO = System(
    name="elmo",
    paper="Peters et al. 2018, arXiv 1802.05365, section 3, and released code (bilm-tf)",
    model=Recurrent(
        num_layers=4,
        hidden_size=512,
        embedding_size=512,
        cell_size=4096,
        cell_clip=3.0,
        projection_clip=3.0,
        residual=True,
        direction="two_way",
        characters=CharacterEncoder(),
        embedding_norm=False,
        embedding_dropout=0.1,
        dropout=0.1,
    ),
    objectives=Objectives(
        lm=LanguageModel(direction="two_way", units="words", negatives=8192, transform="none", weight=10.0)
    ),
    format=TextFormat(sequence_length=128),
    data=Data(corpora=("wikipedia-2015",), tokenizer=Tokenizer(kind="byte_bpe", vocab_size=100_000, lowercase=False)),
    optimizer=Optimizer(algorithm="adagrad", peak_lr=0.2, weight_decay=0.0),
    schedule=Schedule(warmup_fraction=0.0, decay="constant"),
    training=Training(steps=1_000_000, batch_size=80, clip_norm=10.0, precision="fp32"),
)
