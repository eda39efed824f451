"""Baselines on the text of a pretraining: bigrams, bags of words."""
