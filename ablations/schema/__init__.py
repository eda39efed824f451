"""What is kept and exchanged: grid, claim, cell, run, record."""
