"""Should you mask 15 % in masked language modeling?

Wettig et al. 2023, arXiv 2202.08005.

The efficient pretraining recipe of its section 2 and the released training script: a pre-norm BERT-large, short blocks
that ignore sentence boundaries, few large batches at a high learning rate, and [MASK] only as replacement.
"""

from lightning_modules.data import Data, TextFormat, Tokenizer
from lightning_modules.model import Transformer
from lightning_modules.objectives import MaskedLM, Masking, Objectives
from lightning_modules.system import System
from lightning_modules.training.optimizers import Optimizer, Schedule
from lightning_modules.training.settings import Training

MASK15_LARGE = System(
    name="mask15_large",
    paper="Wettig et al. 2023, arXiv 2202.08005, section 2 and appendix A",
    model=Transformer(
        num_layers=24, hidden_size=1024, norm="pre", segment_types=0, norm_eps=1e-5, init="normal", max_positions=512
    ),
    objectives=Objectives(
        mlm=MaskedLM(masking=Masking(rate=0.40, mask=1.0, same=0.0, random=0.0, count="stochastic_round"))
    ),
    format=TextFormat(sequence_length=128, break_mode="none"),
    data=Data(
        corpora=("wikipedia-2015", "novels"), tokenizer=Tokenizer(kind="byte_bpe", vocab_size=50_265, lowercase=False)
    ),
    optimizer=Optimizer(peak_lr=2e-3, beta2=0.98, eps=1e-6, weight_decay=0.01, decay_all=True),
    schedule=Schedule(warmup_fraction=0.06),
    training=Training(steps=23_000, batch_size=4096, clip_norm=0.0),
)
