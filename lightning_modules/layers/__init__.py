"""Pieces shared by backbones and tasks. A layer knows tensors and records; it knows no system and no objective."""
