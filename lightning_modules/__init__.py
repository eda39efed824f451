"""Backbones, objectives, input formats, systems, and the loops that train them.

``NUMERICS`` is a version number for the results of each part of the work. It is part of every run's identity. Raise it
by hand, with a CHANGELOG line, when a change moves the results of all runs of a kind; golden losses in the tests show
when. A change that moves those of one tokenizer, format, task or device puts a version into the settings of that part.
"""

NUMERICS = {"data": 1, "pretrain": 3, "evaluate": 1, "finetune": 2, "measure": 1, "checkpoint": 1}
