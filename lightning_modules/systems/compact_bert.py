"""Well-read students learn better: on the importance of pre-training compact models (Turc et al. 2019).

arXiv 1908.08962, and its released models: BERT's recipe in four smaller sizes, with heads of width 64. These are the
models with pre-training only, without distillation. They differ from the paper as `bert` does.
"""

from lightning_modules.system import System
from lightning_modules.systems.bert import BERT_BASE


def _compact(name: str, num_layers: int, hidden_size: int) -> System:
    return BERT_BASE.but(
        **{
            "name": name,
            "paper": "Turc et al. 2019, arXiv 1908.08962, section 3",
            "model.num_layers": num_layers,
            "model.hidden_size": hidden_size,
        }
    )


BERT_TINY = _compact("bert_tiny", 2, 128)
BERT_MINI = _compact("bert_mini", 4, 256)
BERT_SMALL = _compact("bert_small", 4, 512)
BERT_MEDIUM = _compact("bert_medium", 8, 512)
