"""What is trained: backbones, objectives, input formats, systems, and the loops that train them.

``NUMERICS`` names the generation of the numbers that each part of the work produces. It is part of every run's
identity and is raised by hand, with a CHANGELOG line, whenever a change moves results; golden losses in the tests
notice when it should have been.
"""

NUMERICS = {"data": 1, "pretrain": 1, "evaluate": 1, "finetune": 1}
