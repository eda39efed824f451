"""Simple methods that see the same text as a model: neighbour counts, bags of words."""
