"""Commands on whole stores of records."""
