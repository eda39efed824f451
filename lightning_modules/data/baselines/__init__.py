"""Baselines on the text of a pretraining: neighbour counts, bags of words."""
