"""Checks of grid files: what is wrong with a grid, said with its place and all at once."""
