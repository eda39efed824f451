"""The loop of pretraining, and what every loop shares: optimisers, schedules, recorder, checkpoints."""
