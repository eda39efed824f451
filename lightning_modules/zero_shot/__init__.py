"""Tasks that a language model is evaluated on without training: by the probabilities it gives to text.

>>> from lightning_modules.zero_shot.table import ZERO_SHOT
>>> ZERO_SHOT["lambada"].main
'accuracy'
"""
