"""XLM: cross-lingual language model pretraining (Conneau and Lample 2019, arXiv 1901.07291).

Section 5.1 and the released code: a transformer of 12 layers of 1,024 with 8 heads, embeddings of languages, one
vocabulary of BPE for all of them, and learned positions, which begin again in the second sentence of a pair. Steps of
masked words in texts of one language (MLM) and in pairs (TLM) take turns. The other two trainings of the paper are
changes of this one::

    XLM.but(**{"format.languages": "apart"})                                                # MLM alone
    XLM.but(**{"format.languages": "apart", "objectives.mlm": None,                         # CLM
               "objectives.lm.direction": "left_to_right", "model.direction": "left_to_right"})

A translator that starts from it is another system, with ``training.start_parts`` (grid ``translation_start``).

What differs, and what no source says:

* Wikipedias of fifteen languages and their parallel corpora are not at hand: verses of the Bible in three languages and
  captions of images replace them. All pairs have English, as in the paper.
* Rows begin with [CLS] and sentences end with [SEP], for both of which the paper has ``</s>``. Accents stay.
* The exponent of languages is 0.5 (section 3.1, of sentences that make the vocabulary, where the tokenizer here reads
  the text as it is). The released code draws the language of a step likewise.
* All words are masked as often. The paper weighs them by the inverse of the root of their frequency (section 3.2); the
  released code does not by default.
* A step has 64 rows of 256 tokens, and of pairs as many tokens. The paper has 4,000 tokens of pairs on each of its 64
  devices.
* The head has BERT's dense layer, which XLM's lacks: no checkpoint of XLM is read or written.
* Weights of layers are normal here, as embeddings are in the released code; there layers have torch's default.
"""

from lightning_modules.data import Data, TextFormat, Tokenizer
from lightning_modules.model import Transformer
from lightning_modules.objectives import MaskedLM, Masking, Objectives
from lightning_modules.system import System
from lightning_modules.training.optimizers import Optimizer, Schedule
from lightning_modules.training.settings import Training

XLM = System(
    name="xlm",
    paper="Conneau and Lample 2019, arXiv 1901.07291, section 5.1, and released code",
    model=Transformer(
        num_layers=12,
        hidden_size=1024,
        num_heads=8,
        segment_types=0,
        languages=("de", "en", "es", "zh"),
        init="normal",
        init_std=0.03125,
    ),
    objectives=Objectives(mlm=MaskedLM(masking=Masking(count="bernoulli"))),
    format=TextFormat(
        sequence_length=256,
        break_mode="none",
        languages="in_turn",
        language_exponent=0.5,
    ),
    data=Data(
        corpora=("bible:en-de", "bible:en-es", "bible:en-zh", "multi30k:en-de"),
        tokenizer=Tokenizer(kind="letter_bpe", vocab_size=95_000, lowercase=True),
    ),
    optimizer=Optimizer(peak_lr=1e-4, beta2=0.999, eps=1e-8, weight_decay=0.0),
    schedule=Schedule(warmup_fraction=0.01, decay="inverse_sqrt"),
    training=Training(steps=300_000, batch_size=64, batch_by="tokens", clip_norm=5.0, precision="fp32"),
)
