"""Records as numbers by cell, seed and metric."""
