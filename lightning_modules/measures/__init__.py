"""Measurements at the end of a training."""
