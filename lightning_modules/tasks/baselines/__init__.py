"""Baselines of tasks that need no network."""
