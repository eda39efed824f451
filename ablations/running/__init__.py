"""Making the runs of a plan: executors, worker processes, progress."""
