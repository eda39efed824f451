"""From a grid file to its cells and runs: reading, checking, resolving, searching, costs."""
