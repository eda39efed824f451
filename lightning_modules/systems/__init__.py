"""Systems of papers, one module per paper. Every system listed here can be a grid's base."""

from lightning_modules.system import System
from lightning_modules.systems.albert import ALBERT_BASE, ALBERT_LARGE, ALBERT_XLARGE, ALBERT_XXLARGE
from lightning_modules.systems.attention_lstm import ATTENTION_LSTM
from lightning_modules.systems.awd_lstm import AWD_LSTM
from lightning_modules.systems.bert import BERT_BASE, BERT_LARGE
from lightning_modules.systems.compact_bert import BERT_MEDIUM, BERT_MINI, BERT_SMALL, BERT_TINY
from lightning_modules.systems.distilbert import DISTILBERT
from lightning_modules.systems.elmo import ELMO
from lightning_modules.systems.gpt import GPT
from lightning_modules.systems.gpt2 import GPT2, GPT2_MEDIUM
from lightning_modules.systems.mask15 import MASK15_LARGE
from lightning_modules.systems.roberta import ROBERTA_BASE, ROBERTA_LARGE
from lightning_modules.systems.spanbert import SPANBERT_BASE, SPANBERT_LARGE
from lightning_modules.systems.transformer import TRANSFORMER_BASE, TRANSFORMER_BIG
from lightning_modules.systems.transformer_xl import TRANSFORMER_XL_BASE
from lightning_modules.systems.ulmfit import ULMFIT
from lightning_modules.systems.xlm import XLM
from lightning_modules.systems.xlnet import XLNET_BASE, XLNET_LARGE

SYSTEMS: dict[str, System] = {
    "bert_tiny": BERT_TINY,
    "bert_mini": BERT_MINI,
    "bert_small": BERT_SMALL,
    "bert_medium": BERT_MEDIUM,
    "bert_base": BERT_BASE,
    "bert_large": BERT_LARGE,
    "roberta_base": ROBERTA_BASE,
    "roberta_large": ROBERTA_LARGE,
    "spanbert_base": SPANBERT_BASE,
    "spanbert_large": SPANBERT_LARGE,
    "albert_base": ALBERT_BASE,
    "albert_large": ALBERT_LARGE,
    "albert_xlarge": ALBERT_XLARGE,
    "albert_xxlarge": ALBERT_XXLARGE,
    "mask15_large": MASK15_LARGE,
    "distilbert": DISTILBERT,
    "elmo": ELMO,
    "gpt": GPT,
    "gpt2": GPT2,
    "gpt2_medium": GPT2_MEDIUM,
    "attention_lstm": ATTENTION_LSTM,
    "transformer_base": TRANSFORMER_BASE,
    "transformer_big": TRANSFORMER_BIG,
    "transformer_xl_base": TRANSFORMER_XL_BASE,
    "awd_lstm": AWD_LSTM,
    "ulmfit": ULMFIT,
    "xlm": XLM,
    "xlnet_base": XLNET_BASE,
    "xlnet_large": XLNET_LARGE,
}

__all__ = [
    "ALBERT_BASE", "ALBERT_LARGE", "ALBERT_XLARGE", "ALBERT_XXLARGE", "AWD_LSTM", "BERT_BASE", "BERT_LARGE",
    "BERT_MEDIUM", "BERT_MINI", "BERT_SMALL", "BERT_TINY", "DISTILBERT", "ELMO", "GPT", "GPT2", "GPT2_MEDIUM",
    "MASK15_LARGE", "ROBERTA_BASE", "ROBERTA_LARGE", "SPANBERT_BASE", "SPANBERT_LARGE", "SYSTEMS", "TRANSFORMER_BASE",
    "TRANSFORMER_BIG", "TRANSFORMER_XL_BASE", "ULMFIT", "XLM", "XLNET_BASE", "XLNET_LARGE",
]  # fmt: skip
