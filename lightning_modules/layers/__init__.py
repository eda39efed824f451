"""Layers shared by backbones and tasks. They use tensors and batch dataclasses, never systems or objectives."""
