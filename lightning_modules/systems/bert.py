"""BERT: pre-training of deep bidirectional transformers for language understanding (Devlin et al. 2019).

arXiv 1810.04805, section 3.1 and appendix A.2: 90 % of the steps at 128 positions, the rest at 512. With details of the
released code: the text is arranged and masked ten times before training, at either length, a tenth of the sequences
are short, and AdamW has no bias correction.

The released code's maximum of predictions is left out, because it has no effect at 15 % of 128 or of 512.
"""

from lightning_modules.data import Data, SegmentPairFormat, Tokenizer
from lightning_modules.model import Transformer
from lightning_modules.objectives import MaskedLM, Masking, Objectives, SentencePair
from lightning_modules.system import System
from lightning_modules.training.optimizers import Optimizer, Schedule
from lightning_modules.training.settings import Training

BERT_BASE = System(
    name="bert_base",
    paper="Devlin et al. 2019, arXiv 1810.04805, appendix A.2",
    model=Transformer(num_layers=12, hidden_size=768),
    objectives=Objectives(
        mlm=MaskedLM(masking=Masking(rate=0.15, mask=0.8, same=0.1, random=0.1, copies=1)),  # one for each duplicate
        sentence=SentencePair(),
    ),
    format=SegmentPairFormat(
        sequence_length=512,
        first_share=0.9,
        first_length=128,
        negatives="random",
        short_fraction=0.1,
        duplicates=10,
    ),
    data=Data(
        corpora=("wikipedia-2015", "novels"), tokenizer=Tokenizer(kind="wordpiece", vocab_size=30_522, lowercase=True)
    ),
    optimizer=Optimizer(peak_lr=1e-4, bias_correction=False, eps=1e-6, weight_decay=0.01),
    schedule=Schedule(warmup_fraction=10_000 / 1_000_000, decay_origin="zero"),
    training=Training(steps=1_000_000, batch_size=256, clip_norm=1.0),
)

BERT_LARGE = BERT_BASE.but(**{"name": "bert_large", "model.num_layers": 24, "model.hidden_size": 1024})
