"""Executors that hand runs to an engine with machines of its own: Slurm, Ray."""
