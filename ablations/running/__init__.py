"""Execution of a plan: executors, worker processes, progress."""
