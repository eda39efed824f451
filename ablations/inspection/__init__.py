"""Inspecting one trained model: attention, word vectors, senses, probes, answers."""
