"""From a grid file to its cells and runs: reads, checks, resolves and searches them, and estimates their cost."""
