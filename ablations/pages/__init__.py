"""What is written to results/: tables, reports, pages, the index. Functions of plans and records."""
