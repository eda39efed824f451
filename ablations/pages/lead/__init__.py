"""The first lines of a page: its answer, in words and in numbers."""
