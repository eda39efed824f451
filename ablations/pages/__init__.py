"""What is written to results/: tables, pages and the index, from plans and records."""
