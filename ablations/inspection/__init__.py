"""Looking into one trained model: attention, words as vectors, senses, answers."""
