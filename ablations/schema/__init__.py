"""The data that is stored and exchanged: grid, claim, cell, run, record."""
