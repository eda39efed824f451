"""What a trained network holds: linear probes of its layers, what its heads look at, words as vectors."""
