"""Backbones, objectives, input formats, systems, and the loops that train them.

``NUMERICS`` is a version number for the results of each part of the work. It is part of every run's identity. Raise it
by hand, with a CHANGELOG line, whenever a change moves results; golden losses in the tests show when it is due.
"""

NUMERICS = {"data": 1, "pretrain": 3, "evaluate": 1, "finetune": 2, "measure": 1}
