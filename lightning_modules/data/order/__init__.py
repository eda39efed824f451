"""The order of sequences in a run: batches, epochs, noise, resumption."""
