"""Checkpoints of other projects: folders as Hugging Face's ``transformers`` reads and writes them.

A folder is ``config.json``, ``model.safetensors`` and the files of a tokenizer. Three families are known: BERT, RoBERTa
and ALBERT. Nothing in a folder is executed: pickles are refused unopened, and so is a configuration that names code.

>>> from lightning_modules import interop
>>> checkpoint = interop.read("bert-base-uncased")  # doctest: +SKIP
>>> module = checkpoint.build()  # doctest: +SKIP
"""

from lightning_modules.interop.checkpoint import Checkpoint, of_run, read, write
from lightning_modules.interop.folder import fingerprint
from lightning_modules.interop.own_tokenizer import own_encoder

__all__ = ["Checkpoint", "fingerprint", "of_run", "own_encoder", "read", "write"]
