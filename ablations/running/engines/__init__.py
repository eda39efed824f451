"""Executors whose runs are made on other machines: Slurm, Ray."""
