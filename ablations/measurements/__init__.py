"""From records to numbers by cell, seed and metric."""
