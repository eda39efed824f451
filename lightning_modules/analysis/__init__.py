"""Analysis of trained networks: linear probes, attention of heads, word vectors."""
