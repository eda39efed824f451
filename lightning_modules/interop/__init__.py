"""Checkpoints in the format of Hugging Face's ``transformers``, read and written.

A folder has ``config.json``, ``model.safetensors`` and the files of a tokenizer. The supported families are BERT,
RoBERTa, ALBERT, GPT-2 and XLNet. Nothing in a folder is executed: pickles and configurations that name code are
rejected.

>>> from lightning_modules import interop
>>> checkpoint = interop.read("bert-base-uncased")  # doctest: +SKIP
>>> module = checkpoint.build()  # doctest: +SKIP
"""

from lightning_modules.interop.checkpoint import Checkpoint, of_run, read, row_of, write
from lightning_modules.interop.folder import fingerprint
from lightning_modules.interop.own_tokenizer import copy_tokenizer, own_encoder
from lightning_modules.interop.task_heads import read_head, shape_of, tuned

__all__ = [
    "Checkpoint", "copy_tokenizer", "fingerprint", "of_run", "own_encoder", "read", "read_head", "row_of", "shape_of",
    "tuned", "write",
]  # fmt: skip
